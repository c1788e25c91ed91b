"""The run: every system once in every round, on a fresh server, its loads one after the other."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.gateway.servers import HOST, Server, ServerFailed, start
from benchmarks.gateway.systems import LOADS, SYSTEMS, System
from benchmarks.gateway.visible import seconds_to_the_table
from fairway.demo.processes import process
from fairway.demo.services import ServiceFailed

Key = tuple[str, str]
"""Load, system."""

LIMIT_BASE_S = 60.0
LIMIT_FACTOR = 12
SYNCS = 50
NUMBERS_APART = 1 << 40
"""Each load of a server numbers its messages from another multiple of this on."""


class LoadFailed(Exception):
    """A load gave no result."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure."""

    rounds: int = 3
    seconds: float = 2.0
    systems: Sequence[str] = tuple(SYSTEMS)
    loads: Sequence[str] = tuple(LOADS)
    visible: int = 0
    """How many messages are followed into the table."""


@dataclass(slots=True)
class Results:
    """What came of each load of each system, round by round; one that failed is None."""

    plan: Plan
    versions: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """What must be installed, by system."""
    file_system: str = ""
    sync_us: float = 0.0
    """How long a write of 4 KiB and its sync take there, in the middle."""
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    visible_s: list[float] = field(default_factory=list)
    """From the acknowledgement to the row, of each message that was followed."""
    cells: dict[Key, list[dict[str, Any] | None]] = field(default_factory=dict)

    def figures(self, load: str, system: str, figure: str = "rate") -> list[float | None]:
        """Return one figure in each round."""
        return [one.get(figure) if one else None for one in self.cells.get((load, system), [])]


def run(results: Results, place: Path, report: Callable[[str, int, int], None]) -> None:
    """Measures what the plan asks for, with all data in a folder of its own in `place`, which is removed."""
    plan = results.plan
    chosen = [SYSTEMS[name] for name in plan.systems]
    results.missing = {one.name: one.missing for one in chosen if one.missing}
    there = [one for one in chosen if not one.missing]
    total, number = plan.rounds * len(there) * len(plan.loads), 0
    place.mkdir(parents=True, exist_ok=True)
    # From the root: the servers run in folders of their own, where a relative path would lead elsewhere.
    folder = Path(tempfile.mkdtemp(prefix=".gateway-", dir=place.resolve()))
    try:
        results.file_system, results.sync_us = _file_system(folder), sync_us(folder)
        for turn in range(plan.rounds):
            # Backwards in every other round, so that nobody is always measured after the same neighbour.
            for system in there if turn % 2 == 0 else there[::-1]:

                def tell(load: str, system: System = system) -> None:
                    nonlocal number
                    number += 1
                    report(f"{system.title}: {LOADS[load].title}", number, total)

                _measure(system, turn, results, folder / f"{turn}-{system.name}", tell)
        if plan.visible:
            report("into the table", total, total)
            results.visible_s = seconds_to_the_table(folder / "lake", plan.visible)
    except ServiceFailed as reason:
        results.failures.append(f"into the table: {reason}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(system: System, turn: int, results: Results, folder: Path, tell: Callable[[str], None]) -> None:
    """Measures all loads of one system; what was acknowledged must then be there, or all of them have failed."""
    measured: dict[str, dict[str, Any] | None] = dict.fromkeys(results.plan.loads)
    try:
        with ExitStack() as stack:
            server = start(system, folder, stack)
            results.versions[system.name] = server.version
            sent = []
            for place, load in enumerate(results.plan.loads):
                tell(load)
                measured[load] = result = _send(system, load, server, place * NUMBERS_APART, results.plan.seconds)
                sent.append((place * NUMBERS_APART, int(result["acknowledged"])))
            differences = server.close().differences(sent)
            if differences:
                measured = dict.fromkeys(measured)
                raise LoadFailed("; ".join(differences))
    except (LoadFailed, ServerFailed, ServiceFailed) as reason:
        results.failures.append(f"round {turn + 1}, {system.title}: {reason}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for load, one in measured.items():
        results.cells.setdefault((load, system.name), []).append(one)


def _send(system: System, load: str, server: Server, first: int, seconds: float) -> dict[str, Any]:
    limit_s = LIMIT_BASE_S + LIMIT_FACTOR * seconds
    job = {
        "system": system.name, "load": load, "host": HOST, "port": server.port, "server_pid": server.pid,
        "first": first, "seconds": seconds, "limit_s": limit_s,
    }  # fmt: skip
    with process([sys.executable, "-m", "benchmarks.gateway.worker", json.dumps(job)]) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        line = child.stdout.readline()  # a worker ends by itself at its limit
        if not line:
            said = child.stderr.read().decode(errors="replace").strip().splitlines()
            raise LoadFailed(f"{load} ended without a word: {said[-1] if said else 'time limit'}")
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise LoadFailed(f"{load}: {answer['error']}")
    return _with_costs(answer)


def _with_costs(answer: dict[str, Any]) -> dict[str, Any]:
    """Adds the processor time of each side per message."""
    for side, name in (("sender_cpu_s", "sender_cpu_us"), ("receiver_cpu_s", "server_cpu_us")):
        if side in answer:
            answer[name] = answer[side] / answer["units"] * 1e6
    return answer


def sync_us(folder: Path) -> float:
    """Measures what every durable acknowledgement rests on: a write of 4 KiB and its sync, in the middle."""
    times = []
    with open(folder / "sync", "wb", buffering=0) as file:
        for _ in range(SYNCS):
            began_s = perf_counter()
            file.write(bytes(4_096))
            os.fdatasync(file.fileno())
            times.append(perf_counter() - began_s)
    return median(times) * 1e6


def _file_system(folder: Path) -> str:
    """Names the file system of a folder."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mounted, this, *_ = line.split()
        if len(mounted) >= len(best) and (
            folder.resolve() == Path(mounted) or Path(mounted) in folder.resolve().parents
        ):
            best, kind = mounted, this
    return kind
