"""Runs torture: `make torture`.

python -m fairway.bench.torture --kills 60 --seed 1 --out build/torture
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from time import strftime

from fairway.bench.torture.run import Torture


def main(arguments: list[str]) -> int:
    """Runs one plan; gives 1 when the promise was broken, and prints how to see it again."""
    parser = argparse.ArgumentParser(prog="fairway.bench.torture")
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stream-kills", type=int, help="how many of them fall on the stream [default: one of six]")
    parser.add_argument("--minutes", type=float, default=0.0, help="begin nothing more after so long")
    parser.add_argument("--out", type=Path, required=True, help="a folder that is not there yet")
    chosen = parser.parse_args(arguments)
    if chosen.out.exists():
        print(f"{chosen.out} is there already; name another folder with --out", file=sys.stderr)
        return 2
    # Whoever ends this run ends what it started, and unmounts what it mounted.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    out = chosen.out.absolute()
    verdict = Torture(chosen.kills, chosen.seed, out, _tell, chosen.minutes, chosen.stream_kills).run()
    for line in verdict.lines():
        print(line, flush=True)
    if not verdict.kept:
        again = f"python -m fairway.bench.torture --kills {chosen.kills} --seed {chosen.seed} --out {chosen.out}-again"
        again += "" if chosen.stream_kills is None else f" --stream-kills {chosen.stream_kills}"
        print(f"The lake and the ledger are kept in {chosen.out}. The same plan again: {again}", flush=True)
    return 0 if verdict.kept else 1


def _tell(line: str) -> None:
    print(strftime("%H:%M:%S"), line, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
