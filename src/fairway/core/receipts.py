"""Messages delivered and not yet committed: the receipt slots of a machine, and per conversation which they are."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from fairway.core.machine import Options


class ReceiptSlots:
    """The machine's bound on what the application has not committed, in messages and in bytes."""

    def __init__(self, options: Options) -> None:
        self.messages_left = options.open_receipts_max
        self.bytes_left = self._bytes_max = options.open_receipt_bytes_max

    def fit(self, count: int, body_bytes: int) -> bool:
        return count <= self.messages_left and body_bytes <= self.bytes_left

    def fit_alone(self, body_bytes: int) -> bool:
        """Return whether there is a slot for one message; of any size while no bytes are open."""
        return self.messages_left > 0 and (body_bytes <= self.bytes_left or self.bytes_left == self._bytes_max)

    def take(self, count: int, body_bytes: int) -> None:
        self.messages_left -= count
        self.bytes_left -= body_bytes

    def free(self, count: int, body_bytes: int) -> None:
        self.messages_left += count
        self.bytes_left += body_bytes


class Piece(NamedTuple):
    """Neighbouring messages of one size, with what their acknowledgement needs: an equal share of `note` each."""

    first: int
    length: int
    body_bytes: int
    note: bytes

    @property
    def end(self) -> int:
        return self.first + self.length

    def part(self, start: int, end: int) -> Piece:
        """Return those of the messages whose numbers lie from `start` to before `end`; the length may be 0 or less."""
        first, end, width = max(start, self.first), min(end, self.end), len(self.note) // self.length
        note = self.note[(first - self.first) * width : (end - self.first) * width]
        return Piece(first, end - first, self.body_bytes, note)


class OpenReceipts:
    """The uncommitted messages of one conversation.

    What was delivered together stays one piece; a commit of a part of it cuts that part out and leaves the rest whole,
    because an application may take a batch in any portions.
    """

    __slots__ = ("_firsts", "_pieces", "_singles", "_slots")

    def __init__(self, slots: ReceiptSlots) -> None:
        self._slots = slots
        self._pieces: list[Piece] = []
        self._firsts: list[int] = []
        """The first number of each piece, ascending: messages that arrive in a batch are newer than all before."""
        self._singles: dict[int, tuple[int, bytes]] = {}
        """Messages that came on their own: size and note."""

    def add_one(self, number: int, body_bytes: int, note: bytes) -> bool:
        """Add one message that is delivered, if there is a slot for it."""
        slots = self._slots
        if not slots.messages_left or body_bytes > slots.bytes_left:
            return False
        slots.messages_left -= 1
        slots.bytes_left -= body_bytes
        self._singles[number] = (body_bytes, note)
        return True

    def add_kept(self, number: int, body_bytes: int) -> None:
        """Add one message that is delivered and whose slot is occupied already."""
        self._singles[number] = (body_bytes, b"")

    def add(self, first: int, count: int, body_bytes: int, note: bytes) -> bool:
        """Add messages newer than all before that are delivered, if there are slots for all of them."""
        if not self._slots.fit(count, count * body_bytes):
            return False
        self._slots.take(count, count * body_bytes)
        self._firsts.append(first)
        self._pieces.append(Piece(first, count, body_bytes, note))
        return True

    def __contains__(self, number: int) -> bool:
        if number in self._singles:
            return True
        position = bisect_right(self._firsts, number) - 1
        return position >= 0 and number < self._pieces[position].end

    def free_one(self, number: int) -> bool:
        """Commit one message that came on its own; return False and change nothing if it did not."""
        single = self._singles.pop(number, None)
        if single is None:
            return False
        slots = self._slots
        slots.messages_left += 1
        slots.bytes_left += single[0]
        return True

    def commit(self, first: int, count: int) -> list[Piece]:
        """Free the slots of those messages of a range that are open, and return them in order."""
        single = self._singles.pop(first, None) if count == 1 else None
        if single is not None:
            taken = [Piece(first, 1, *single)]
        else:
            taken = self._cut(first, first + count)
            if self._singles and count > 1:
                taken = sorted(taken + [self._single(number) for number in self._open_within(first, count)])
        for piece in taken:
            self._slots.free(piece.length, piece.length * piece.body_bytes)
        return taken

    def _single(self, number: int) -> Piece:
        return Piece(number, 1, *self._singles.pop(number))

    def _cut(self, start: int, end: int) -> list[Piece]:
        """Take the numbers from `start` to before `end` out of the pieces, and return what was there."""
        firsts, pieces = self._firsts, self._pieces
        low = bisect_right(firsts, start) - 1
        if low >= 0 and firsts[low] == start and pieces[low].length == end - start:
            del firsts[low]
            return [pieces.pop(low)]  # a whole batch, as it was delivered: the usual case
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
        """Free all slots but remember the messages: they were never committed, so no duplicate is acknowledged."""
        for piece in self._pieces:
            self._slots.free(piece.length, piece.length * piece.body_bytes)
        for body_bytes, _ in self._singles.values():
            self._slots.free(1, body_bytes)

    def ranges(self) -> list[tuple[int, int]]:
        """Return the open messages as ascending (first, last) ranges, which may touch."""
        ranges = [(piece.first, piece.end - 1) for piece in self._pieces]
        return sorted(ranges + [(number, number) for number in self._singles])
