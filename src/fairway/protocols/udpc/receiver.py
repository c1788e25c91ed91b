"""What one session has received: indices that were seen, open receipts, requests that wait for an answer."""

from __future__ import annotations

from typing import Any

from fairway.core.events import MessageReceived, MessagesReceived, Peer
from fairway.core.outputs import Outputs
from fairway.core.receipts import OpenReceipts, ReceiptSlots
from fairway.core.serial import Seen, widen
from fairway.protocols.udpc.options import UdpcOptions
from fairway.protocols.udpc.wire import HEADER_BYTES, bodies


class Answers:
    """What one session owes and has given in answer. Both tables are in the order of time, the oldest first."""

    __slots__ = ("_bytes", "_kept", "_options", "_waiting")

    def __init__(self, options: UdpcOptions) -> None:
        self._options = options
        self._waiting: dict[int, int] = {}
        """Requests delivered and not answered, with the time of arrival."""
        self._kept: dict[int, tuple[bytes, int]] = {}
        """Responses by the request they answer, with the time since when they are kept."""
        self._bytes = 0

    def __contains__(self, request: int) -> bool:
        """Return whether the application may answer this request."""
        return request in self._waiting

    def full(self, now_us: int) -> bool:
        """Return whether no further request can be taken; those that waited too long make room."""
        if len(self._waiting) >= self._options.requests_max:
            self.expire(now_us)
        return len(self._waiting) >= self._options.requests_max

    def asked(self, request: int, now_us: int) -> None:
        self._waiting[request] = now_us

    def answered(self, request: int) -> None:
        """Note that the application has answered; the response follows by `keep` when it leaves."""
        del self._waiting[request]

    def keep(self, request: int, response: bytes, now_us: int) -> None:
        """Keep a response for duplicates of its request; the oldest goes first."""
        self._kept[request] = (response, now_us)
        self._bytes += len(response)
        while len(self._kept) > self._options.responses_max or self._bytes > self._options.response_bytes_max:
            self._drop_oldest()

    def response(self, request: int, now_us: int) -> bytes | None:
        self.expire(now_us)
        kept = self._kept.get(request)
        return kept[0] if kept is not None else None

    def expire(self, now_us: int) -> None:
        """Forget what is too old: nobody waits for it any more."""
        since_us = now_us - self._options.response_kept_us
        while self._kept and next(iter(self._kept.values()))[1] <= since_us:
            self._drop_oldest()
        while self._waiting and next(iter(self._waiting.values())) <= since_us:
            del self._waiting[next(iter(self._waiting))]

    def _drop_oldest(self) -> None:
        response, _ = self._kept.pop(next(iter(self._kept)))
        self._bytes -= len(response)

    def waiting(self) -> list[int]:
        return list(self._waiting)

    def kept(self) -> list[tuple[int, bytes]]:
        return [(request, response) for request, (response, _) in self._kept.items()]


BITMAP_SPAN = 65_536
IMPORTANT = b"i"
"""The note in the receipt of an important message: its commit is acknowledged."""


class Receiver:
    """The receiving half of a session. Numbers are wide indices."""

    __slots__ = ("_outputs", "_peer", "answers", "newest_plain", "receipts", "seen")

    def __init__(self, outputs: Outputs[Any], options: UdpcOptions, slots: ReceiptSlots, peer: Peer) -> None:
        self._outputs = outputs
        self._peer = peer
        self.answers = Answers(options)
        self.receipts = OpenReceipts(slots)
        self.seen = Seen(BITMAP_SPAN)
        self.newest_plain = 0

    def widen(self, index: int) -> int:
        return widen(index, self.seen.highest, 32)

    def is_duplicate(self, number: int) -> bool:
        """Return whether a packet was seen, and count it if it was."""
        if number not in self.seen:
            return False
        self._outputs.statistics.duplicates += 1
        return True

    def deliver(self, number: int, body: bytes, important: bool) -> None:
        """Deliver a new message, which has its receipt slot."""
        self.seen.add(number)
        if not important:
            self.newest_plain = max(self.newest_plain, number)
        outputs = self._outputs
        outputs.statistics.messages_received += 1
        outputs.report(MessageReceived(self._peer, number, body, important))

    def deliver_run(self, first: int, data: bytes, segment_bytes: int, important: bool) -> bool:
        """Deliver messages newer than all before, if there are slots for all of them."""
        count = len(data) // segment_bytes
        if not self.receipts.add(first, count, segment_bytes - HEADER_BYTES, IMPORTANT * count if important else b""):
            return False
        self.seen.add(first, count)
        if not important:
            self.newest_plain = first + count - 1
        self._outputs.statistics.messages_received += count
        self._outputs.report(MessagesReceived(self._peer, first, bodies(data, segment_bytes), important))
        return True
