"""What `send` has accepted: the messages that wait to leave, and the bounds and outcomes of all that have none yet."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, cast

from fairway.core.events import NOT_SENT, Delivered, DeliveryUnknown, Peer, Refused, Writable
from fairway.core.machine import Buffer, Options
from fairway.core.outputs import Outputs


class Backlog:
    """Counts the messages of one conversation without an outcome, and their bytes, against the queue limits; reports
    their outcomes."""

    __slots__ = ("_bytes_max", "_messages_max", "_outputs", "_peer", "bytes", "messages", "wanted")

    def __init__(self, options: Options, outputs: Outputs[Any], peer: Peer) -> None:
        self._outputs = outputs
        self._peer = peer
        self._messages_max = options.send_queue_messages_max
        self._bytes_max = options.send_queue_bytes_max
        self.messages = 0
        self.bytes = 0
        self.wanted = False
        """Whether a message was turned away, so that `Writable` follows."""

    def room(self) -> int:
        """Return how many more messages are accepted, as far as their number decides."""
        return max(0, self._messages_max - self.messages) if self.bytes < self._bytes_max else 0

    def accepts(self, body_bytes: int) -> bool:
        """Return whether there is room for a message; a no is followed by `Writable`.

        An empty queue accepts any: otherwise a message above the limit could never be sent.
        """
        if not self.messages or (self.messages < self._messages_max and self.bytes + body_bytes <= self._bytes_max):
            return True
        self.wanted = True
        return False

    def accepts_of(self, sizes: Sequence[int]) -> int:
        """Return how many messages of these sizes, from the first on, there is room for; fewer than all is followed by
        `Writable`."""
        count = min(len(sizes), self.room())
        left = self._bytes_max - self.bytes
        if sum(sizes[:count]) > left:
            count = bisect_right(list(accumulate(sizes[:count])), left)
        if not self.messages:
            count = max(count, min(len(sizes), 1))
        self.wanted = self.wanted or count < len(sizes)
        return count

    def close(self) -> None:
        """Accept nothing more: no `Writable` follows, even if a message was turned away."""
        self.wanted = False

    def add(self, count: int, body_bytes: int) -> None:
        self.messages += count
        self.bytes += body_bytes
        self._outputs.unfinished += count

    def delivered(self, tokens: Sequence[int], body_bytes: int) -> None:
        outputs, count = self._outputs, len(tokens)
        outputs.report(Delivered(self._peer, tokens))
        outputs.statistics.messages_delivered += count
        self.settle(count, body_bytes)

    def unknown(self, tokens: Sequence[int], body_bytes: int, reason: str) -> None:
        self._outputs.report(DeliveryUnknown(self._peer, tokens, reason))
        self._outputs.statistics.messages_unknown += len(tokens)
        self.settle(len(tokens), body_bytes)

    def refused(self, tokens: Sequence[int], body_bytes: int) -> None:
        self._outputs.report(Refused(self._peer, tokens, NOT_SENT))
        self._outputs.statistics.messages_refused += len(tokens)
        self.settle(len(tokens), body_bytes)

    def settle(self, count: int, body_bytes: int) -> None:
        """Count messages that have their outcome, and report `Writable` where it is due.

        It waits for a quarter of room: it should be worth a batch.
        """
        self._outputs.unfinished -= count
        self.messages -= count
        self.bytes -= body_bytes
        if self.wanted and 4 * self.messages <= 3 * self._messages_max:
            if self.messages and 4 * self.bytes > 3 * self._bytes_max:
                return
            self.wanted = False
            self._outputs.report(Writable(self._peer))


class Chunk:
    """Messages of one call that wait to leave, in order; the first `done` of them have left."""

    __slots__ = ("bodies", "done", "equal", "token")

    def __init__(self, bodies: Sequence[bytes], token: int, equal: bool) -> None:
        self.bodies = bodies
        self.token = token
        """The token of the first body; those of the others follow."""
        self.equal = equal
        """Whether all bodies have the same size."""
        self.done = 0


class SendQueue:
    """Messages that wait to leave, in the order in which they were sent."""

    __slots__ = ("_chunks", "_growing", "messages")

    def __init__(self) -> None:
        self._chunks: deque[Chunk] = deque()
        self._growing: list[bytes] = []
        """The bodies of the last chunk, if it was sent one by one: those that follow may join it."""
        self.messages = 0
        """How many wait."""

    def add(self, bodies: Sequence[Buffer], token: int, *, equal: bool) -> None:
        """Queue messages, copied unless they are bytes, which nobody can change.

        Messages of one size that come one by one leave together, as if sent in one call.
        """
        self.messages += len(bodies)
        if len(bodies) > 1:
            self._chunks.append(Chunk(_owned(bodies), token, equal))
            return
        body, growing = bytes(bodies[0]), self._growing
        last = self._chunks[-1] if self._chunks else None
        # Not once some have left: a chunk that never ends would keep their bodies for ever.
        if last is None or last.bodies is not growing or last.done or token != last.token + len(growing):
            last = None
        if last is not None and len(body) == len(growing[0]):
            growing.append(body)
        else:
            self._growing = [body]
            self._chunks.append(Chunk(self._growing, token, True))

    def take(self, most: int) -> tuple[int, Sequence[bytes]]:
        """Take out up to `most` messages of one size that follow one another, with the token of the first."""
        chunk = self._chunks[0]
        bodies, start = chunk.bodies, chunk.done
        end = min(len(bodies), start + most)
        if not chunk.equal:
            size = len(bodies[start])
            end = next((at for at in range(start, end) if len(bodies[at]) != size), end)
        chunk.done = end
        self.messages -= end - start
        if end == len(bodies):
            self._chunks.popleft()
        return chunk.token + start, bodies if end - start == len(bodies) else bodies[start:end]

    def put_back(self, bodies: Sequence[bytes], token: int) -> None:
        """Queue messages again that were taken and did not leave, before all others."""
        self._chunks.appendleft(Chunk(bodies, token, True))
        self.messages += len(bodies)

    def clear(self) -> list[tuple[range, int]]:
        """Empty the queue, and return the tokens and bytes of what never left."""
        found = [
            (
                range(chunk.token + chunk.done, chunk.token + len(chunk.bodies)),
                sum(map(len, chunk.bodies[chunk.done :])),
            )
            for chunk in self._chunks
        ]
        self._chunks.clear()
        self.messages = 0
        return found


def _owned(bodies: Sequence[Buffer]) -> Sequence[bytes]:
    """Return bodies that their owner cannot change; where all are bytes none is checked twice."""
    if set(map(type, bodies)) == {bytes}:
        return cast(Sequence[bytes], bodies)
    return [bytes(body) for body in bodies]
