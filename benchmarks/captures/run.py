"""One run of the bench: make the capture, then Fairway on one core and on all, the peers before, between and after."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.captures.made import make_capture
from benchmarks.captures.peers import dpkt_seconds, tshark_seconds
from benchmarks.captures.table import Figure, figures_of
from benchmarks.captures.worker import Assignment
from fairway.core.errors import FairwayError

PEERS = {"tshark": tshark_seconds, "dpkt": dpkt_seconds}
PEER_DATAGRAMS_MAX = 300_000
"""The peers' rates do not change with the size of the file, and they are slow."""

Report = Callable[[str, int, int], None]


class BenchFailed(FairwayError):
    """A measurement did not come to its end; the message holds what was said last."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What one run measures."""

    datagrams: int
    rounds: int
    cores: Sequence[int]


def all_cores() -> tuple[int, ...]:
    """Return one core and as many as this process may use."""
    return tuple(sorted({1, len(os.sched_getaffinity(0))}))


def run(plan: Plan, report: Report) -> list[Figure]:
    """Measures Fairway for each number of cores, and the peers around it: a machine's speed changes by the hour."""
    found: list[Figure] = []
    peers: dict[str, list[float]] = {name: [] for name in PEERS}
    steps = 2 + 2 * len(plan.cores)
    with tempfile.TemporaryDirectory(prefix="fairway-bench-") as folder:
        path = Path(folder, "mixed.pcap")
        report(f"writing {plan.datagrams:,} datagrams", 1, steps)
        make_capture(path, plan.datagrams)
        few = min(plan.datagrams, PEER_DATAGRAMS_MAX)
        for number, cores in enumerate(plan.cores):
            report(" and ".join(PEERS), 2 * number + 2, steps)
            _ask_peers(path, few, peers)
            report(f"Fairway on Spark, local[{cores}]", 2 * number + 3, steps)
            answers = _asked(Assignment(str(path), cores, plan.rounds, folder))
            found += figures_of(answers, plan.datagrams)
        report(" and ".join(PEERS), steps, steps)
        _ask_peers(path, few, peers)
    return [Figure(name, 1, "steady", median(times), few) for name, times in peers.items() if times] + found


def _ask_peers(path: Path, datagrams: int, times: dict[str, list[float]]) -> None:
    for name, seconds in PEERS.items():
        taken = seconds(path, datagrams)
        if taken is not None:
            times[name].append(taken)


def _asked(assignment: Assignment) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "benchmarks.captures.worker", json.dumps(asdict(assignment))]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    if ended.returncode:
        said = [line for line in ended.stderr.splitlines() if line.strip()] or ["nothing was said"]
        raise BenchFailed(f"Fairway on local[{assignment.cores}] was not measured: {said[-1]}")
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
