"""What `send` has accepted and still owes: the messages that wait in the queue, and the queue's bounds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from fairway.core.events import Writable
from fairway.core.machine import Buffer
from fairway.protocols.udpc.link import Link
from fairway.protocols.udpc.options import UdpcOptions


class Chunk:
    """Important messages that wait in the queue, in order; the first `done` of them have left."""

    __slots__ = ("bodies", "body_bytes", "done", "token")

    def __init__(self, bodies: Sequence[Buffer], body_bytes: int | None, token: int) -> None:
        self.bodies = bodies
        self.body_bytes = body_bytes
        """The size of each body; None when they differ."""
        self.token = token
        self.done = 0

    def left(self) -> range:
        """The tokens of those still waiting."""
        return range(self.token + self.done, self.token + len(self.bodies))

    def keep(self) -> None:
        """Makes sure that what still waits does not change when the application uses its buffers again."""
        left = self.bodies[self.done :]
        self.bodies = left if set(map(type, left)) == {bytes} else [bytes(body) for body in left]
        self.token += self.done
        self.done = 0


class Other(NamedTuple):
    """A plain message, a request or a response that waits."""

    flag: int
    answers: int
    """The wide index of the request that this answers; 0 for none."""
    body: bytes
    token: int


class Debt:
    """Counts messages without an outcome, and their bytes, against the bounds of one session."""

    __slots__ = ("_bytes", "_link", "_messages", "_options", "full")

    def __init__(self, link: Link, options: UdpcOptions) -> None:
        self._link = link
        self._options = options
        self._messages = 0
        self._bytes = 0
        self.full = False
        """Whether a message was turned away, so that `Writable` follows."""

    def room(self) -> int:
        """Tells how many more messages the queue takes."""
        if self._bytes >= self._options.send_queue_bytes_max:
            return 0
        return max(0, self._options.send_queue_messages_max - self._messages)

    def accepts(self, body_bytes: int) -> bool:
        """Tells whether the queue takes this message; a no is followed by `Writable`. An empty queue takes any."""
        options = self._options
        if self._messages == 0 or (
            self._messages < options.send_queue_messages_max
            and self._bytes + body_bytes <= options.send_queue_bytes_max
        ):
            return True
        self.full = True
        return False

    def admit(self, body_bytes: int) -> bool:
        """Takes one message in if the queue accepts it: `accepts` and `owe` in one."""
        if self._messages and not self.accepts(body_bytes):
            return False
        self._messages += 1
        self._bytes += body_bytes
        self._link.outputs.unfinished += 1
        return True

    def accepts_of(self, bodies: Sequence[Buffer], largest_bytes: int) -> int:
        """Tells how many of these messages, from the first on, the queue takes; fewer than all is followed by
        `Writable`."""
        count = min(len(bodies), self.room())
        left = self._options.send_queue_bytes_max - self._bytes
        if count * largest_bytes > left:
            count = bisect_right(list(accumulate(map(len, bodies[:count]))), left)
            count = max(count, min(len(bodies), self._messages == 0))
        self.full = self.full or count < len(bodies)
        return count

    def owe(self, count: int, body_bytes: int) -> None:
        """Takes messages in."""
        self._messages += count
        self._bytes += body_bytes
        self._link.outputs.unfinished += count

    def settle(self, count: int, body_bytes: int) -> None:
        """Takes messages off. `Writable` waits for a quarter of room: it should be worth a batch."""
        self._messages -= count
        self._bytes -= body_bytes
        self._link.outputs.unfinished -= count
        options = self._options
        if (
            self.full
            and 4 * self._messages <= 3 * options.send_queue_messages_max
            and 4 * self._bytes <= 3 * options.send_queue_bytes_max
        ):
            self.full = False
            self._link.outputs.report(Writable(self._link.peer))
