"""What one direction of a connection has received: where it stands, what is ahead, what the application still holds.

Numbers are widened sequences. `next` is the lowest that has not arrived; `ahead` holds those that arrived beyond it. By
default messages are handed over in order, so `ahead` holds their bodies. Deferred, each is handed over as it
arrives and `ahead` only remembers it; `floor` is then the lowest number not committed, which is what a
snapshot keeps and what the piggyback layout acknowledges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fairway.core.events import Receipt
from fairway.core.statistics import RECEIPTS_FULL
from fairway.protocols.mrp.places import Places

NEW, COPY, HELD_COPY, BEYOND, FULL, NEVER_SENT = range(6)
"""Verdicts. A held copy is one of a message that is handed over but not committed while acknowledging is deferred."""
DROP_REASONS = {BEYOND: "beyond_window", FULL: RECEIPTS_FULL, NEVER_SENT: "before_first"}

_TURN = 65_536
_HALF = 32_768


class Batch(NamedTuple):
    """Open receipts of messages that arrived together: their size each, and their acknowledgements if deferred."""

    messages: int
    size: int
    acks: bytes


class Receiver:
    """One direction of one connection, as seen by the side that receives."""

    __slots__ = ("_batches", "_deferred", "_places", "_singles", "_window", "ahead", "floor", "next")

    def __init__(self, first: int, window: int, deferred: bool, places: Places) -> None:
        self.next = first
        self.floor = first
        """Deferred: the lowest number not committed. Otherwise unused."""
        self.ahead: dict[int, bytes] = {}
        self._window = window
        self._deferred = deferred
        self._places = places
        self._singles: dict[int, tuple[int, bytes]] = {}
        """Open receipts of single messages: size and, deferred, acknowledgement."""
        self._batches: dict[int, Batch] = {}

    def widen(self, sequence: int) -> int:
        """Gives the number that the wire's sequence stands for: the nearest to the one expected."""
        ahead = (sequence - self.next) % _TURN
        number = self.next + ahead if ahead < _HALF else self.next + ahead - _TURN
        return number if number >= 0 else number + _TURN

    def judge(self, number: int, size: int) -> int:
        """Says what an arriving message is, and changes nothing."""
        if number == self.next and not self._deferred:
            return NEW if self._places.fit(1, size) else FULL
        if number < self.next or number in self.ahead:
            return self._judge_copy(number)
        if number >= self._limit():
            return BEYOND
        if self._deferred or number == self.next:
            return NEW if self._places.fit(1, size) else FULL
        return NEW if self._places.fit_kept(size) else FULL

    def _judge_copy(self, number: int) -> int:
        if number < 1:
            return NEVER_SENT
        return HELD_COPY if self._deferred and number >= self.floor and self._is_open(number) else COPY

    def _limit(self) -> int:
        return (self.floor if self._deferred else self.next) + self._window

    def take_next(self, number: int, size: int) -> bool:
        """Takes a message that is the next in order, handed over and acknowledged at once, if there is a place for it
        and nothing waits behind it; else answers no and changes nothing."""
        if number != self.next or self.ahead or self._deferred or not self._places.take_one(size):
            return False
        self._singles[number] = (size, b"")
        self.next = number + 1
        return True

    def take(self, number: int, body: bytes) -> list[tuple[int, bytes]]:
        """Takes a new message in order or ahead, and gives what can be handed over now."""
        if number != self.next:
            self.ahead[number] = body
            self._places.keep(len(body))
            return []
        self._places.take(1, len(body))
        self._singles[number] = (len(body), b"")
        self.next += 1
        return [(number, body)] if not self.ahead else [(number, body), *self._drain()]

    def _drain(self) -> Iterator[tuple[int, bytes]]:
        while (body := self.ahead.pop(self.next, None)) is not None:
            self._places.hand_over(len(body))
            self._singles[self.next] = (len(body), b"")
            self.next += 1
            yield self.next - 1, body

    def offer(self, number: int, size: int, ack: bytes) -> None:
        """Takes a new message that is handed over as it is and acknowledged later."""
        self._places.take(1, size)
        self._singles[number] = (size, ack)
        if number != self.next:
            self.ahead[number] = b""
            return
        self.next += 1
        while self.ahead and self.ahead.pop(self.next, None) is not None:
            self.next += 1

    def fits_run(self, first: int, count: int, size: int) -> bool:
        """Tells whether a run of messages would all be new, in order, and find a place each."""
        if first != self.next or self.ahead or not self._places.fit(count, count * size):
            return False
        return not self._deferred or first + count <= self._limit()

    def take_run(self, count: int, size: int, acks: bytes) -> None:
        """Takes a run that fits and is handed over as a whole."""
        self._places.take(count, count * size)
        self._batches[self.next] = Batch(count, size, acks)
        self.next += count

    # Receipts.

    def _is_open(self, number: int) -> bool:
        return number in self._singles or self._batch_of(number) is not None

    def _batch_of(self, number: int) -> int | None:
        for first, batch in self._batches.items():
            if first <= number < first + batch.messages:
                return first
        return None

    def commit(self, first: int, count: int) -> tuple[int, list[bytes]]:
        """Frees the places of those of the messages that are open; gives their number and their acknowledgements."""
        batch = self._batches.get(first)
        if batch is not None and batch.messages == count:
            del self._batches[first]
            self._places.free(count, count * batch.size)
            committed, acks = count, [batch.acks]
        else:
            acks = [ack for number in self._open_among(first, count) for ack in self._commit_one(number)]
            committed = len(acks)
        if self._deferred:
            if first == self.floor and batch is not None and batch.messages == count:
                self.floor += count
            self._raise_floor()
        return committed, acks

    def free_one(self, receipt: Receipt) -> bool:
        """Frees the place of a message that came alone, if that is all there is to its commit; else answers no."""
        if receipt.count != 1 or self._deferred:
            return False
        assert isinstance(receipt.first, int)
        single = self._singles.pop(receipt.first, None)
        if single is None:
            return False
        self._places.free(1, single[0])
        return True

    def _open_among(self, first: int, count: int) -> Sequence[int]:
        if count <= len(self):
            return range(first, first + count)
        return [number for number in self.open_numbers() if first <= number < first + count]

    def _commit_one(self, number: int) -> Iterator[bytes]:
        if number not in self._singles:
            first = self._batch_of(number)
            if first is None:
                return
            self._explode(first)
        size, ack = self._singles.pop(number)
        self._places.free(1, size)
        yield ack

    def _explode(self, first: int) -> None:
        """Turns a batch of which only a part is committed into single receipts."""
        count, size, acks = self._batches.pop(first)
        width = len(acks) // count
        for position in range(count):
            self._singles[first + position] = (size, acks[position * width : (position + 1) * width])

    def _raise_floor(self) -> None:
        """Moves the floor over what is committed; each number is passed once in the life of the connection."""
        while self.floor < self.next and self.floor not in self._singles and self.floor not in self._batches:
            self.floor += 1

    def __len__(self) -> int:
        """Counts the open receipts."""
        return len(self._singles) + sum(batch.messages for batch in self._batches.values())

    def open_numbers(self) -> list[int]:
        """Lists what is handed over and not committed, in ascending order."""
        numbers = list(self._singles)
        for first, batch in self._batches.items():
            numbers.extend(range(first, first + batch.messages))
        return sorted(numbers)

    def release(self) -> None:
        """Frees every place that this connection occupies, because it has ended."""
        for size, _ in self._singles.values():
            self._places.free(1, size)
        for batch in self._batches.values():
            self._places.free(batch.messages, batch.messages * batch.size)
        if not self._deferred:
            for body in self.ahead.values():
                self._places.hand_over(len(body))
                self._places.free(1, len(body))
        self._singles.clear()
        self._batches.clear()
        self.ahead.clear()

    # Snapshots.

    def survives(self, committing: Sequence[Receipt]) -> tuple[int, list[int]]:
        """Gives the lowest number not committed and those committed beyond it, as they will be.

        Not deferred, everything handed over counts: it is acknowledged already and no copy will come.
        """
        if not self._deferred:
            return self.next, sorted(self.ahead)
        missing = set(self.open_numbers())
        for receipt in committing:
            if isinstance(receipt.first, int):
                missing.difference_update(range(receipt.first, receipt.first + receipt.count))
        arrived = [*range(self.floor, self.next), *sorted(self.ahead)]
        floor = min([*missing, self.next])
        return floor, [number for number in arrived if number > floor and number not in missing]

    def revive(self, beyond: Sequence[tuple[int, bytes]]) -> None:
        """Remembers what had arrived beyond the floor before the restart."""
        for number, body in beyond:
            if not self._deferred:
                self._places.keep(len(body))
            self.ahead[number] = body
