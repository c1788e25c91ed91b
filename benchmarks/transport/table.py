"""Rows for people and programs: the figures of each environment, and the goals with their ratios."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from statistics import median
from typing import Any

from benchmarks.transport.goals import Verdict
from benchmarks.transport.loads import LOADS
from benchmarks.transport.peers import INSTALL, PEERS
from benchmarks.transport.rounds import Results

Row = Mapping[str, object]

SHORT = {
    "bulk": "bulk MB/s",
    "awaited-64": "64B each/s",
    "batches-64": "64B batch/s",
    "awaited-1024": "1KB each/s",
    "batches-1024": "1KB batch/s",
    "ping-pong": "ping µs",
}


def figures(results: Results, environment: str) -> list[Row]:
    """Return a row per peer and a column per load that was measured: medians, with the spread of the rounds."""
    measured = [(load, peer) for (where, load, peer) in results.cells if where == environment]
    loads = [load for load in results.plan.loads if any(load == one for one, _ in measured)]
    peers = [peer for peer in results.plan.peers if any(peer == one for _, one in measured)]
    return [_figures(results, environment, peer, loads) for peer in peers]


def _figures(results: Results, environment: str, peer: str, loads: list[str]) -> Row:
    row: dict[str, object] = {"peer": PEERS[peer].title}
    for load in loads:
        row[SHORT[load]] = spread(results.rates(environment, load, peer))
        if load == "ping-pong":
            row["p99 µs"] = spread(results.rates(environment, load, peer, "p99"))
        if load == "bulk":
            row["CPU s/GB"] = spread(results.rates(environment, load, peer, "cpu_s_per_gb"))
    sides = [_peak(results, environment, peer, side) for side in ("sender_peak_mb", "receiver_peak_mb")]
    row["peak MB"] = "+".join(sides)
    return row


def _peak(results: Results, environment: str, peer: str, side: str) -> str:
    found = [
        value
        for load in results.plan.loads
        for value in results.rates(environment, load, peer, side)
        if value is not None
    ]
    return f"{max(found):.0f}" if found else "-"


def spread(values: list[float | None]) -> str:
    """Shows the median, and how far from it any round was; a failed round is said."""
    if not values:
        return "-"
    good = [value for value in values if value is not None]
    if not good:
        return "failed"
    shown = number(median(good))
    if len(good) > 1:
        middle = median(good)
        shown += f" ±{max(max(good) - middle, middle - min(good)) / middle:.0%}"
    return shown if len(good) == len(values) else f"{shown}, {len(values) - len(good)} failed"


def number(value: float) -> str:
    """Shows three digits, thousands as k and millions as M."""
    for unit, size in (("M", 1e6), ("k", 1e4)):
        if value >= size:
            scaled = value / (1e6 if unit == "M" else 1e3)
            return f"{scaled:.3g}{unit}" if scaled < 100 else f"{scaled:.0f}{unit}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def verdict_rows(verdicts: list[Verdict]) -> list[Row]:
    """Return a row per goal: the ratio with its spread, what is wanted, and whether it was reached."""
    rows: list[Row] = []
    for verdict in verdicts:
        goal = verdict.goal
        assert verdict.ratio is not None
        other = "itself without loss" if goal.keeps else PEERS[goal.against].title
        if goal.against_load:
            other += f" ({LOADS[goal.against_load].title})"
        rows.append(
            {
                "goal": goal.what,
                "against": other,
                "wanted": f"{'at most' if goal.at_most else 'at least'} {goal.wanted:g}",
                "ratio": f"{verdict.ratio:.3g} ({verdict.low:.3g}..{verdict.high:.3g})",
                "verdict": "met" if verdict.met else "missed",
            }
        )
    return rows


def remarks(results: Results) -> list[str]:
    """Says what the figures need to be read with."""
    machine = f"{platform.system()} {platform.release()}, Python {platform.python_version()}, {os.cpu_count()} cores"
    plan = f"{results.plan.rounds} rounds of {results.plan.seconds:g} s, interleaved"
    lines = [
        f"{machine}; {plan}; the median, and how far from it any round was.",
        "Ratios are of each round: their median (lowest..highest). Peak memory: sender + receiver, over all loads.",
        "mrp messages go over eight connections, bulk over udpc, mrp and pydevts as messages of 1,150 bytes.",
        *results.notes,
    ]
    if results.missing:
        lines.append(f"Not measured, because not installed: {', '.join(results.missing)} ({INSTALL}).")
    return lines + [f"FAILED {failure}" for failure in results.failures]


def as_json(results: Results, verdicts: list[Verdict]) -> dict[str, Any]:
    """Return everything that was measured, as plain values."""
    return {
        "machine": {
            "system": platform.platform(),
            "python": platform.python_version(),
            "cores": os.cpu_count(),
        },
        "rounds": results.plan.rounds,
        "seconds": results.plan.seconds,
        "environments": results.environments,
        "missing": results.missing,
        "notes": results.notes,
        "failures": results.failures,
        "goals": verdict_rows(verdicts),
        "cells": [
            {"environment": environment, "load": load, "peer": peer, "rounds": rounds}
            for (environment, load, peer), rounds in results.cells.items()
        ],
    }


def markdown(results: Results, verdicts: list[Verdict]) -> str:
    """Writes the tables as Markdown."""
    parts = [
        f"## {title[0].upper()}{title[1:]}\n\n{markdown_table(figures(results, title))}"
        for title in results.environments
    ]
    parts.append(f"## Goals\n\n{markdown_table(verdict_rows(verdicts))}")
    parts.append("\n".join(f"- {line}" for line in remarks(results)))
    return "\n\n".join(parts) + "\n"


def markdown_table(rows: list[Row]) -> str:
    """Writes rows as a table."""
    if not rows:
        return "(nothing)"
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    lines += ["| " + " | ".join(map(str, row.values())) + " |" for row in rows]
    return "\n".join(lines)
