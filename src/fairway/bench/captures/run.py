"""One run of the bench: make the capture, ask the peers, then Fairway on one core and on all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fairway.bench.captures.made import make_capture
from fairway.bench.captures.peers import dpkt_seconds, tshark_seconds
from fairway.bench.captures.table import Figure, figures_of
from fairway.bench.captures.worker import Assignment
from fairway.core.errors import FairwayError

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
    """Gives one core and as many as this process may use."""
    return tuple(sorted({1, len(os.sched_getaffinity(0))}))


def run(plan: Plan, report: Report) -> list[Figure]:
    """Measures everything once, peers first."""
    figures: list[Figure] = []
    steps = 3 + len(plan.cores)
    with tempfile.TemporaryDirectory(prefix="fairway-bench-") as folder:
        path = Path(folder, "mixed.pcap")
        report(f"writing {plan.datagrams:,} datagrams", 1, steps)
        make_capture(path, plan.datagrams)
        few = min(plan.datagrams, PEER_DATAGRAMS_MAX)
        for number, (name, seconds) in enumerate((("tshark", tshark_seconds), ("dpkt", dpkt_seconds)), 2):
            report(name, number, steps)
            taken = seconds(path, few)
            if taken is not None:
                figures.append(Figure(name, 1, "steady", taken, few))
        for number, cores in enumerate(plan.cores, 4):
            report(f"Fairway on Spark, local[{cores}]", number, steps)
            answers = _asked(Assignment(str(path), cores, plan.rounds, folder))
            figures += figures_of(answers, plan.datagrams)
    return figures


def _asked(assignment: Assignment) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "fairway.bench.captures.worker", json.dumps(asdict(assignment))]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    if ended.returncode:
        said = [line for line in ended.stderr.splitlines() if line.strip()] or ["nothing was said"]
        raise BenchFailed(f"Fairway on local[{assignment.cores}] was not measured: {said[-1]}")
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
