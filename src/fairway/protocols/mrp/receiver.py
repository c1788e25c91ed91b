"""What one direction of a connection has received: where it stands, what is ahead, what the application still holds.

Numbers are widened sequences. `next` is the lowest that has not arrived; `ahead` holds those that arrived beyond it. By
default messages are delivered in order, so `ahead` holds their bodies. Deferred, each is delivered as it
arrives and `ahead` only remembers it; `committed_to` is then the lowest number not committed, which is what a
snapshot keeps and what the piggyback layout acknowledges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fairway.core.events import Receipt
from fairway.core.machine import UDP_PAYLOAD_BYTES_MAX, Options
from fairway.core.receipts import OpenReceipts, Piece, ReceiptSlots
from fairway.core.serial import widen
from fairway.core.statistics import RECEIPTS_FULL
from fairway.protocols.mrp.wire import TURN

NEW, DUPLICATE, HELD_DUPLICATE, BEYOND, FULL, NEVER_SENT = range(6)
"""Verdicts. A held duplicate is one of a message delivered but not committed while acknowledging is deferred."""
DROP_REASONS = {BEYOND: "beyond_window", FULL: RECEIPTS_FULL, NEVER_SENT: "before_first"}


class KeptSlots(ReceiptSlots):
    """Receipt slots that also hold messages kept ahead of a gap.

    Those take no more than half of the slots and bytes, nor the last bytes that the largest message needs: the packet
    that fills the gap must find room, or nothing would ever move again, and a peer that never fills its gap would leave
    one slot to all others together.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        most_bytes = options.open_receipt_bytes_max
        self._kept_left = options.open_receipts_max // 2
        self._kept_bytes_left = min(most_bytes // 2, most_bytes - UDP_PAYLOAD_BYTES_MAX)

    def fit_kept(self, size: int) -> bool:
        return self._kept_left > 0 and size <= self._kept_bytes_left and self.fit(1, size)

    def keep(self, size: int) -> None:
        self.take(1, size)
        self._kept_left -= 1
        self._kept_bytes_left -= size

    def deliver_kept(self, size: int) -> None:
        """Turn the slot of a kept message into that of a delivered one."""
        self._kept_left += 1
        self._kept_bytes_left += size


class Receiver:
    """One direction of one connection, as seen by the side that receives."""

    __slots__ = ("_deferred", "_slots", "_window", "ahead", "committed_to", "next", "receipts")

    def __init__(self, first: int, window: int, deferred: bool, slots: KeptSlots) -> None:
        self.next = first
        self.committed_to = first
        """Deferred: the lowest number not committed. Otherwise unused."""
        self.ahead: dict[int, bytes] = {}
        self._window = window
        self._deferred = deferred
        self._slots = slots
        self.receipts = OpenReceipts(slots)
        """What is delivered and not committed; deferred, with the acknowledgements."""

    def widen(self, sequence: int) -> int:
        """Return the number that the wire's sequence stands for: the nearest to the one expected."""
        number = widen(sequence, self.next, 16)
        return number if number >= 0 else number + TURN

    def judge(self, number: int, size: int) -> int:
        """Say what an arriving message is, and change nothing."""
        if number == self.next and not self._deferred:
            return NEW if self._slots.fit(1, size) else FULL
        if number < self.next or number in self.ahead:
            return self._judge_duplicate(number)
        if number >= self._limit():
            return BEYOND
        if self._deferred or number == self.next:
            return NEW if self._slots.fit(1, size) else FULL
        return NEW if self._slots.fit_kept(size) else FULL

    def _judge_duplicate(self, number: int) -> int:
        if number < 1:
            return NEVER_SENT
        return (
            HELD_DUPLICATE if self._deferred and number >= self.committed_to and number in self.receipts else DUPLICATE
        )

    def _limit(self) -> int:
        return (self.committed_to if self._deferred else self.next) + self._window

    def take_next(self, number: int, size: int) -> bool:
        """Take a message that is the next in order, delivered and acknowledged at once, if there is a slot for it and
        nothing waits behind it: the usual case. Otherwise return False and change nothing."""
        if number != self.next or self.ahead or self._deferred or not self.receipts.add_one(number, size, b""):
            return False
        self.next = number + 1
        return True

    def take(self, number: int, body: bytes) -> list[tuple[int, bytes]]:
        """Take a new message in order or ahead, and return what can be delivered now."""
        if number != self.next:
            self.ahead[number] = body
            self._slots.keep(len(body))
            return []
        self.receipts.add_one(number, len(body), b"")
        self.next += 1
        return [(number, body)] if not self.ahead else [(number, body), *self._drain()]

    def _drain(self) -> Iterator[tuple[int, bytes]]:
        while (body := self.ahead.pop(self.next, None)) is not None:
            self._slots.deliver_kept(len(body))
            self.receipts.add_kept(self.next, len(body))
            self.next += 1
            yield self.next - 1, body

    def offer(self, number: int, size: int, ack: bytes) -> None:
        """Take a new message that is delivered as it is and acknowledged later."""
        self.receipts.add_one(number, size, ack)
        if number != self.next:
            self.ahead[number] = b""
            return
        self.next += 1
        while self.ahead and self.ahead.pop(self.next, None) is not None:
            self.next += 1

    def fits_run(self, first: int, count: int, size: int) -> bool:
        """Return whether a run of messages would all be new, in order, and find a slot each."""
        if first != self.next or self.ahead or not self._slots.fit(count, count * size):
            return False
        return not self._deferred or first + count <= self._limit()

    def take_run(self, count: int, size: int, acks: bytes) -> None:
        """Take a run that fits and is delivered as a whole."""
        self.receipts.add(self.next, count, size, acks)
        self.next += count

    # Receipts.

    def commit(self, first: int, count: int) -> list[Piece]:
        """Free the slots of those of the messages that are open, and return them; for deferred acknowledgement."""
        committed = self.receipts.commit(first, count)
        if committed and committed[0].first == self.committed_to:
            self.committed_to = committed[0].end
        # Each number is passed once in the life of the connection.
        while self.committed_to < self.next and self.committed_to not in self.receipts:
            self.committed_to += 1
        return committed

    def release(self) -> None:
        self.receipts.release()
        if not self._deferred:
            for body in self.ahead.values():
                self._slots.deliver_kept(len(body))
                self._slots.free(1, len(body))
        self.ahead.clear()

    # Snapshots.

    def survives(self, committing: Sequence[Receipt]) -> tuple[int, list[int]]:
        """Return the lowest number not committed and those committed beyond it, as they will be.

        Not deferred, everything delivered counts: it is acknowledged already and no duplicate will come.
        """
        if not self._deferred:
            return self.next, sorted(self.ahead)
        missing = {number for first, last in self.receipts.ranges() for number in range(first, last + 1)}
        for receipt in committing:
            if isinstance(receipt.first, int):
                missing.difference_update(range(receipt.first, receipt.first + receipt.count))
        arrived = [*range(self.committed_to, self.next), *sorted(self.ahead)]
        committed_to = min([*missing, self.next])
        return committed_to, [number for number in arrived if number > committed_to and number not in missing]

    def revive(self, beyond: Sequence[tuple[int, bytes]]) -> None:
        """Remember what had arrived beyond that before the restart."""
        for number, body in beyond:
            if not self._deferred:
                self._slots.keep(len(body))
            self.ahead[number] = body
