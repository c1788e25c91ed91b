"""The order of a connection's messages, restored.

With deferred acknowledgement mrp hands each packet over as it arrives; its number says where it belongs. One that is
ahead of a gap is held, and not yet acknowledged, until the gap is filled. What is held is bounded by the machine, in
which it still occupies a place.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairway.net import Connection, Message
from fairway.protocols import protocol


class _Track:
    """One connection: the number that comes next, and what arrived beyond it."""

    __slots__ = ("held", "next")

    def __init__(self) -> None:
        self.next = 1
        self.held: dict[int, Message] = {}


class Ordering:
    """Return messages back in the order of their connection; those of unordered protocols as they come."""

    def __init__(self) -> None:
        self._tracks: dict[Connection, _Track] = {}

    def arrange(self, message: Message) -> Iterator[Message]:
        """Takes a message and returns those whose turn has come."""
        if isinstance(message.id, str) or not protocol(message.peer.protocol).ordered:
            yield message
            return
        track = self._tracks.setdefault(message.peer, _Track())
        track.held[message.id] = message
        while (ready := track.held.pop(track.next, None)) is not None:
            track.next += 1
            yield ready
