"""The faults of a run, drawn from a seed before anything starts.

Two lanes run beside one another: faults of the gateway, each a second or two after the last, and of the stream,
which takes ten seconds to start. In each lane crash points and free instants are drawn like cards: all of them come
before one comes again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from fairway.store.crashpoints import GATEWAY_POINTS, STREAM_POINTS

GATEWAY, STREAM, BOTH, COMPACTION = "gateway", "stream", "both", "compaction"
KILL, PAUSE, FILL = "kill", "pause", "fill"

GATEWAY_PER_STREAM = 5
"""Kills of the gateway for one of the stream."""
INSTANTS = 5
"""Free instants among the cards of a lane of crash points."""
PAUSE_EVERY, FILL_EVERY = 7, 9
"""A pause, or a full disk, before every so-manieth kill of the gateway."""

PASSES_MAX = {
    "before-commit": 120,
    "after-commit": 120,
    "table-committed": 6,
    "table-synced": 6,
    "compacted": 1,
    "checkpointed": 1,
    "segment-removed": 1,
}
PASSES_MAX_ELSE = 3

COMPACTION_CRASHES = ("compacted", "checkpointed")
STREAM_CRASHES = tuple(point for point in STREAM_POINTS if point not in COMPACTION_CRASHES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is done."""

    target: str
    how: str = KILL
    point: str = ""
    """A crash point with the number of its pass; empty is a free instant."""
    after_s: float = 0.0
    """From serving, or from the first batch, to the free instant."""
    for_s: float = 0.0
    """How long a pause or a full disk lasts."""

    def __str__(self) -> str:
        when = f"at {self.point}" if self.point else f"after {self.after_s:.2f} s"
        return f"{self.how} {self.target} {when}" + (f" for {self.for_s:.1f} s" if self.for_s else "")


@dataclass(frozen=True, slots=True)
class Plan:
    """The faults of both lanes, in order."""

    gateway: tuple[Fault, ...]
    stream: tuple[Fault, ...]

    @property
    def kills(self) -> int:
        return sum(fault.how == KILL for fault in (*self.gateway, *self.stream))

    def lines(self) -> list[str]:
        """Return the plan as it is printed."""
        found = [f"gateway {number}: {fault}" for number, fault in enumerate(self.gateway)]
        return found + [f"stream {number}: {fault}" for number, fault in enumerate(self.stream)]


def draw(kills: int, seed: int, of_stream: int | None = None) -> Plan:
    """Draw a plan with so many kills, of which so many fall on stream and compaction; the same for the same seed."""
    random = Random(seed)
    if of_stream is None:
        of_stream = max(1, kills // (1 + GATEWAY_PER_STREAM))
    of_stream = min(kills, of_stream)
    return Plan(tuple(_gateway(random, kills - of_stream)), tuple(_stream(random, of_stream)))


def _drawn(random: Random, cards: Sequence[str], count: int) -> list[str]:
    drawn: list[str] = []
    while len(drawn) < count:
        drawn += random.sample(cards, len(cards))
    return drawn[:count]


def _at(random: Random, point: str) -> str:
    return f"{point}:{random.randint(1, PASSES_MAX.get(point, PASSES_MAX_ELSE))}"


def _gateway(random: Random, kills: int) -> list[Fault]:
    faults: list[Fault] = []
    for number, card in enumerate(_drawn(random, (*GATEWAY_POINTS, *[""] * INSTANTS), kills)):
        if number % PAUSE_EVERY == PAUSE_EVERY - 1:
            faults.append(_lasting(random, GATEWAY, PAUSE, 3.0))
        if number % FILL_EVERY == FILL_EVERY - 1:
            faults.append(_lasting(random, "disk", FILL, 2.0))
        if card:
            faults.append(Fault(target=GATEWAY, point=_at(random, card)))
        else:
            faults.append(Fault(target=GATEWAY, after_s=random.uniform(0.0, 1.5)))
    return faults


def _stream(random: Random, kills: int) -> list[Fault]:
    faults: list[Fault] = []
    cards = (*STREAM_CRASHES, *COMPACTION_CRASHES, STREAM, BOTH)
    for number, card in enumerate(_drawn(random, cards, kills)):
        if number % PAUSE_EVERY == PAUSE_EVERY - 1:
            faults.append(_lasting(random, STREAM, PAUSE, 3.0))
        if card in (STREAM, BOTH):
            faults.append(Fault(target=card, after_s=random.uniform(0.0, 2.0)))
        else:
            target = COMPACTION if card in COMPACTION_CRASHES else STREAM
            faults.append(Fault(target=target, point=_at(random, card)))
    return faults


def _lasting(random: Random, target: str, how: str, most_s: float) -> Fault:
    return Fault(target=target, how=how, after_s=random.uniform(0.2, 1.0), for_s=random.uniform(0.5, most_s))
