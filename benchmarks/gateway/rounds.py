"""The gateway benchmark: every system once in every round, on a fresh server, its loads one after the other."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.frame import CellFailed, Goal, Key, Report, Results, Row, Tables, measured, ratios, spread
from benchmarks.gateway.servers import HOST, Server, ServerFailed, start
from benchmarks.gateway.systems import BATCH_MESSAGES, BATCHES_IN_FLIGHT, LOADS, MESSAGE_BYTES, SYSTEMS, System
from benchmarks.gateway.visible import GOAL_S, seconds_to_the_table
from benchmarks.transport.loads import IN_FLIGHT
from fairway.demo.services import ServiceFailed, answer, process

WHERE = "disk"
LIMIT_BASE_S = 60.0
LIMIT_FACTOR = 12
SYNCS = 50
NUMBERS_APART = 1 << 40
"""Each load of a server numbers its messages from another multiple of this on."""
GOAL_RATE = 60_000
GOAL_TIMES = 5.0
RATES = (
    ("batches/s", "batches", "rate"),
    ("awaited/s", "awaited", "rate"),
    ("server CPU µs", "batches", "server_cpu_us"),
    ("sender CPU µs", "batches", "sender_cpu_us"),
)
"""Title, load, figure; processor time is of a message in a batch."""
LATENCIES = (
    ("loaded p50 ms", "awaited", "p50_ms"),
    ("p99 ms", "awaited", "p99_ms"),
    ("alone p50 µs", "single", "rate"),
    ("p99 µs", "single", "p99"),
)
"""Loaded: with 256 awaited messages under way; alone: with one."""


@dataclass(frozen=True, slots=True)
class Plan:
    systems: Sequence[str] = tuple(SYSTEMS)
    loads: Sequence[str] = tuple(LOADS)
    visible: int = 0
    """How many messages are followed into the table."""


def run(plan: Plan, results: Results, out: Path, report: Report) -> None:
    """Measure what the plan asks for, with all data in a temporary folder in `out`."""
    results.missing.update({one: SYSTEMS[one].missing for one in plan.systems if SYSTEMS[one].missing})
    there = [SYSTEMS[name] for name in plan.systems if name not in results.missing]
    total, number = results.rounds * len(there) * len(plan.loads), 0
    out.mkdir(parents=True, exist_ok=True)
    # From the root: the servers run in folders of their own, where a relative path would lead elsewhere.
    folder = Path(tempfile.mkdtemp(prefix=".gateway-", dir=out.resolve()))
    try:
        results.more |= {"file_system": _file_system(folder), "sync_us": sync_us(folder)}
        for turn in range(results.rounds):
            for system in there if turn % 2 == 0 else there[::-1]:

                def tell(load: str, system: System = system) -> None:
                    nonlocal number
                    number += 1
                    report(f"{system.title}: {LOADS[load].title}", number, total)

                _measure(plan, system, turn, results, folder / f"{turn}-{system.name}", tell)
        if plan.visible:
            report("into the table", total, total)
            results.more["visible_s"] = seconds_to_the_table(folder / "lake", plan.visible)
    except ServiceFailed as reason:
        results.failures.append(f"into the table: {reason}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(
    plan: Plan, system: System, turn: int, results: Results, folder: Path, tell: Callable[[str], None]
) -> None:
    """Measure all loads of one system; what was acknowledged must then be there, or all of them have failed."""
    found: dict[str, dict[str, Any] | None] = dict.fromkeys(plan.loads)
    try:
        with ExitStack() as stack:
            server = start(system, folder, stack)
            results.more.setdefault("versions", {})[system.name] = server.version
            sent = []
            for first, load in zip(range(0, 1 << 60, NUMBERS_APART), plan.loads, strict=False):
                tell(load)
                found[load] = result = _send(system, load, server, first, results.seconds)
                sent.append((first, int(result["acknowledged"])))
            differences = server.close().differences(sent)
            if differences:
                found = dict.fromkeys(found)
                raise CellFailed("; ".join(differences))
    except (CellFailed, ServerFailed, ServiceFailed) as reason:
        results.failures.append(f"round {turn + 1}, {system.title}: {reason}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for load, one in found.items():
        results.cells.setdefault(Key(WHERE, load, system.name), []).append(one)


def _send(system: System, load: str, server: Server, first: int, seconds: float) -> dict[str, Any]:
    limit_s = LIMIT_BASE_S + LIMIT_FACTOR * seconds
    job = {
        "system": system.name, "load": load, "host": HOST, "port": server.port, "server_pid": server.pid,
        "first": first, "seconds": seconds, "limit_s": limit_s,
    }  # fmt: skip
    with process([sys.executable, "-m", "benchmarks.gateway.clients", json.dumps(job)]) as child:
        found: dict[str, Any] = answer(child, limit_s + LIMIT_BASE_S)  # a worker ends by itself at its limit
    if "error" in found:
        raise CellFailed(f"{load}: {found['error']}")
    for side, name in (("sender_cpu_s", "sender_cpu_us"), ("receiver_cpu_s", "server_cpu_us")):
        if side in found:
            found[name] = found[side] / found["units"] * 1e6
    return found


def sync_us(folder: Path) -> float:
    """Measure what every durable acknowledgement rests on: a write of 4 KiB and its sync, in the middle."""
    times = []
    with open(folder / "sync", "wb", buffering=0) as file:
        for _ in range(SYNCS):
            began_s = perf_counter()
            file.write(bytes(4_096))
            os.fdatasync(file.fileno())
            times.append(perf_counter() - began_s)
    return median(times) * 1e6


def _file_system(folder: Path) -> str:
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    above = [(mounted, kind) for mounted, kind in mounts if folder.resolve().is_relative_to(mounted)]
    return max(above, key=lambda one: len(one[0]), default=("", "unknown"))[1]


def goals(results: Results) -> Iterator[Goal]:
    """Judge udpc and mrp by messages a second, and as multiples of the others in the same round."""
    for system in ("udpc", "mrp"):
        for load in ("batches", "awaited"):
            ours = results.figures(WHERE, load, system)
            goal = f"{SYSTEMS[system].title}, {LOADS[load].title}"
            yield Goal(goal, "messages a second", GOAL_RATE, [rate for rate in ours if rate])
            for other in ("redis", "rabbitmq"):
                times = ratios(ours, results.figures(WHERE, load, other))
                yield Goal(goal, f"times {SYSTEMS[other].title}", GOAL_TIMES, times)


def show(plan: Plan, results: Results) -> Tables:
    """Return rates, latencies and goals, with what each acknowledgement means."""
    tables = {
        "Durable, acknowledged messages": [_row(plan, results, name, RATES) for name in plan.systems],
        "From send to acknowledgement": [_row(plan, results, name, LATENCIES) for name in plan.systems],
        "Goals": [goal.row() for goal in measured(goals(results))],
    }
    more: dict[str, Any] = {"file_system": "unknown", "sync_us": 0.0, **results.more}
    remarks = results.remarks(
        f"{MESSAGE_BYTES} bytes a message; batches of {BATCH_MESSAGES:,}, {BATCHES_IN_FLIGHT} under way; Redis: one.",
        f"Awaited messages: {IN_FLIGHT} under way. Sender and server are two processes on the same cores.",
        f"All data on {more['file_system']}; a write of 4 KiB with its sync takes {more['sync_us']:,.0f} µs there.",
        "After each round what was acknowledged is counted in the server, the gateway's also compared byte for byte.",
        *_visible(more.get("visible_s", [])),
    )
    return Tables(tables, [*(_promise(results, SYSTEMS[name]) for name in plan.systems), *remarks])


def _row(plan: Plan, results: Results, name: str, columns: Sequence[tuple[str, str, str]]) -> Row:
    return {"system": SYSTEMS[name].title} | {
        title: "missing" if name in results.missing else spread(results.figures(WHERE, load, name, figure))
        for title, load, figure in columns
        if load in plan.loads
    }


def _promise(results: Results, system: System) -> str:
    """Return a system's version, what its acknowledgement means, and how its client is used."""
    version = "missing"
    if system.name not in results.missing:
        version = results.more.get("versions", {}).get(system.name, "did not start") + system.client_version
    return f"{system.title} ({version}). Acknowledged: {system.promise}. Client: {system.how}."


def _visible(taken_s: list[float]) -> list[str]:
    if not taken_s:
        return []
    verdict = "met" if max(taken_s) < GOAL_S else "missed"
    found = f"{median(taken_s):.1f} s in the middle, {max(taken_s):.1f} s at most, of {len(taken_s)} messages"
    return [f"From the acknowledgement to the table, with all defaults: {found}; under {GOAL_S:.0f} s: {verdict}."]
