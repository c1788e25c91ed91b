"""The goals for the transport: ratios of two peers in the same round, judged by their median."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from benchmarks.transport.peers import PLAIN
from benchmarks.transport.rounds import Results


@dataclass(frozen=True, slots=True)
class Goal:
    """A ratio that is wanted: of one cell to another, at least or at most."""

    what: str
    peer: str
    load: str
    against: str
    wanted: float
    at_most: bool = False
    against_load: str | None = None
    """The load of the other side, where it differs."""
    loss_percent: float | None = None
    """Under this loss; None is the loopback device."""
    keeps: bool = False
    """The other side is the same cell without loss."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a goal. Without a ratio one of the two sides was not measured."""

    goal: Goal
    ratio: float | None
    low: float | None
    high: float | None

    @property
    def met(self) -> bool | None:
        if self.ratio is None:
            return None
        return self.ratio <= self.goal.wanted if self.goal.at_most else self.ratio >= self.goal.wanted


def goals() -> Iterator[Goal]:
    """Return the goals."""
    for against, wanted in (("tcp", 1.3), ("aioquic", 60), ("pyenet", 10), ("raw-gso", 0.45)):
        yield Goal("rup, bulk, GSO and GRO", "rup", "bulk", against, wanted)
    for against, wanted in (("raw", 0.75), ("aioquic", 10)):
        yield Goal("rup, bulk, portable path", "rup-portable", "bulk", against, wanted)
    for loss, share in ((1.0, 0.75), (5.0, 0.5)):
        yield Goal(
            f"rup, bulk, keeps under {loss:g} % loss", "rup", "bulk", "rup", share, loss_percent=loss, keeps=True
        )
        for against in ("tcp", "kcp", "aioquic", "pyenet"):
            yield Goal(f"rup, bulk, ahead under {loss:g} % loss", "rup", "bulk", against, 1.0, loss_percent=loss)
    for peer in ("udpc", "mrp"):
        for against in ("tcp", "aioquic"):
            yield Goal(f"{peer}, 64 B awaited, 256 in flight", peer, "awaited-64", against, 1.3)
    for peer in ("udpc", "mrp"):
        yield Goal(f"{peer}, 64 B in batches", peer, "batches-64", "pyenet", 2)
        yield Goal(f"{peer}, 64 B in batches", peer, "batches-64", "tcp", 8, against_load="awaited-64")
    for peer in PLAIN:
        yield Goal(f"{peer} over DTLS, bulk", f"{peer}-dtls", "bulk", "aioquic", 10 if peer == "rup" else 1)
        for load in ("awaited-64", "batches-64", "awaited-1024", "batches-1024"):
            yield Goal(f"{peer} over DTLS, {load}", f"{peer}-dtls", load, "aioquic", 1)
        yield Goal(f"{peer} over DTLS, ping-pong p50", f"{peer}-dtls", "ping-pong", "aioquic", 1, at_most=True)
        yield Goal(f"{peer}, 64 B awaited, over DTLS", f"{peer}-dtls", "awaited-64", peer, 0.4)
    for peer in ("udpc", "mrp", "rup", "pydevts"):
        for against, wanted in (("raw", 1.2), ("tcp", 0.8), ("aioquic", 0.3)):
            yield Goal(f"{peer}, ping-pong p50", peer, "ping-pong", against, wanted, at_most=True)


def judge(results: Results) -> list[Verdict]:
    """Return the verdict on every goal that this run could tell about."""
    verdicts = [_judge(goal, results) for goal in goals()]
    return [verdict for verdict in verdicts if verdict.ratio is not None]


def _judge(goal: Goal, results: Results) -> Verdict:
    here = _environment(results, goal.loss_percent)
    there = _environment(results, 0.0) if goal.keeps else here
    if here is None or there is None:
        return Verdict(goal, None, None, None)
    ours = results.rates(here, goal.load, goal.peer)
    theirs = results.rates(there, goal.against_load or goal.load, goal.against)
    ratios = [our / their for our, their in zip(ours, theirs, strict=False) if our and their]
    if not ratios:
        return Verdict(goal, None, None, None)
    return Verdict(goal, median(ratios), min(ratios), max(ratios))


def _environment(results: Results, loss_percent: float | None) -> str | None:
    """Finds an environment by its loss: its title ends in it."""
    for title in results.environments:
        if (title == "loopback") if loss_percent is None else title.endswith(f", {loss_percent:g} % loss"):
            return title
    return None
