"""Randomness comes in through the constructor: an interface, and a seeded generator of integers.

Endpoints hand machines a cryptographic source; the simulator hands them `Seeded`, so that a run is a function of its
seed on every machine. Chances are integers out of a million, never floats.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")

MILLION = 1_000_000
_MASK = (1 << 64) - 1


class RandomSource(Protocol):
    """A source of random integers."""

    def bits(self, count: int) -> int:
        """Draw an integer of `count` random bits."""
        ...

    def below(self, bound: int) -> int:
        """Draw an integer from 0 to bound - 1."""
        ...


class Seeded:
    """Draws the same integers for the same seed, everywhere (SplitMix64, public domain)."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def _next(self) -> int:
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def bits(self, count: int) -> int:
        value, have = self._next(), 64
        while have < count:
            value, have = (value << 64) | self._next(), have + 64
        return value >> (have - count)

    def below(self, bound: int) -> int:
        """Draw from 0 to bound - 1; the bias of a 64-bit product is below 2^-40 for the bounds used here."""
        return (self._next() * bound) >> 64

    def between(self, low: int, high: int) -> int:
        return low + self.below(high - low + 1)

    def happens(self, per_million: int) -> bool:
        """Answer yes in `per_million` of a million cases; draws nothing for 0, so that a switched-off fault
        does not move the faults that follow it."""
        return per_million > 0 and self.below(MILLION) < per_million

    def choose(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def shuffle(self, items: MutableSequence[T]) -> None:
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]

    def fork(self, label: int) -> Seeded:
        """Return an independent generator, so that one consumer's draws do not move another's."""
        return Seeded(self._next() ^ (label * 0xD1342543DE82EF95))
