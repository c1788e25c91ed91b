"""The run: which cells there are, in what order they are measured, and what came of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from benchmarks.namespaces import NotPermitted, namespaces
from benchmarks.transport.environments import LOOPBACK, Environment, lossy_environments
from benchmarks.transport.loads import LOADS, Load
from benchmarks.transport.pair import Cell, CellFailed, run_cell
from benchmarks.transport.peers import PEERS, Peer, missing

Key = tuple[str, str, str]
"""Environment, load, peer."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure."""

    rounds: int = 5
    seconds: float = 0.5
    losses: Sequence[float] = (1.0, 5.0)
    peers: Sequence[str] = tuple(PEERS)
    loads: Sequence[str] = tuple(LOADS)
    prefer_relay: bool = False

    def rounds_in(self, environment: Environment) -> int:
        """Return how many rounds there are: with loss, which takes long, half as many."""
        return self.rounds if environment is LOOPBACK else (self.rounds + 1) // 2


@dataclass(slots=True)
class Results:
    """What came of each cell, round by round; a round that failed is None."""

    plan: Plan
    environments: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    cells: dict[Key, list[dict[str, Any] | None]] = field(default_factory=dict)

    def rates(self, environment: str, load: str, peer: str, figure: str = "rate") -> list[float | None]:
        """Return one figure of a cell in each round."""
        return [one.get(figure) if one else None for one in self.cells.get((environment, load, peer), [])]


def run(results: Results, report: Callable[[str, int, int], None]) -> None:
    """Measures what the plan asks for, into the results as it goes; `report` hears the name of each cell, its number,
    and how many there are."""
    plan = results.plan
    results.missing = [name for name in missing() if name in plan.peers]
    with ExitStack() as stack:
        environments = [LOOPBACK, *_lossy(plan, results, stack)]
        results.environments = [environment.title for environment in environments]
        total = sum(plan.rounds_in(environment) * len([*cells(plan, environment)]) for environment in environments)
        number = 0
        for turn in range(plan.rounds):
            for environment in environments:
                if turn >= plan.rounds_in(environment):
                    continue
                environment.prepare()
                for cell in _in_turn(cells(plan, environment), turn):
                    number += 1
                    report(f"{environment.title}: {cell.load.title}: {cell.peer.title}", number, total)
                    _measure(cell, turn, plan, results)


def _lossy(plan: Plan, results: Results, stack: ExitStack) -> list[Environment]:
    losses = [loss for loss in plan.losses if loss]
    if not losses:
        return []
    if not plan.prefer_relay:
        try:
            return lossy_environments(losses, stack.enter_context(namespaces()))
        except NotPermitted as reason:
            results.notes.append(f"No network namespaces ({reason}): loss is made by a relay process, without TCP.")
    else:
        results.notes.append("Loss is made by a relay process, as asked for, without TCP.")
    return lossy_environments(losses, None)


def cells(plan: Plan, environment: Environment) -> Iterator[Cell]:
    """Return the cells of one environment: a load at a time, its peers next to each other."""
    for load in (LOADS[name] for name in plan.loads):
        for peer in (PEERS[name] for name in plan.peers):
            if _fits(peer, load, environment):
                yield Cell(peer, load, environment)


def _fits(peer: Peer, load: Load, environment: Environment) -> bool:
    """Without loss the lossy way is measured in bulk alone: that is what is kept under loss."""
    return bool(
        peer.installed
        and load.name in peer.loads
        and (peer.reliable or environment is LOOPBACK)
        and (environment.loss_percent or environment is LOOPBACK or load.kind == "bulk")
        and (peer.datagrams or not environment.datagrams_only)
    )


def _in_turn(forward: Iterator[Cell], turn: int) -> list[Cell]:
    """Goes backwards in every other round, so that nobody is always measured after the same neighbour."""
    ordered = list(forward)
    return ordered if turn % 2 == 0 else ordered[::-1]


def _measure(cell: Cell, turn: int, plan: Plan, results: Results) -> None:
    key = (cell.environment.title, cell.load.name, cell.peer.name)
    try:
        result: dict[str, Any] | None = run_cell(cell, plan.seconds, seed=turn + 1)
    except CellFailed as reason:
        results.failures.append(f"round {turn + 1}, {cell.environment.title}: {reason}")
        result = None
    results.cells.setdefault(key, []).append(result)
