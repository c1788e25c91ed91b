"""One direction of one link: what goes in comes out later, changed, twice, or not at all.

Probabilities are integers out of a million; no floats. Real UDP has a checksum, and so the damage that a link does to a
datagram is nearly always a loss. Three of the four protocols rely on that: a flipped bit in a udpc, mrp or rup header
would be a valid packet that says something else. Corruption is therefore a loss here ("checksum"), except for pydevts,
whose own CRC covers the body: there the damage arrives, in everything but the type, success and id fields, which no CRC
covers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from fairway.core.errors import BadOption
from fairway.core.random_source import MILLION, Seeded

PROBABILITIES = ("loss", "burst_enter", "burst_leave", "burst_loss", "duplicate", "reorder", "corrupt")


def check_values(asked: Any, probabilities: Sequence[str]) -> None:
    """Raise `BadOption` for a negative value, or a probability above a million."""
    for one in fields(asked):
        value = getattr(asked, one.name)
        if value < 0:
            raise BadOption(f"{one.name} is {value}; it must not be negative")
        if one.name in probabilities and value > MILLION:
            raise BadOption(f"{one.name} is {value} of a million; it must be at most {MILLION}, which is always")


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The behaviour of one direction of one link.

    Bursts follow Gilbert and Elliott: each datagram may move the link between a good and a bad state, and the bad one
    loses `burst_loss` of a million. Jitter alone keeps the order, as a queue does; `reorder` breaks it.
    """

    loss: int = 0
    burst_enter: int = 0
    burst_leave: int = 250_000
    burst_loss: int = 900_000
    duplicate: int = 0
    reorder: int = 0
    reorder_us: int = 30_000
    corrupt: int = 0
    delay_us: int = 10_000
    jitter_us: int = 0
    bandwidth_bytes_per_s: int = 0
    """0 is unlimited."""
    queue_bytes: int = 64 << 10
    """What waits in front of a limited link at the most; more is dropped."""

    def __post_init__(self) -> None:
        check_values(self, PROBABILITIES)

    def healed(self) -> Faults:
        """Return the same link without faults: only its delay stays."""
        return Faults(delay_us=self.delay_us)

    @property
    def only_loses(self) -> bool:
        """Whether datagrams that leave together and are not lost arrive together, unchanged and in order."""
        moved = self.burst_enter or self.duplicate or self.reorder or self.corrupt
        return not (moved or self.jitter_us or self.bandwidth_bytes_per_s)

    @property
    def longest_us(self) -> int:
        """For how long a datagram is under way at the most."""
        queue_us = self.queue_bytes * 1_000_000 // self.bandwidth_bytes_per_s if self.bandwidth_bytes_per_s else 0
        return self.delay_us + self.jitter_us + (self.reorder_us if self.reorder or self.duplicate else 0) + queue_us


def per_million(name: str, share: float) -> int:
    """Turn a share from 0 to 1 into parts of a million; raise `BadOption` for any other."""
    if not 0 <= share <= 1:
        raise BadOption(f"{name} is {share:g}; it must be from 0 to 1")
    return round(share * MILLION)


Arrivals = tuple[tuple[int, bytes], ...]
NOTHING: Arrivals = ()


class Pipe:
    """Carries datagrams in one direction; several links may share one, which makes it a common bottleneck."""

    __slots__ = ("_bad", "_covered_from", "_free_us", "_last_us", "_random", "faults", "happened")

    def __init__(self, faults: Faults, random: Seeded, happened: Counter[str], covered_from: int | None) -> None:
        self.faults = faults
        self.happened = happened
        self._random = random
        self._covered_from = covered_from
        """The byte from which on the protocol's own checksum covers a datagram; None when it has none."""
        self._bad = False
        self._free_us = 0
        self._last_us = 0

    def carry(self, data: bytes, now_us: int) -> Arrivals:
        """Return when, how often and in which shape a datagram arrives."""
        faults = self.faults
        if faults.loss and self._random.below(MILLION) < faults.loss:
            return self._lose("loss")
        if faults.burst_enter and self._burst():
            return self._lose("burst")
        leaves_us = now_us
        if faults.bandwidth_bytes_per_s:
            if not self._queued(len(data), now_us):
                return self._lose("queue")
            leaves_us = self._free_us
        if faults.corrupt and self._random.below(MILLION) < faults.corrupt:
            if self._covered_from is None:
                return self._lose("checksum")
            data = self._damaged(data)
        arrival_us = self._arrival_us(leaves_us)
        if faults.duplicate and self._random.below(MILLION) < faults.duplicate:
            self.happened["duplicate"] += 1
            return ((arrival_us, data), (arrival_us + self._random.below(faults.reorder_us + 1), data))
        return ((arrival_us, data),)

    def carry_together(self, count: int, now_us: int) -> tuple[int, list[int]]:
        """Return, of datagrams that leave together on a link that only loses, when the others arrive and which are
        lost."""
        loss, below = self.faults.loss, self._random.below
        lost = [number for number in range(count) if below(MILLION) < loss] if loss else []
        if lost:
            self.happened["loss"] += len(lost)
        self._last_us = max(self._last_us, now_us + self.faults.delay_us)
        return self._last_us, lost

    def waiting_us(self, now_us: int) -> int:
        """Return how long what waits in the queue takes."""
        return max(0, self._free_us - now_us)

    def _lose(self, reason: str) -> Arrivals:
        self.happened[reason] += 1
        return NOTHING

    def _burst(self) -> bool:
        """Move between the good and the bad state, and return whether this datagram is lost in a bad one."""
        faults = self.faults
        turn = faults.burst_leave if self._bad else faults.burst_enter
        if self._random.happens(turn):
            self._bad = not self._bad
        return self._bad and self._random.happens(faults.burst_loss)

    def _queued(self, size: int, now_us: int) -> bool:
        """Join the queue in front of the link, unless it is full."""
        rate = self.faults.bandwidth_bytes_per_s
        starts_us = max(self._free_us, now_us)
        if (starts_us - now_us) * rate > self.faults.queue_bytes * 1_000_000:
            return False
        self._free_us = starts_us + (size * 1_000_000 + rate - 1) // rate
        return True

    def _arrival_us(self, leaves_us: int) -> int:
        faults = self.faults
        arrival_us = leaves_us + faults.delay_us
        if faults.jitter_us:
            arrival_us += self._random.below(faults.jitter_us + 1)
        if faults.reorder and self._random.below(MILLION) < faults.reorder:
            self.happened["reorder"] += 1
            return arrival_us + self._random.below(faults.reorder_us + 1)
        if arrival_us < self._last_us:
            return self._last_us
        self._last_us = arrival_us
        return arrival_us

    def _damaged(self, data: bytes) -> bytes:
        """Flip one to three bits where the protocol's checksum sees it, or cut the end off."""
        self.happened["damage"] += 1
        if self._random.happens(300_000):
            return data[: self._random.below(len(data))] if data else data
        damaged = bytearray(data)
        covered = len(data) - (self._covered_from or 0)
        for _ in range(self._random.between(1, 3) if covered > 0 else 0):
            damaged[-1 - self._random.below(covered)] ^= 1 << self._random.below(8)
        return bytes(damaged)
