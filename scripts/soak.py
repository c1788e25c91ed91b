"""Runs many seeds of the swarm over the four protocols in turn, on all cores, and prints how to replay what failed.

python scripts/soak.py --seeds 100000 --first 1 --minutes 60
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from multiprocessing import Pool
from typing import NamedTuple

from fairway.protocols import NAMES
from fairway.sim.swarm import replay_command, run_seed

FAILURES_MAX = 20
"""More failures than anybody reads; the rest of the seeds waits for the repair."""
CHUNK = 4
REPORT_EVERY_S = 10


class Run(NamedTuple):
    """One seed of one protocol."""

    protocol: str
    seed: int


class Finding(NamedTuple):
    """What came of a run: the datagrams it carried, and what was wrong, if anything."""

    run: Run
    datagrams: int
    wrong: str | None


def runs(first: int, count: int) -> Iterator[Run]:
    """Distribute the seeds over the protocols in turn."""
    return (Run(NAMES[seed % len(NAMES)], seed) for seed in range(first, first + count))


def look_at(run: Run) -> Finding:
    """Run one seed; an exception is a finding like any other."""
    try:
        result = run_seed(run.protocol, run.seed)
    except Exception as error:
        return Finding(run, 0, f"{type(error).__name__}: {error}")
    wrong = "; ".join(map(str, result.violations)) if result.violations else None
    return Finding(run, result.datagrams, wrong)


def soak(findings: Iterable[Finding], count: int, seconds_max: float) -> int:
    """Print progress and failures as they come, and a last line that counts; return the number of failures."""
    start = reported = time.monotonic()
    done: Counter[str] = Counter()
    failures = datagrams = 0
    for finding in findings:
        done[finding.run.protocol] += 1
        datagrams += finding.datagrams
        if finding.wrong is not None:
            failures += 1
            print(f"FAILED {replay_command(*finding.run)}\n    {finding.wrong}", flush=True)
        now = time.monotonic()
        if now - reported > REPORT_EVERY_S:
            reported = now
            left_s = (count - done.total()) * (now - start) / done.total()
            print(f"{done.total():,} of {count:,} runs, {failures} failed, {left_s / 60:.0f} min left", flush=True)
        if failures >= FAILURES_MAX or now - start > seconds_max:
            break
    took_s = time.monotonic() - start
    each = ", ".join(f"{name} {number:,}" for name, number in sorted(done.items()))
    print(f"{done.total():,} runs ({each}), {datagrams:,} datagrams, {failures} failed, {took_s:,.0f} s")
    return failures


def main(words: list[str]) -> int:
    """Read the options and soak."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20_000, help="how many runs in all")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(words)
    with Pool(options.processes) as pool:
        findings = pool.imap_unordered(look_at, runs(options.first, options.seeds), chunksize=CHUNK)
        return 1 if soak(findings, options.seeds, options.minutes * 60) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
