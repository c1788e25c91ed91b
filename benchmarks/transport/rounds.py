"""The transport benchmark: which cells there are, the tables of each environment, and the goals."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory

from benchmarks.frame import (
    INSTALL,
    Goal,
    Key,
    Report,
    Results,
    Row,
    Tables,
    Task,
    measured,
    ratios,
    spread,
)
from benchmarks.namespaces import NotPermitted, namespaces
from benchmarks.transport.environments import LOOPBACK, Environment, lossy_environments
from benchmarks.transport.loads import LOADS, Load
from benchmarks.transport.pair import Cell, run_cell
from benchmarks.transport.peers import PEERS, PLAIN, Peer
from benchmarks.transport.peers.endpoints import KEYS

LOOPBACK_TITLE = LOOPBACK.title


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int = 5
    seconds: float = 0.5
    losses: Sequence[float] = (1.0, 5.0)
    peers: Sequence[str] = tuple(PEERS)
    loads: Sequence[str] = tuple(LOADS)
    prefer_relay: bool = False

    def rounds_in(self, environment: Environment) -> int:
        """Return how many rounds there are: with loss, which takes long, half as many."""
        return self.rounds if environment is LOOPBACK else (self.rounds + 1) // 2


def run(plan: Plan, results: Results, report: Report) -> None:
    """Measure what the plan asks for, into the results as it goes."""
    results.missing.update({name: INSTALL for name in plan.peers if not PEERS[name].installed})
    with ExitStack() as stack:
        os.environ[KEYS] = stack.enter_context(TemporaryDirectory())
        environments = [LOOPBACK, *_lossy(plan, results, stack)]
        results.more["environments"] = [environment.title for environment in environments]
        turns = [
            [
                Task(
                    Key(where.title, cell.load.name, cell.peer.name),
                    f"{where.title}: {cell.load.title}: {cell.peer.title}",
                    partial(run_cell, cell, plan.seconds, seed=turn + 1),
                )
                for where in environments
                if turn < plan.rounds_in(where)
                for cell in cells(plan, where)
            ]
            for turn in range(plan.rounds)
        ]
        results.run(turns, report)


def _lossy(plan: Plan, results: Results, stack: ExitStack) -> list[Environment]:
    losses = [loss for loss in plan.losses if loss]
    if not losses:
        return []
    reason = "as asked for"
    if not plan.prefer_relay:
        try:
            return lossy_environments(losses, stack.enter_context(namespaces()))
        except NotPermitted as refused:
            reason = f"no network namespaces: {refused}"
    results.notes.append(f"Loss is made by a relay process ({reason}), without TCP.")
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


def goals(results: Results) -> Iterator[Goal]:
    """Judge each goal by the ratios of two peers in the same round."""

    def ratio(
        what: str,
        peer: str,
        load: str,
        against: str,
        wanted: float,
        where: str = LOOPBACK_TITLE,
        *,
        at_most: bool = False,
    ) -> Goal:
        values = ratios(results.figures(where, load, peer), results.figures(where, load, against))
        return Goal(what, PEERS[against].title, wanted, values, at_most)

    for against, wanted in (("tcp", 1.3), ("aioquic", 60), ("pyenet", 10), ("raw-gso", 0.45)):
        yield ratio("rup, bulk, GSO and GRO", "rup", "bulk", against, wanted)
    for against, wanted in (("raw", 0.75), ("aioquic", 10)):
        yield ratio("rup, bulk, portable path", "rup-portable", "bulk", against, wanted)
    for peer in ("udpc", "mrp"):
        for against in ("tcp", "aioquic"):
            yield ratio(f"{peer}, 64 B awaited, 256 in flight", peer, "awaited-64", against, 1.3)
        yield ratio(f"{peer}, 64 B in batches", peer, "batches-64", "pyenet", 2)
        batches = results.figures(LOOPBACK_TITLE, "batches-64", peer)
        values = ratios(batches, results.figures(LOOPBACK_TITLE, "awaited-64", "tcp"))
        yield Goal(f"{peer}, 64 B in batches", "asyncio TCP (64 B awaited)", 8, values)
    for peer in PLAIN:
        for load in LOADS:
            wanted = 10 if (peer, load) == ("rup", "bulk") else 1
            what = f"{peer} over DTLS, {LOADS[load].title}"
            yield ratio(what, f"{peer}-dtls", load, "aioquic", wanted, at_most=LOADS[load].kind == "ping")
        yield ratio(f"{peer} over DTLS, 64 B awaited", f"{peer}-dtls", "awaited-64", peer, 0.4)
    for peer in PLAIN:
        for against, wanted in (("raw", 1.2), ("tcp", 0.8), ("aioquic", 0.3)):
            yield ratio(f"{peer}, ping-pong p50", peer, "ping-pong", against, wanted, at_most=True)
    for loss, share in ((1.0, 0.75), (5.0, 0.5)):
        lossy, clean = _with_loss(results, loss), _with_loss(results, 0.0)
        values = ratios(results.figures(lossy, "bulk", "rup"), results.figures(clean, "bulk", "rup"))
        yield Goal(f"rup, bulk, keeps under {loss:g} % loss", "itself without loss", share, values)
        for against in ("tcp", "kcp", "aioquic", "pyenet"):
            yield ratio(f"rup, bulk, ahead under {loss:g} % loss", "rup", "bulk", against, 1.0, lossy)


def _with_loss(results: Results, percent: float) -> str:
    """Return the environment with a loss: its title ends in it."""
    ending = f", {percent:g} % loss"
    return next((key.where for key in results.cells if key.where.endswith(ending)), "")


def show(plan: Plan, results: Results) -> Tables:
    """Return the figures of each environment, and the goals."""
    tables = {where: _figures(plan, results, where) for where in dict.fromkeys(key.where for key in results.cells)}
    tables["Goals"] = [goal.row() for goal in measured(goals(results))]
    return Tables(
        tables,
        results.remarks(
            "Goals are ratios of each round: their median (lowest..highest). "
            "Peak memory: sender + receiver, over all loads.",
            "mrp has eight connections of one socket; bulk over udpc, mrp, pydevts is messages of 1,149 bytes.",
        ),
    )


SHORT = {
    "bulk": "bulk MB/s",
    "awaited-64": "64B each/s",
    "batches-64": "64B batch/s",
    "awaited-1024": "1KB each/s",
    "batches-1024": "1KB batch/s",
    "ping-pong": "ping µs",
}


def _figures(plan: Plan, results: Results, where: str) -> list[Row]:
    """Return a row per peer and a column per load that was measured."""
    there = [key for key in results.cells if key.where == where]
    loads = [load for load in plan.loads if any(key.load == load for key in there)]
    rows: list[Row] = []
    for peer in (peer for peer in plan.peers if any(key.peer == peer for key in there)):
        row: dict[str, object] = {"peer": PEERS[peer].title}
        for load in loads:
            row[SHORT[load]] = spread(results.figures(where, load, peer))
            if load == "ping-pong":
                row["p99 µs"] = spread(results.figures(where, load, peer, "p99"))
            if load == "bulk":
                row["CPU s/GB"] = spread(results.figures(where, load, peer, "cpu_s_per_gb"))
        sides = [
            [one for load in loads for one in results.figures(where, load, peer, side) if one is not None]
            for side in ("sender_peak_mb", "receiver_peak_mb")
        ]
        row["peak MB"] = "+".join(f"{max(side):.0f}" if side else "-" for side in sides)
        rows.append(row)
    return rows
