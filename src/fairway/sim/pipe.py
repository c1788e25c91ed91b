"""One direction of one link: what goes in comes out later, changed, twice, or not at all.

Real UDP has a checksum, and so the damage that a link does to a datagram is nearly always a loss. Three of the four
protocols rely on that: a flipped bit in a udpc, mrp or rup header would be a valid packet that says something else.
Corruption is therefore a loss here ("checksum"), except for pydevts, whose own CRC covers the body: there the damage
arrives, in everything but the type, success and id fields, which no CRC covers.
"""

from __future__ import annotations

from collections import Counter

from fairway.core.random_source import MILLION, Seeded
from fairway.sim.faults import Faults

Arrivals = tuple[tuple[int, bytes], ...]
NOTHING: Arrivals = ()


class Pipe:
    """Carries datagrams in one direction; several links may share one, which makes it a common bottleneck."""

    __slots__ = ("_bad", "_chance", "_covered_from", "_free_us", "_last_us", "faults", "happened")

    def __init__(self, faults: Faults, chance: Seeded, happened: Counter[str], covered_from: int | None) -> None:
        self.faults = faults
        self.happened = happened
        self._chance = chance
        self._covered_from = covered_from
        """The byte from which on the protocol's own checksum covers a datagram; None when it has none."""
        self._bad = False
        self._free_us = 0
        self._last_us = 0

    def carry(self, data: bytes, now_us: int) -> Arrivals:
        """Return when, how often and in which shape a datagram arrives."""
        faults = self.faults
        if faults.loss and self._chance.below(MILLION) < faults.loss:
            return self._lose("loss")
        if faults.burst_enter and self._burst():
            return self._lose("burst")
        leaves_us = now_us
        if faults.bandwidth_bytes_per_s:
            if not self._queued(len(data), now_us):
                return self._lose("queue")
            leaves_us = self._free_us
        if faults.corrupt and self._chance.below(MILLION) < faults.corrupt:
            if self._covered_from is None:
                return self._lose("checksum")
            data = self._damaged(data)
        arrival_us = self._arrival_us(leaves_us)
        if faults.duplicate and self._chance.below(MILLION) < faults.duplicate:
            self.happened["duplicate"] += 1
            return ((arrival_us, data), (arrival_us + self._chance.below(faults.reorder_us + 1), data))
        return ((arrival_us, data),)

    def carry_together(self, count: int, now_us: int) -> tuple[int, list[int]]:
        """Return, of datagrams that leave together on a link that only loses, when the others arrive and which are
        lost."""
        loss, below = self.faults.loss, self._chance.below
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
        """Moves between the good and the bad state, and returns whether this datagram is lost in a bad one."""
        faults = self.faults
        turn = faults.burst_leave if self._bad else faults.burst_enter
        if self._chance.happens(turn):
            self._bad = not self._bad
        return self._bad and self._chance.happens(faults.burst_loss)

    def _queued(self, size: int, now_us: int) -> bool:
        """Takes a place in the queue in front of the link, if there is one."""
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
            arrival_us += self._chance.below(faults.jitter_us + 1)
        if faults.reorder and self._chance.below(MILLION) < faults.reorder:
            self.happened["reorder"] += 1
            return arrival_us + self._chance.below(faults.reorder_us + 1)
        if arrival_us < self._last_us:
            return self._last_us
        self._last_us = arrival_us
        return arrival_us

    def _damaged(self, data: bytes) -> bytes:
        """Flips one to three bits where the protocol's checksum sees it, or cuts the end off."""
        self.happened["damage"] += 1
        if self._chance.happens(300_000):
            return data[: self._chance.below(len(data))] if data else data
        damaged = bytearray(data)
        covered = len(data) - (self._covered_from or 0)
        for _ in range(self._chance.between(1, 3) if covered > 0 else 0):
            damaged[-1 - self._chance.below(covered)] ^= 1 << self._chance.below(8)
        return bytes(damaged)
