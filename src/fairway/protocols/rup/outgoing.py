"""One message on its way out: its grid, and how far it was transmitted."""

from __future__ import annotations

from fairway.core.machine import Buffer
from fairway.core.recovery.runs import Stream


class Outgoing:
    """The state of one message that is being sent; what became of its parts is in `stream`."""

    __slots__ = (
        "body", "identity", "in_round", "left_us", "part_bytes", "part_count", "queued_us",
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
        self.left_us = now_us
        """When a part of it last left."""
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
