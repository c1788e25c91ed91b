"""From 16-bit ids to numbers that never repeat: which were given, and which are still free below the highest."""

from __future__ import annotations

from bisect import bisect_right

from fairway.core.serial import widen

BITS = 16
GAPS_MAX = 1_024
"""Ranges of free numbers that are kept; what falls out counts as used, and a late message there moves on by a turn."""


class Widener:
    """Numbers given to the messages of one peer. Everything up to `highest` is used, except the gaps."""

    __slots__ = ("gaps", "highest")

    def __init__(self, highest: int = -1, gaps: list[tuple[int, int]] | None = None) -> None:
        self.highest = highest
        self.gaps = [] if gaps is None else gaps
        """Free numbers as ascending ranges (start, end), end excluded."""

    def copy(self) -> Widener:
        return Widener(self.highest, list(self.gaps))

    def above(self, wire_id: int) -> int | None:
        """Return the number of a message with this id if it is above all before; else None. Marks nothing."""
        wide = wire_id if self.highest < 0 else widen(wire_id, self.highest, BITS)
        return wide if wide > self.highest else None

    def take(self, wire_id: int) -> int:
        """Return a new message with this id a number that no other has."""
        wide = self.above(wire_id)
        if wide is None:
            wide = widen(wire_id, self.highest, BITS)
            if self._fill(wide):
                return wide
            wide += 1 << BITS
        self.take_run(wide, 1)
        return wide

    def take_run(self, first: int, count: int) -> None:
        """Mark numbers above the highest as used."""
        if first > self.highest + 1:
            self._add_gap(len(self.gaps), self.highest + 1, first)
        self.highest = first + count - 1

    def release(self, number: int) -> None:
        """Make a used number free again: its message is not known after all."""
        place = bisect_right(self.gaps, (number, self.highest + 1))
        if place and self.gaps[place - 1][1] == number:
            self.gaps[place - 1] = (self.gaps[place - 1][0], number + 1)
        else:
            self._add_gap(place, number, number + 1)

    def _fill(self, number: int) -> bool:
        """Take a number out of its gap, if it is in one."""
        place = bisect_right(self.gaps, (number, self.highest + 1)) - 1
        if place < 0 or self.gaps[place][1] <= number:
            return False
        start, end = self.gaps[place]
        self.gaps[place : place + 1] = [(low, high) for low, high in ((start, number), (number + 1, end)) if low < high]
        self._trim()
        return True

    def _add_gap(self, place: int, start: int, end: int) -> None:
        self.gaps.insert(place, (start, end))
        self._trim()

    def _trim(self) -> None:
        if len(self.gaps) > GAPS_MAX:
            del self.gaps[0]
