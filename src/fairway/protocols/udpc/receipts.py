"""Messages handed over and not yet committed: their places in the machine, and per session which they are."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import islice
from typing import NamedTuple


class Places:
    """The machine's bound on what the application has not committed, in messages and in bytes."""

    __slots__ = ("bytes_left", "messages_left")

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self.messages_left = messages_max
        self.bytes_left = bytes_max

    def take(self, count: int, body_bytes: int) -> bool:
        """Occupies places for `count` messages of that size, all or none."""
        if count > self.messages_left or count * body_bytes > self.bytes_left:
            return False
        self.messages_left -= count
        self.bytes_left -= count * body_bytes
        return True

    def give(self, count: int, body_bytes: int) -> None:
        """Frees places."""
        self.messages_left += count
        self.bytes_left += count * body_bytes


class Piece(NamedTuple):
    """Neighbouring messages of one size, all important or none."""

    first: int
    length: int
    body_bytes: int
    important: bool

    @property
    def end(self) -> int:
        """The number after the last."""
        return self.first + self.length

    def part(self, start: int, end: int) -> Piece:
        """Gives those of the messages whose numbers lie from `start` to before `end`; the length tells whether any."""
        first = max(start, self.first)
        return Piece(first, min(end, self.end) - first, self.body_bytes, self.important)


class OpenReceipts:
    """The uncommitted messages of one session.

    What was handed over together stays one piece; a commit of a part of it cuts that part out and leaves the rest
    whole, because an application may take a batch in any portions.
    """

    __slots__ = ("_firsts", "_pieces", "_places", "_singles")

    def __init__(self, places: Places) -> None:
        self._places = places
        self._pieces: list[Piece] = []
        self._firsts: list[int] = []
        """The first number of each piece, ascending: messages that arrive in a batch are newer than all before."""
        self._singles: dict[int, tuple[int, bool]] = {}
        """Messages that came on their own: size and whether important."""

    def add_one(self, number: int, body_bytes: int, important: bool) -> bool:
        """Takes note of one message that is handed over, if there is room for it."""
        places = self._places
        if not places.messages_left or body_bytes > places.bytes_left:
            return False
        places.messages_left -= 1
        places.bytes_left -= body_bytes
        self._singles[number] = (body_bytes, important)
        return True

    def add(self, first: int, count: int, body_bytes: int, important: bool) -> bool:
        """Takes note of messages newer than all before that are handed over, if there is room for all of them."""
        if not self._places.take(count, body_bytes):
            return False
        self._firsts.append(first)
        self._pieces.append(Piece(first, count, body_bytes, important))
        return True

    def __contains__(self, number: int) -> bool:
        if number in self._singles:
            return True
        position = bisect_right(self._firsts, number) - 1
        return position >= 0 and number < self._pieces[position].end

    def commit(self, first: int, count: int) -> list[Piece]:
        """Frees the places of those messages of a range that are open, and gives them in order."""
        single = self._singles.pop(first, None) if count == 1 else None
        if single is not None:
            taken = [Piece(first, 1, *single)]
        else:
            taken = self._cut(first, first + count)
            if self._singles and count > 1:
                taken = sorted(taken + [self._single(number) for number in self._open_within(first, count)])
        for piece in taken:
            self._places.give(piece.length, piece.body_bytes)
        return taken

    def _single(self, number: int) -> Piece:
        return Piece(number, 1, *self._singles.pop(number))

    def _cut(self, start: int, end: int) -> list[Piece]:
        """Takes the numbers from `start` to before `end` out of the pieces, and gives what was there."""
        firsts, pieces = self._firsts, self._pieces
        low = bisect_right(firsts, start) - 1
        if low < 0 or pieces[low].end <= start:
            low += 1
        high = bisect_left(firsts, end, low)
        if low == high:
            return []
        taken = pieces[low:high]
        before, after = taken[0].part(0, start), taken[-1].part(end, taken[-1].end)
        taken[0] = taken[0].part(start, end)
        taken[-1] = taken[-1].part(start, end)
        pieces[low:high] = left = [piece for piece in (before, after) if piece.length > 0]
        firsts[low:high] = [piece.first for piece in left]
        return taken

    def _open_within(self, first: int, count: int) -> list[int]:
        if count <= len(self._singles):
            return [number for number in range(first, first + count) if number in self._singles]
        return sorted(number for number in self._singles if first <= number < first + count)

    def release(self) -> None:
        """Frees all places but remembers the messages: they were never committed, so no copy is acknowledged."""
        for piece in self._pieces:
            self._places.give(piece.length, piece.body_bytes)
        for body_bytes, _ in self._singles.values():
            self._places.give(1, body_bytes)

    def ranges(self) -> list[tuple[int, int]]:
        """Gives the open messages as ascending (first, last) ranges, which may touch."""
        ranges = [(piece.first, piece.end - 1) for piece in self._pieces]
        return sorted(ranges + [(number, number) for number in self._singles])


def subtract(known: list[tuple[int, int]], without: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Gives ascending (first, last) ranges less other ascending ranges, in one pass over both."""
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
