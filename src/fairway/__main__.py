"""The command `fairway`, also as `python -m fairway`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; Ctrl-C while its modules load is one line, too."""
    try:
        from fairway.cli import main as run
    except KeyboardInterrupt:
        print("fairway: stopped", file=sys.stderr)
        raise SystemExit(130) from None
    run()


if __name__ == "__main__":
    main()
