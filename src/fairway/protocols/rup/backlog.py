"""Messages for one peer that wait for their turn, and the bounds of all that has no outcome yet."""

from __future__ import annotations

from collections import deque

from fairway.core.errors import BadMessage, QueueFull
from fairway.core.machine import Buffer
from fairway.protocols.rup.context import Context
from fairway.protocols.rup.options import PARTS_MAX
from fairway.protocols.rup.outgoing import Outgoing


class Backlog:
    """Waiting messages, and counts of them and of those under way."""

    __slots__ = ("_bytes", "_bytes_max", "_context", "_is_full", "_messages_max", "unfinished", "waiting")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._messages_max = context.options.send_queue_messages_max
        self._bytes_max = context.options.send_queue_bytes_max
        self._bytes = 0
        self._is_full = False
        self.unfinished = 0
        """Messages without an outcome."""
        self.waiting: deque[Outgoing] = deque()

    @property
    def room(self) -> int:
        """Tells how many more messages are taken, as far as their number decides."""
        if self._bytes >= self._bytes_max:
            return 0
        return max(0, self._messages_max - self.unfinished)

    def check(self, body: Buffer) -> None:
        """Raises `BadMessage` for a message that can never be sent."""
        size, limit = len(body), self._context.options.message_bytes_max
        if size > limit:
            raise BadMessage(f"a message of {size} bytes is larger than message_bytes_max, which is {limit}")
        if size > PARTS_MAX * self._context.part_bytes_max:
            raise BadMessage(f"a message of {size} bytes takes more than {PARTS_MAX} parts, the most that rup allows")

    def refuse_if_full(self, body: Buffer) -> None:
        """Raises `QueueFull` for a message that there is no room for now."""
        if not self.has_room_for(body):
            raise QueueFull(f"{self.unfinished} messages of {self._bytes} bytes wait for this peer already")

    def has_room_for(self, body: Buffer) -> bool:
        """Tells whether there is room for the message; remembers a no, so that `Writable` follows.

        With nothing unfinished a message of any size is taken: otherwise one above the bound could never be sent.
        """
        unfinished = self.unfinished
        fits = self._bytes + len(body) <= self._bytes_max or not unfinished
        if fits and unfinished < self._messages_max:
            return True
        self._is_full = True
        return False

    def add(self, message: Outgoing) -> None:
        """Has a message wait for its turn."""
        self.waiting.append(message)
        self.unfinished += 1
        self._bytes += message.total

    def ended(self, message: Outgoing) -> bool:
        """Takes note that a message has its outcome; tells whether that makes room which somebody waits for."""
        self.unfinished -= 1
        self._bytes -= message.total
        if self._is_full and self.room:
            self._is_full = False
            return True
        return False
