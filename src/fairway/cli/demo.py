"""`fairway demo`: all of Fairway in two minutes, ending with a page to open."""

from __future__ import annotations

from pathlib import Path

from fairway.cli.exits import ExitCode
from fairway.cli.options import option


def demo(
    out: Path = option(
        Path("out/demo"), metavar="DIR", help="Where everything goes; a number is added if it is taken."
    ),
    messages: int = option(100, min=1, help="Messages of each of the eight senders."),
    seed: int = option(7, help="Another seed is another link."),
) -> int:
    """Show all that is there, in two minutes.

    Four protocols over bad links to a gateway that is killed once; Spark lands the messages and analyses the captures;
    a small sweep compares the protocols. Leaves with 1 if a promise is broken. Needs Java for Spark, nothing else.

    \b
    Example:
      fairway demo --out out/demo
    """
    from fairway.cli.ending import ended_by_sigterm
    from fairway.demo.story import Story, fresh_folder

    folder = fresh_folder(out)
    print(f"Everything goes to {folder}.", flush=True)
    with ended_by_sigterm():
        kept = Story(folder, lambda line: print(line, flush=True), messages=messages, seed=seed).run()
    print(f"Open {folder / 'index.html'}", flush=True)
    return ExitCode.DONE if kept else ExitCode.FAILED
