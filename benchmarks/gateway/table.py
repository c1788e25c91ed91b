"""Rows for people and programs: figures, goals, and what the figures need to be read with."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.gateway.rounds import Results
from benchmarks.gateway.systems import BATCH_MESSAGES, BATCHES_IN_FLIGHT, LOADS, MESSAGE_BYTES, SYSTEMS
from benchmarks.gateway.visible import GOAL_S
from benchmarks.transport.loads import IN_FLIGHT
from benchmarks.transport.table import markdown_table, spread

Row = Mapping[str, object]

GOAL_SYSTEMS = ("udpc", "mrp")
GOAL_LOADS = ("batches", "awaited")
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
Columns = tuple[tuple[str, str, str], ...]


def figure_rows(results: Results, columns: Columns) -> list[Row]:
    """Return a row per system: medians, with the spread of the rounds."""
    return [_row(results, name, columns) for name in results.plan.systems]


def _row(results: Results, name: str, columns: Columns) -> Row:
    row: dict[str, object] = {"system": SYSTEMS[name].title}
    missing = results.missing.get(name)
    for title, load, figure in columns:
        if load in results.plan.loads:
            row[title] = "missing" if missing else spread(results.figures(load, name, figure))
    return row


def promises(results: Results) -> list[str]:
    """Says of each system its version, what its acknowledgement means, and how its client is used."""
    return [
        f"{one.title} ({_version(results, one.name)}). Acknowledged: {one.promise}. Client: {one.how}."
        for one in map(SYSTEMS.__getitem__, results.plan.systems)
    ]


def _version(results: Results, name: str) -> str:
    system = SYSTEMS[name]
    if name in results.missing:
        return f"missing, install: {results.missing[name]}"
    version = results.versions.get(name, "did not start")
    return f"{version}, {system.client} {system.client_version}" if system.client else version


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a goal: a rate, or how many times another's rate, with the lowest and the highest round."""

    goal: str
    against: str
    wanted: float
    values: list[float]

    @property
    def met(self) -> bool:
        return median(self.values) >= self.wanted


def judge(results: Results) -> list[Verdict]:
    """Return the verdict on every goal that this run could tell about."""
    return [verdict for verdict in _verdicts(results) if verdict.values]


def _verdicts(results: Results) -> Iterator[Verdict]:
    for system in GOAL_SYSTEMS:
        for load in GOAL_LOADS:
            ours = results.figures(load, system)
            goal = f"{SYSTEMS[system].title}, {LOADS[load].title}"
            yield Verdict(goal, "messages a second", GOAL_RATE, [rate for rate in ours if rate])
            for other in ("redis", "rabbitmq"):
                theirs = results.figures(load, other)
                ratios = [our / their for our, their in zip(ours, theirs, strict=False) if our and their]
                yield Verdict(goal, f"times {SYSTEMS[other].title}", GOAL_TIMES, ratios)


def verdict_rows(verdicts: list[Verdict]) -> list[Row]:
    """Return a row per goal."""
    return [
        {
            "goal": one.goal,
            "measured in": one.against,
            "at least": f"{one.wanted:,.0f}",
            "found": f"{_shown(median(one.values))} ({_shown(min(one.values))}..{_shown(max(one.values))})",
            "verdict": "met" if one.met else "missed",
        }
        for one in verdicts
    ]


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"


def remarks(results: Results) -> list[str]:
    """Says what the figures need to be read with."""
    machine = f"{platform.system()} {platform.release()}, Python {platform.python_version()}, {os.cpu_count()} cores"
    plan = results.plan
    lines = [
        f"{machine}; {plan.rounds} rounds of {plan.seconds:g} s, interleaved; medians, and how far any round was.",
        f"{MESSAGE_BYTES} bytes a message; batches of {BATCH_MESSAGES:,}, {BATCHES_IN_FLIGHT} under way; Redis: one.",
        f"Awaited messages: {IN_FLIGHT} under way. Sender and server are two processes on the same cores.",
        f"All data on {results.file_system}; a write of 4 KiB with its sync takes {results.sync_us:,.0f} µs there.",
        "After each round what was acknowledged is counted in the server, the gateway's also compared byte for byte.",
        *_visible(results.visible_s),
        *results.notes,
    ]
    lines += [f"{SYSTEMS[name].title} is missing, install: {how}" for name, how in results.missing.items()]
    return lines + [f"FAILED {failure}" for failure in results.failures]


def _visible(taken_s: list[float]) -> list[str]:
    if not taken_s:
        return []
    verdict = "met" if max(taken_s) < GOAL_S else "missed"
    found = f"{median(taken_s):.1f} s in the middle, {max(taken_s):.1f} s at most, of {len(taken_s)} messages"
    return [f"From the acknowledgement to the table, with all defaults: {found}; under {GOAL_S:.0f} s: {verdict}."]


def as_json(results: Results, verdicts: list[Verdict]) -> dict[str, Any]:
    """Return everything that was measured, as plain values."""
    return {
        "machine": {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()},
        "rounds": results.plan.rounds,
        "seconds": results.plan.seconds,
        "file_system": results.file_system,
        "sync_us": results.sync_us,
        "visible_s": results.visible_s,
        "missing": results.missing,
        "notes": results.notes,
        "failures": results.failures,
        "systems": promises(results),
        "goals": verdict_rows(verdicts),
        "cells": [
            {"load": load, "system": system, "rounds": rounds} for (load, system), rounds in results.cells.items()
        ],
    }


def markdown(results: Results, verdicts: list[Verdict]) -> str:
    """Writes the tables as Markdown."""
    tables = (figure_rows(results, RATES), figure_rows(results, LATENCIES), verdict_rows(verdicts))
    parts = [markdown_table(rows) for rows in tables]
    said = [*promises(results), *remarks(results)]
    return "\n\n".join([*parts, "\n".join(f"- {line}" for line in said)]) + "\n"
