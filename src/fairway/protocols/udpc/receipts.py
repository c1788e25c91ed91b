"""Messages handed over and not yet committed: their places in the machine, and per session which they are."""

from __future__ import annotations

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


class OpenReceipts:
    """The uncommitted messages of one session.

    A batch stays one piece while it is committed as it was handed over, which is what an application does that does
    not look; the first odd commit, or the first copy, breaks the pieces up for good.
    """

    __slots__ = ("_pieces", "_places", "_singles")

    def __init__(self, places: Places) -> None:
        self._places = places
        self._pieces: dict[int, Piece] = {}
        self._singles: dict[int, tuple[int, bool]] = {}
        """Messages on their own: size and whether important."""

    def add(self, first: int, count: int, body_bytes: int, important: bool) -> bool:
        """Takes note of messages that are handed over, if there is room for all of them."""
        if not self._places.take(count, body_bytes):
            return False
        if count == 1:
            self._singles[first] = (body_bytes, important)
        else:
            self._pieces[first] = Piece(first, count, body_bytes, important)
        return True

    def __contains__(self, number: int) -> bool:
        self._break_up()
        return number in self._singles

    def _break_up(self) -> None:
        for piece in self._pieces.values():
            for number in range(piece.first, piece.first + piece.length):
                self._singles[number] = (piece.body_bytes, piece.important)
        self._pieces.clear()

    def commit(self, first: int, count: int) -> list[Piece]:
        """Frees the places of those messages of a range that are open, and gives them in order."""
        piece = self._pieces.get(first)
        if piece is not None and piece.length == count:
            del self._pieces[first]
            taken = [piece]
        else:
            self._break_up()
            taken = [Piece(number, 1, *self._singles.pop(number)) for number in self._open_within(first, count)]
        for piece in taken:
            self._places.give(piece.length, piece.body_bytes)
        return taken

    def _open_within(self, first: int, count: int) -> list[int]:
        if count <= len(self._singles):
            return [number for number in range(first, first + count) if number in self._singles]
        return sorted(number for number in self._singles if first <= number < first + count)

    def release(self) -> None:
        """Frees all places but remembers the messages: they were never committed, so no copy is acknowledged."""
        for piece in self._pieces.values():
            self._places.give(piece.length, piece.body_bytes)
        for body_bytes, _ in self._singles.values():
            self._places.give(1, body_bytes)

    def ranges(self) -> list[tuple[int, int]]:
        """Gives the open messages as ascending (first, last) ranges, which may touch."""
        ranges = [(piece.first, piece.first + piece.length - 1) for piece in self._pieces.values()]
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
