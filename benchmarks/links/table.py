"""Tables for people and programs: figures by link, the verdict on every goal, and how exact the emulator was."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.links.peers import MESSAGE, STREAM, TRICKLE, Entry, entries
from benchmarks.links.rounds import Key, Results
from benchmarks.links.rows import ROWS, Row
from benchmarks.transport.table import markdown_table

Shown = Mapping[str, object]

BULK, SMALL = "rup", "udpc"
"""Who carries bulk and who small messages: fixed beforehand."""
SHARE_OF_LINK, SHARE_OF_BAD_LINK, MODEST_LOSS_PERCENT = 0.85, 0.75, 1.0
SHARE_OF_BBR = 0.95
LATER_AT_MOST = 1.05


def figures(results: Results, row: Row) -> list[Shown]:
    """Return a row per peer: the medians of the rounds."""
    found: list[Shown] = []
    for entry in measured(results, row):
        bulk = [one / row.bytes_per_s for one in results.figures(Key(row.name, STREAM, entry.peer.name))]
        trickle = Key(row.name, TRICKLE, entry.peer.name)
        found.append(
            {
                "peer": entry.peer.title,
                "bulk, share of the link": _shown(bulk, ".2f"),
                "1 MB, ms": _shown(results.figures(Key(row.name, MESSAGE, entry.peer.name)), ",.0f"),
                "small p50, ms": _shown(results.figures(trickle), ",.0f"),
                "small p99, ms": _shown(results.figures(trickle, "p99"), ",.0f"),
                "lost": _shown(results.figures(trickle, "lost"), ".0f"),
            }
        )
    return found


def measured(results: Results, row: Row) -> list[Entry]:
    """Return the peers that have a cell on a link."""
    names = {key.peer for key in results.cells if key.row == row.name}
    return [entry for entry in entries(row) if entry.peer.name in names]


def _shown(values: list[float], form: str) -> str:
    if not values:
        return "-"
    spread = f" ({min(values):{form}}..{max(values):{form}})" if len(values) > 1 else ""
    return f"{median(values):{form}}{spread}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a goal."""

    link: str
    goal: str
    wanted: float
    found: float
    at_most: bool = False

    @property
    def met(self) -> bool:
        """Whether it was reached."""
        return self.found <= self.wanted if self.at_most else self.found >= self.wanted

    def row(self) -> Shown:
        """Return what is printed."""
        wanted = f"{'at most' if self.at_most else 'at least'} {self.wanted:g}"
        verdict = "met" if self.met else "missed"
        return {
            "link": self.link,
            "goal": self.goal,
            "wanted": wanted,
            "found": f"{self.found:.3g}",
            "verdict": verdict,
        }


def judge(results: Results) -> list[Verdict]:
    """Return the verdict on every goal that this run can tell about."""
    return [verdict for name in results.plan.rows for verdict in _judge(results, ROWS[name])]


def _judge(results: Results, row: Row) -> Iterator[Verdict]:
    bulk, late = _medians(results, row, STREAM, "rate"), _medians(results, row, TRICKLE, "p99")
    others = [entry.peer.name for entry in entries(row) if not entry.ours]
    if BULK in bulk:
        wanted = SHARE_OF_LINK if row.loss_percent <= MODEST_LOSS_PERCENT else SHARE_OF_BAD_LINK
        yield Verdict(row.title, f"{BULK}, bulk, share of the link", wanted, bulk[BULK] / row.bytes_per_s)
        for name in others:
            if name in bulk and (row.loss_percent or name == "tcp-bbr"):
                wanted = SHARE_OF_BBR if name == "tcp-bbr" else 1.0
                yield Verdict(row.title, f"{BULK}, bulk, against {name}", wanted, bulk[BULK] / bulk[name])
    if SMALL in late and row.loss_percent:
        for name in others:
            if name in late:
                goal = f"{SMALL}, small messages, p99 against {name}"
                yield Verdict(row.title, goal, LATER_AT_MOST, late[SMALL] / late[name], at_most=True)


def _medians(results: Results, row: Row, load: str, figure: str) -> dict[str, float]:
    found = {entry.peer.name: results.figures(Key(row.name, load, entry.peer.name), figure) for entry in entries(row)}
    return {name: median(values) for name, values in found.items() if values}


def exactness(results: Results) -> list[Shown]:
    """Return what the emulator did: how late packets left, what it lost by plan, and what the kernel dropped before."""
    found: list[Shown] = []
    for name, counts in results.links.items():
        total = {key: sum(one.get(key, 0) for one in counts) for key in {key for one in counts for key in one}}
        packets, delivered = total.get("packets", 0), total.get("delivered", 0)
        lost = total.get("loss", 0) + total.get("burst", 0)
        found.append(
            {
                "link": ROWS[name].title,
                "packets": f"{packets:,}",
                "lost by the link, %": f"{100 * lost / packets:.2f}" if packets else "-",
                "dropped by its queue, %": f"{100 * total.get('queue', 0) / packets:.2f}" if packets else "-",
                "late on average, µs": f"{total.get('late_us', 0) / delivered:.0f}" if delivered else "-",
                "dropped before it": total.get("device_dropped", 0),
            }
        )
    return found


def describe(row: Row) -> str:
    """Return a link in words."""
    losses = f"{row.loss_percent:g} % loss{' in bursts' if row.bursts else ''}" if row.loss_percent else "no loss"
    jitter = f", jitter up to {row.jitter_ms:g} ms" if row.jitter_ms else ""
    return f"{row.title}: {row.mbit_per_s:g} Mbit/s, {row.round_trip_ms:g} ms round trip, {losses}{jitter}"


def remarks(results: Results) -> list[str]:
    """Return what the figures need to be read with."""
    machine = f"{platform.system()} {platform.release()}, Python {platform.python_version()}, {os.cpu_count()} cores"
    settings = "TCP: buffers of two bandwidth-delay products; kcp: no-delay mode, windows of two; aioquic: CUBIC"
    plan = results.plan
    lines = [
        f"{machine}; {plan.rounds} rounds of {plan.seconds:g} s, interleaved; medians (lowest..highest).",
        "Losses and delays are the same in both directions; the queue holds one bandwidth-delay product.",
        f"{settings}; Fairway: controller=model.",
        "pyenet has a window of at most 64 kB, which no setting of the binding raises: it cannot fill a long link.",
        *results.notes,
    ]
    if results.missing:
        lines.append(f"Not measured, because not installed: {', '.join(results.missing)}.")
    return lines + [f"FAILED {failure}" for failure in results.failures]


def markdown(results: Results) -> str:
    """Return the tables as Markdown."""
    rows = [ROWS[name] for name in results.plan.rows]
    parts = [f"### {describe(row)}\n\n{markdown_table(figures(results, row))}" for row in rows]
    parts.append(f"### Goals\n\n{markdown_table([one.row() for one in judge(results)])}")
    parts.append(f"### The emulator\n\n{markdown_table(exactness(results))}")
    return "\n\n".join([*parts, "\n".join(f"- {line}" for line in remarks(results))]) + "\n"


def as_json(results: Results) -> dict[str, Any]:
    """Return everything that was measured, as plain values."""
    return {
        "rounds": results.plan.rounds,
        "seconds": results.plan.seconds,
        "cells": [{**key._asdict(), "rounds": rounds} for key, rounds in results.cells.items()],
        "goals": [dict(one.row()) for one in judge(results)],
        "emulator": exactness(results),
        "remarks": remarks(results),
    }
