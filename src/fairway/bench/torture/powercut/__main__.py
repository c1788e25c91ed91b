"""Cuts the power: `make torture`.

python -m fairway.bench.torture.powercut --cuts 300 --seed 1 --out build/powercut
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from fairway.bench.torture.powercut.landing import cut_landing, record_landing
from fairway.bench.torture.powercut.recording import record
from fairway.bench.torture.powercut.recovery import cut, draw
from fairway.core.errors import FairwayError


def main(arguments: list[str]) -> int:
    """Records once and cuts often; gives 1 when a promise was broken after a cut."""
    parser = argparse.ArgumentParser(prog="fairway.bench.torture.powercut")
    parser.add_argument("--cuts", type=int, default=300)
    parser.add_argument("--messages", type=int, default=150, help="of each of the four protocols")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="a folder that is not there yet")
    chosen = parser.parse_args(arguments)
    chosen.out.mkdir(parents=True)
    try:
        recording = record(chosen.out.absolute(), chosen.messages)
    except FairwayError as error:
        print(f"fairway: {error}", file=sys.stderr)
        return 1
    counts = dict(recording.ledger.counts())
    print(f"recorded {len(recording.events):,} writes, syncs and changes of names; messages: {counts}", flush=True)
    broken = 0
    for number, moment in enumerate(draw(recording.events, chosen.cuts, chosen.seed)):
        folder = chosen.out.absolute() / f"cut-{number}"
        faults = cut(recording, moment, folder)
        for fault in faults:
            print(f"{folder.name}: {moment}: {fault}", flush=True)
        broken += bool(faults)
        if not faults:
            shutil.rmtree(folder)
    streamed = record_landing(chosen.out.absolute() / "landing", chosen.messages)
    for number, moment in enumerate(draw(streamed.events, chosen.cuts, chosen.seed)):
        for fault in cut_landing(streamed, moment, chosen.out.absolute() / f"landing-cut-{number}"):
            print(f"landing: {moment}: {fault}", flush=True)
            broken += 1
    print(f"{2 * chosen.cuts} power cuts (seed {chosen.seed}): {broken} broke a promise", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
