"""The benchmark on links: every peer under every load on every link, the tables, and the goals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from benchmarks.frame import INSTALL, Goal, Key, Report, Results, Row, Tables, Task, chosen, measured, ratios
from benchmarks.links.emulator import link
from benchmarks.links.peers import (
    LOADS,
    MESSAGE,
    PAIRS,
    REQUEST,
    ROWS,
    SHARED,
    STREAM,
    TRICKLE,
    Entry,
    Link,
    entries,
    loads,
)
from benchmarks.links.picture import draw
from benchmarks.transport.loads import Load
from benchmarks.transport.pair import Cell, run_cell

LIMIT_S = 120.0
"""A cell that takes so much longer than it was asked for has failed."""
BULK, SMALL = "rup", "udpc"
"""Who carries bulk and who small messages: fixed beforehand."""
SHARE_OF_LINK, SHARE_OF_BAD_LINK, MODEST_LOSS = 0.85, 0.75, 0.01
SHARE_OF_BBR = 0.95
LATER_AT_MOST = 1.05
PEERS = [entry.peer.name for entry in entries(next(iter(ROWS.values())))]


@dataclass(frozen=True, slots=True)
class Plan:
    rows: Sequence[str]
    peers: Sequence[str]
    loads: Sequence[str]


def choose(only: str) -> Plan:
    """Return the links, peers and loads that are named; all of a kind of which none is."""
    return Plan(*chosen(only, list(ROWS), PEERS, LOADS))


def cells(plan: Plan) -> Iterator[tuple[Link, Entry, Load]]:
    """Return what is measured in one round: peers next to each other, so that a busy minute hits all alike."""
    for row in (ROWS[name] for name in plan.rows):
        for name in plan.loads:
            for entry in (one for one in entries(row) if one.peer.name in plan.peers):
                yield from ((row, entry, load) for load in loads(entry, row) if load.name == name)


def pairs(plan: Plan) -> Iterator[tuple[Link, Entry, Entry]]:
    """Return who share a link in one round."""
    for row in (ROWS[name] for name in plan.rows if SHARED in plan.loads):
        by_name = {entry.peer.name: entry for entry in entries(row)}
        for one, other in PAIRS:
            if {one, other} <= set(plan.peers):
                yield row, by_name[one], by_name[other]


def run(plan: Plan, results: Results, report: Report) -> None:
    """Measure what the plan asks for, into the results as it goes; raise `NotPermitted`."""
    wanted = [(row, entry, load) for row, entry, load in cells(plan) if entry.peer.installed]
    results.missing.update({entry.peer.name: INSTALL for _, entry, _ in cells(plan) if not entry.peer.installed})
    turns = [
        [
            Task(
                Key(row.name, load.name, entry.peer.name),
                f"{row.title}: {load.title}: {entry.peer.title}",
                partial(_measure, results, row, entry, load, turn + 1),
            )
            for row, entry, load in wanted
        ]
        + [
            Task(
                Key(row.name, SHARED, f"{one.peer.name} and {other.peer.name}"),
                f"{row.title}: {one.peer.title} and {other.peer.title}",
                partial(_measure_pair, results, row, (one, other), turn + 1),
            )
            for row, one, other in pairs(plan)
        ]
        for turn in range(results.rounds)
    ]
    results.run(turns, report)


def _measure(results: Results, row: Link, entry: Entry, load: Load, seed: int) -> dict[str, Any]:
    """Measure one cell on a link of its own, which the seed decides."""
    seconds = results.seconds
    with link(row, seed, results.more.setdefault("emulator", {}).setdefault(row.name, [])) as between:
        return run_cell(Cell(entry.peer, load, between), seconds, seed, limit_s=seconds + LIMIT_S)


def _measure_pair(results: Results, row: Link, both: Sequence[Entry], seed: int) -> dict[str, Any]:
    """Measure two flows in bulk at once; Jain's index of their rates is 1 where they are equal, a half where one has
    everything."""
    seconds = results.seconds
    with (
        link(row, seed, results.more.setdefault("emulator", {}).setdefault(row.name, [])) as between,
        ThreadPoolExecutor(len(both)) as pool,
    ):
        flows = [Cell(entry.peer, next(loads(entry, row)), between) for entry in both]
        found = pool.map(lambda flow: run_cell(flow, seconds, seed, limit_s=seconds + LIMIT_S), flows)
        rates = [one["rate"] for one in found]
    index = sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates)) if any(rates) else 0.0
    return {"rate": rates[0], "other": rates[1], "jain": index}


def goals(plan: Plan, results: Results) -> Iterator[Goal]:
    """Judge rup in bulk against the link and the others, and udpc's latest small messages against theirs."""
    for row in (ROWS[name] for name in plan.rows):
        bulk, late = f"{row.title}: {BULK}, bulk", f"{row.title}: {SMALL}, small messages, p99"
        ours = results.figures(row.name, STREAM, BULK)
        wanted = SHARE_OF_LINK if row.loss <= MODEST_LOSS else SHARE_OF_BAD_LINK
        yield Goal(bulk, "the link", wanted, [one / row.bytes_per_s for one in ours if one])
        for peer in (entry.peer.name for entry in entries(row) if not entry.ours):
            if row.loss or peer == "tcp-bbr":
                wanted = SHARE_OF_BBR if peer == "tcp-bbr" else 1.0
                yield Goal(bulk, peer, wanted, ratios(ours, results.figures(row.name, STREAM, peer)))
            if row.loss:
                both = [results.figures(row.name, TRICKLE, name, "p99") for name in (SMALL, peer)]
                yield Goal(late, peer, LATER_AT_MOST, ratios(*both), at_most=True)


