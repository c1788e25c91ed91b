"""Serial numbers: they wrap on the wire and are widened to 64 bits on arrival; and which of them have been seen, over a
sliding span of the latest ones.

In-order arrival is remembered as one range, without any table; the bitmap (one bit a number of the span) is made when
the first number is skipped. So ten thousand quiet conversations cost nothing, and a hostile one costs its bitmap.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice


def widen(wire: int, near: int, bits: int) -> int:
    """Return the number that ends in `wire` and lies nearest to the wide number `near`.

    At exactly half the number space the older one is taken: the wire number is then not newer. A number below 0 is
    older than the first one ever.
    """
    turn = 1 << bits
    ahead = (wire - near) & (turn - 1)
    return near + ahead if ahead < turn >> 1 else near + ahead - turn


class Seen:
    """Numbers seen among the last `span` up to the highest; what is older counts as too old to tell."""

    __slots__ = ("_bits", "_span", "_start", "highest")

    def __init__(self, span: int) -> None:
        if span % 8:
            raise ValueError(f"a span of {span} is not a whole number of bytes")
        self._span = span
        self._bits: bytearray | None = None
        """A ring: number n has bit n modulo span. None while the seen numbers are one range."""
        self._start = 0
        self.highest = -1
        """The highest number seen; -1 before the first."""

    def too_old(self, number: int) -> bool:
        """Return whether the number lies before the span."""
        return number <= self.highest - self._span

    def __contains__(self, number: int) -> bool:
        if number > self.highest or self.too_old(number):
            return False
        if self._bits is None:
            return number >= self._start
        bit = number % self._span
        return bool(self._bits[bit >> 3] & (1 << (bit & 7)))

    def add(self, first: int, count: int = 1) -> None:
        """Mark numbers as seen; those too old are ignored."""
        last = first + count - 1
        if self._bits is None:
            if first == self.highest + 1 and first:
                self.highest = last
                return
            if self.highest < 0:
                self._start, self.highest = first, last
                return
            if self._start <= first <= self.highest + 1:
                self.highest = max(self.highest, last)
                return
            self._make_bits()
        first = max(first, self.highest - self._span + 1, last - self._span + 1)
        if first > self.highest + 1:
            self._fill(self.highest + 1, min(first, self.highest + 1 + self._span), 0)
        if first <= last:
            self._fill(first, last + 1, 1)
        self.highest = max(self.highest, last)

    def _make_bits(self) -> None:
        self._bits = bytearray(self._span >> 3)
        self._fill(max(self._start, self.highest - self._span + 1), self.highest + 1, 1)

    def _fill(self, start: int, end: int, bit: int) -> None:
        """Set the bits of [start, end), at most one turn of the ring, in one or two stretches."""
        while start < end:
            first = start % self._span
            stretch = min(end - start, self._span - first)
            self._fill_stretch(first, first + stretch, bit)
            start += stretch

    def _fill_stretch(self, start: int, end: int, bit: int) -> None:
        bits = self._bits
        assert bits is not None
        first_byte, last_byte = start >> 3, (end - 1) >> 3
        head = (0xFF << (start & 7)) & 0xFF
        tail = 0xFF >> (7 - ((end - 1) & 7))
        if first_byte == last_byte:
            self._apply(first_byte, head & tail, bit)
            return
        self._apply(first_byte, head, bit)
        self._apply(last_byte, tail, bit)
        bits[first_byte + 1 : last_byte] = (b"\xff" if bit else b"\x00") * (last_byte - first_byte - 1)

    def _apply(self, byte: int, mask: int, bit: int) -> None:
        bits = self._bits
        assert bits is not None
        bits[byte] = bits[byte] | mask if bit else bits[byte] & ~mask & 0xFF

    def ranges(self) -> list[tuple[int, int]]:
        """Return what was seen as ascending (first, last) ranges: what a snapshot keeps."""
        if self.highest < 0:
            return []
        lowest = max(0, self.highest - self._span + 1)
        return [(max(self._start, lowest), self.highest)] if self._bits is None else self._scan(lowest)

    def _scan(self, lowest: int) -> list[tuple[int, int]]:
        """Read the ring as text, in which searching for the next 0 or 1 costs no Python operation a number."""
        assert self._bits is not None
        text = format(int.from_bytes(self._bits, "little"), f"0{self._span}b")[::-1]
        turn = lowest % self._span
        text = text[turn:] + text[:turn]
        ranges: list[tuple[int, int]] = []
        start = text.find("1")
        while start >= 0:
            end = text.find("0", start)
            end = end if end >= 0 else self._span
            ranges.append((lowest + start, lowest + end - 1))
            start = text.find("1", end)
        return ranges

    @classmethod
    def from_ranges(cls, span: int, ranges: Iterable[tuple[int, int]]) -> Seen:
        """Make it again from what `ranges` gave."""
        seen = cls(span)
        for first, last in ranges:
            seen.add(first, last - first + 1)
        return seen


def subtract(known: list[tuple[int, int]], without: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ascending (first, last) ranges less other ascending ranges, in one pass over both."""
    left: list[tuple[int, int]] = []
    position = 0
    for first, last in known:
        start = first
        while position < len(without) and without[position][1] < start:
            position += 1
        for hole_first, hole_last in islice(without, position, None):
            if hole_first > last:
                break
            if start < hole_first:
                left.append((start, hole_first - 1))
            start = max(start, hole_last + 1)
        if start <= last:
            left.append((start, last))
    return left
