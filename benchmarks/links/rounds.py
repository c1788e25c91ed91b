"""The run: every peer under every load on every link, interleaved, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from benchmarks.links.link import link
from benchmarks.links.peers import LOADS, Entry, entries, loads
from benchmarks.links.rows import ROWS, Row
from benchmarks.transport.environments import Environment
from benchmarks.transport.loads import Load
from benchmarks.transport.pair import Cell, CellFailed, run_cell
from fairway.core.errors import BadOption

LIMIT_S = 120.0
"""A cell that takes so much longer than it was asked for has failed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure."""

    rounds: int = 5
    seconds: float = 20.0
    rows: Sequence[str] = tuple(ROWS)
    peers: Sequence[str] = ()
    """All of them, where none is named."""
    loads: Sequence[str] = ()


def choose(plan: Plan, only: str) -> Plan:
    """Return the plan with the links, peers and loads that are named; all of a kind of which none is."""
    names = [name.strip() for name in only.split(",") if name.strip()]
    peers = {entry.peer.name for row in ROWS.values() for entry in entries(row)}
    for name in names:
        if name not in {*ROWS, *peers, *LOADS}:
            known = ", ".join([*ROWS, *sorted(peers), *LOADS])
            raise BadOption(f"there is no link, peer or load {name!r}; known are {known}")
    rows = [name for name in ROWS if name in names] or list(ROWS)
    return replace(
        plan,
        rows=rows,
        peers=[name for name in names if name in peers],
        loads=[name for name in names if name in LOADS],
    )


class Key(NamedTuple):
    """One cell of the table."""

    row: str
    load: str
    peer: str


@dataclass(slots=True)
class Results:
    """What came of each cell, round by round; a round that failed is None."""

    plan: Plan
    cells: dict[Key, list[dict[str, Any] | None]] = field(default_factory=dict)
    links: dict[str, list[dict[str, int]]] = field(default_factory=dict)
    """What the emulator did to packets, by row: a count for each direction of each link."""
    missing: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def figures(self, key: Key, name: str = "rate") -> list[float]:
        """Return one figure of a cell in each round that did not fail."""
        return [float(one[name]) for one in self.cells.get(key, []) if one is not None]


def cells(plan: Plan) -> Iterator[tuple[Row, Entry, Load]]:
    """Return what is measured in one round: peers next to each other, so that a busy minute hits all alike."""
    for row in (ROWS[name] for name in plan.rows):
        wanted = [one for one in entries(row) if not plan.peers or one.peer.name in plan.peers]
        measured = [(row, entry, load) for entry in wanted for load in loads(entry, row)]
        for name in dict.fromkeys(load.name for _, _, load in measured):
            if not plan.loads or name in plan.loads:
                yield from (one for one in measured if one[2].name == name)


def run(results: Results, report: Callable[[str, int, int], None]) -> None:
    """Measure what the plan asks for, into the results as it goes; raise `NotPermitted`."""
    plan = results.plan
    planned = list(cells(plan))
    results.missing = sorted({entry.peer.name for _, entry, _ in planned if not entry.peer.installed})
    planned = [one for one in planned if one[1].peer.installed]
    for turn in range(plan.rounds):
        for number, (row, entry, load) in enumerate(planned if turn % 2 == 0 else planned[::-1]):
            report(f"{row.title}: {load.title}: {entry.peer.title}", turn * len(planned) + number, turns(results))
            key = Key(row.name, load.name, entry.peer.name)
            results.cells.setdefault(key, []).append(_measure(results, row, entry, load, turn + 1))


def turns(results: Results) -> int:
    """Return how many cells a run measures."""
    return results.plan.rounds * sum(entry.peer.installed for _, entry, _ in cells(results.plan))


def _measure(results: Results, row: Row, entry: Entry, load: Load, seed: int) -> dict[str, Any] | None:
    """Measure one cell on a link of its own, which the seed decides; `None` if it fails."""
    seconds = results.plan.seconds
    with link(row, seed) as up:
        between = Environment(
            row.title,
            receiver_host=up.receiver_host,
            sender_prefix=up.sender_prefix,
            receiver_prefix=up.receiver_prefix,
        )
        try:
            measured = run_cell(Cell(entry.peer, load, between), seconds, seed, limit_s=seconds + LIMIT_S)
        except CellFailed as reason:
            results.failures.append(f"round {seed}, {row.title}, {load.title}: {reason}")
            measured = None
    results.links.setdefault(row.name, []).extend(up.counts)
    return measured
