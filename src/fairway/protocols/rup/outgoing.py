"""How messages for one peer are cut into parts, and parts put together into bursts."""

from __future__ import annotations

from fairway.core.events import Address
from fairway.core.machine import UDP_PAYLOAD_BYTES_MAX, Buffer
from fairway.core.recovery.runs import Stream
from fairway.protocols.rup import wire
from fairway.protocols.rup.context import Context
from fairway.protocols.rup.options import PARTS_MAX


class Outgoing:
    """The state of one message that is being sent; what became of its parts is in `stream`."""

    __slots__ = (
        "body", "identity", "in_round", "part_bytes", "part_count", "queued_us",
        "sent", "serial", "stream", "token", "total", "turn",
    )  # fmt: skip

    def __init__(self, token: int, identity: bytes, body: Buffer, now_us: int, serial: int) -> None:
        self.serial = serial
        self.token = token
        self.identity = identity
        self.body = body
        self.total = len(body)
        self.part_bytes = 0
        self.part_count = 0
        self.sent = 0
        """Parts below were transmitted."""
        self.stream = Stream(serial)
        self.stream.since_us = self.queued_us = now_us
        self.in_round = False
        """It is in its sender's round of messages that have something to send."""
        self.turn = 0
        """Parts that may leave before it is the next message's turn."""

    def cut(self, part_bytes: int) -> None:
        """Choose the grid of a message of which nothing was sent."""
        self.part_bytes = max(1, min(part_bytes, self.total))
        self.part_count = max(1, -(-self.total // self.part_bytes))
        self.stream.last = self.part_count - 1

    def sendable(self, outstanding_max: int, unanswered_max: int) -> int:
        """Return how many parts may leave for the first time as far as this message is concerned."""
        if self.stream.ignored:
            return 0
        most = self.stream.mark + outstanding_max if self.stream.answered else unanswered_max
        return min(self.part_count, most) - self.sent

    def slice_of(self, first: int, count: int) -> Buffer:
        """Return the bodies of parts as one piece, without copying."""
        if self.part_count == 1:
            return self.body
        return memoryview(self.body)[first * self.part_bytes : (first + count) * self.part_bytes]


SEGMENTS_MAX = 64
"""Linux takes so many datagrams in one call everywhere; some kernels take more."""
NUMPY_PARTS_MIN = 4
"""Fewer parts are put together faster without numpy."""
PART_BYTES_MIN = 16
"""Parts shrink until the first fits the three-times limit towards an unproved address, and to what a path takes, but
not below this."""


class Grid:
    """Sizes, and datagrams of that size, within what the address may get."""

    __slots__ = ("_address", "_context")

    def __init__(self, address: Address, context: Context) -> None:
        self._address = address
        self._context = context

    def part_bytes(self, message: Outgoing) -> int:
        """Choose a message's grid: the largest part, or one that fits what an unproved address may get."""
        least = -(-message.total // PARTS_MAX)
        largest = max(self._context.part_bytes_max, least)
        budget = self._context.outbox.budget(self._address)
        if budget is None:
            return largest
        return min(largest, max(budget - wire.DATA_HEADER_BYTES, PART_BYTES_MIN, least))

    def burst_max(self, message: Outgoing) -> int:
        """Return how many parts one system call carries."""
        return min(SEGMENTS_MAX, UDP_PAYLOAD_BYTES_MAX // (wire.DATA_HEADER_BYTES + message.part_bytes))

    def allowed(self, message: Outgoing, count: int) -> int:
        """Return how many of the parts the three-times limit lets through."""
        budget = self._context.outbox.budget(self._address)
        if budget is None:
            return count
        size = wire.DATA_HEADER_BYTES + min(message.part_bytes, message.total)
        return min(count, budget // size)

    def encode(self, message: Outgoing, first: int, count: int) -> Buffer:
        """Return parts of a message, from part `first` on, as datagrams one after another."""
        identity, total, part_bytes = message.identity, message.total, message.part_bytes
        if count == 1:
            return wire.part(identity, first * part_bytes, total, message.slice_of(first, 1))
        if count < NUMPY_PARTS_MIN:
            indices = range(first, first + count)
            return b"".join([wire.part(identity, i * part_bytes, total, message.slice_of(i, 1)) for i in indices])
        return self._context.bursts.encode(identity, total, part_bytes, first, message.slice_of(first, count))
