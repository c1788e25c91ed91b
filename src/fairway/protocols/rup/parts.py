"""Which parts of a message have arrived: all below a mark, and ranges above it.

In-order arrival moves the mark and nothing else. Each range above the mark has a gap before it; the time at which the
first part beyond that gap came is kept with the range.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple


class Gap(NamedTuple):
    """Missing parts `first` to `end - 1`, with later parts beyond them."""

    first: int
    end: int
    seen_us: int
    """When the first later part came."""
    later: int
    """How many later parts have come, counted no further than was asked."""


class Parts:
    """The parts that have arrived, as ranges of indices."""

    __slots__ = ("_ends", "_seen_us", "_starts", "count", "mark")

    def __init__(self) -> None:
        self.mark = 0
        """All parts below have arrived."""
        self.count = 0
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._seen_us: list[int] = []

    @property
    def top(self) -> int:
        """One more than the highest part that has arrived."""
        return self._ends[-1] if self._ends else self.mark

    @property
    def gaps(self) -> int:
        return len(self._starts)

    def __contains__(self, index: int) -> bool:
        if index < self.mark:
            return True
        at = bisect_right(self._starts, index) - 1
        return at >= 0 and index < self._ends[at]

    def makes_gap(self, index: int) -> bool:
        """Return whether a missing part, once here, would leave one more gap than there is."""
        if index == self.mark:
            return False
        at = bisect_right(self._starts, index)
        after_range = at > 0 and self._ends[at - 1] == index
        before_range = at < len(self._starts) and self._starts[at] == index + 1
        return not (after_range or before_range)

    def add(self, first: int, count: int, now_us: int) -> None:
        """Note parts none of which was here."""
        end = first + count
        self.count += count
        if first == self.mark:
            self.mark = end
            if self._starts and self._starts[0] == end:
                self.mark = self._ends[0]
                self._drop(0)
            return
        at = bisect_right(self._starts, first)
        joins_next = at < len(self._starts) and self._starts[at] == end
        if at > 0 and self._ends[at - 1] == first:
            self._ends[at - 1] = end
            if joins_next:
                self._ends[at - 1] = self._ends[at]
                self._drop(at)
        elif joins_next:
            self._starts[at] = first
        else:
            seen_us = self._seen_us[at] if at < len(self._starts) else now_us
            self._starts.insert(at, first)
            self._ends.insert(at, end)
            self._seen_us.insert(at, seen_us)

    def _drop(self, at: int) -> None:
        del self._starts[at], self._ends[at], self._seen_us[at]

    def gap_from(self, index: int, later_max: int) -> Gap | None:
        """Return the lowest missing stretch at or above `index` that has later parts."""
        index = max(index, self.mark)
        at = bisect_right(self._starts, index)
        if at > 0:
            index = max(index, self._ends[at - 1])
        if at >= len(self._starts):
            return None
        later, beyond = 0, at
        while later < later_max and beyond < len(self._starts):
            later += self._ends[beyond] - self._starts[beyond]
            beyond += 1
        return Gap(index, self._starts[at], self._seen_us[at], min(later, later_max))
