"""Runs torture: `make torture`.

python -m tests.torture --kills 60 --seed 1 --out build/torture            on a disk that is filled now and then
python -m tests.torture --kills 40 --s3 --seed 1 --out build/torture       in an object store
python -m tests.torture --kills 100 --dtls --seed 1 --out build/torture    over DTLS: a device each, by its certificate
python -m tests.torture --cuts 300 --seed 1 --out build/torture            power cuts of gateway and stream
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from time import strftime

from fairway.core.errors import FairwayError
from tests.s3.server import BUCKET, environment, serving
from tests.torture.powercut.cuts import cut_power
from tests.torture.run import Torture


def main(arguments: list[str]) -> int:
    """Run what was asked for; return 1 when a promise was broken, and print how to see it again."""
    parser = argparse.ArgumentParser(prog="tests.torture")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--kills", type=int, help="of gateway, stream and compaction")
    what.add_argument("--cuts", type=int, help="power cuts of the gateway, and as many of the stream")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stream-kills", type=int, help="how many kills fall on the stream [default: one of six]")
    parser.add_argument("--s3", action="store_true", help="the lake is in an object store")
    parser.add_argument(
        "--dtls", action="store_true", help="every device has a certificate, and its name is judged too"
    )
    parser.add_argument("--minutes", type=float, default=0.0, help="begin nothing more after so long")
    parser.add_argument("--messages", type=int, default=150, help="of each protocol in the recording that is cut")
    parser.add_argument("--out", type=Path, required=True, help="a folder that is not there yet")
    chosen = parser.parse_args(arguments)
    if chosen.out.exists():
        print(f"{chosen.out} is there already; name another folder with --out", file=sys.stderr)
        return 2
    # Whoever ends this run ends what it started, and unmounts what it mounted.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        kept = _cut(chosen) if chosen.cuts is not None else _kill(chosen)
    except FairwayError as error:
        print(f"fairway: {error}", file=sys.stderr)
        return 1
    if not kept:
        words = " ".join(arguments).replace(str(chosen.out), f"{chosen.out}-again")
        print(f"What was found is kept in {chosen.out}. The same again: python -m tests.torture {words}")
    return 0 if kept else 1


def _kill(chosen: argparse.Namespace) -> bool:
    out = chosen.out.absolute()
    with ExitStack() as running:
        lake = ""
        if chosen.s3:
            (out / "store").mkdir(parents=True)
            os.environ |= environment(running.enter_context(serving(out / "store")))
            lake = f"s3://{BUCKET}/lake"
        options = chosen.minutes, chosen.stream_kills, lake, chosen.dtls
        verdict = Torture(chosen.kills, chosen.seed, out, _tell, *options).run()
    for line in verdict.lines():
        print(line, flush=True)
    return verdict.kept


def _cut(chosen: argparse.Namespace) -> bool:
    return cut_power(chosen.cuts, chosen.seed, chosen.messages, chosen.out.absolute(), _tell)


def _tell(line: str) -> None:
    print(strftime("%H:%M:%S"), line, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