def show(plan: Plan, results: Results) -> Tables:
    """Return a table per link, the goals, and how exact the emulator was."""
    tables = {describe(ROWS[name]): _figures(results, ROWS[name]) for name in plan.rows}
    if shared := list(_shared(plan, results)):
        tables["Two flows at once"] = shared
    tables["Goals"] = [goal.row() for goal in measured(goals(plan, results))]
    tables["The emulator"] = [_exactness(name, counts) for name, counts in results.more.get("emulator", {}).items()]
    return Tables(
        tables,
        results.remarks(
            "Losses and delays are the same in both directions; the queue holds one bandwidth-delay product.",
            "TCP: buffers of two bandwidth-delay products; kcp: no-delay mode, windows of two; aioquic: CUBIC; "
            "Fairway: controller=model.",
            "pyenet has a window of at most 64 kB, which no setting of the binding raises: it cannot fill a long link.",
        ),
        _picture(plan, results),
    )


def _picture(plan: Plan, results: Results) -> str:
    shares: dict[str, dict[str, float]] = {}
    for row in (ROWS[name] for name in plan.rows):
        for entry in entries(row):
            if found := [rate for rate in results.figures(row.name, STREAM, entry.peer.name) if rate]:
                shares.setdefault(row.title, {})[entry.peer.title] = median(found) / row.bytes_per_s
    ours = frozenset(entry.peer.title for entry in entries(ROWS[plan.rows[0]]) if entry.ours)
    return draw(shares, ours) if shares else ""


def _figures(results: Results, row: Link) -> list[Row]:
    names = {key.peer for key in results.cells if key.where == row.name}
    return [
        {
            "peer": entry.peer.title,
            "bulk, share of the link": _shown(results, row, STREAM, entry, ".2f", scale=1 / row.bytes_per_s),
            "1 MB, ms": _shown(results, row, MESSAGE, entry, ",.0f"),
            "small p50, ms": _shown(results, row, TRICKLE, entry, ",.0f"),
            "small p99, ms": _shown(results, row, TRICKLE, entry, ",.0f", "p99"),
            "lost": _shown(results, row, TRICKLE, entry, ".0f", "lost"),
            "request p50, ms": _shown(results, row, REQUEST, entry, ",.0f"),
            "request p99, ms": _shown(results, row, REQUEST, entry, ",.0f", "p99"),
        }
        for entry in entries(row)
        if entry.peer.name in names
    ]


def _shared(plan: Plan, results: Results) -> Iterator[Row]:
    for row, one, other in pairs(plan):
        name = f"{one.peer.name} and {other.peer.name}"
        share = partial(_spread, form=".2f", scale=1 / row.bytes_per_s)
        yield {
            "link": row.title,
            "flows": f"{one.peer.title}, {other.peer.title}",
            "share of the first": share(results.figures(row.name, SHARED, name)),
            "share of the other": share(results.figures(row.name, SHARED, name, "other")),
            "Jain's index": _spread(results.figures(row.name, SHARED, name, "jain"), ".2f"),
        }


def _shown(
    results: Results, row: Link, load: str, entry: Entry, form: str, figure: str = "rate", scale: float = 1.0
) -> str:
    return _spread(results.figures(row.name, load, entry.peer.name, figure), form, scale)


def _spread(found: Sequence[float | None], form: str, scale: float = 1.0) -> str:
    """Return the median, and the lowest and the highest round."""
    values = [value * scale for value in found if value is not None]
    if not values:
        return "-"
    return f"{median(values):{form}}" + (f" ({min(values):{form}}..{max(values):{form}})" if len(values) > 1 else "")


def _exactness(name: str, counts: Sequence[dict[str, int]]) -> Row:
    """Return what the emulator did: how late packets left, what it lost by plan, and what the kernel dropped before."""
    total = {key: sum(one.get(key, 0) for one in counts) for key in {key for one in counts for key in one}}
    packets, delivered = total.get("packets", 0), total.get("delivered", 0)
    lost = total.get("loss", 0) + total.get("burst", 0)
    return {
        "link": ROWS[name].title,
        "packets": f"{packets:,}",
        "lost by the link, %": f"{100 * lost / packets:.2f}" if packets else "-",
        "dropped by its queue, %": f"{100 * total.get('queue', 0) / packets:.2f}" if packets else "-",
        "late on average, µs": f"{total.get('late_us', 0) / delivered:.0f}" if delivered else "-",
        "dropped before it": total.get("device_dropped", 0),
    }


def describe(row: Link) -> str:
    losses = f"{100 * row.loss:g} % loss{' in bursts' if row.bursts else ''}" if row.loss else "no loss"
    jitter = f", jitter up to {row.jitter_ms:g} ms" if row.jitter_ms else ""
    return f"{row.title}: {row.rate_mbit:g} Mbit/s, {row.round_trip_ms:g} ms round trip, {losses}{jitter}"
