"""The digest of a run: every datagram, event and time goes in; equal seeds give equal digests everywhere."""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct

from fairway.core.events import Delivered, Event, MessageReceived, MessagesReceived

CHUNK_PIECES = 4_096
_DATAGRAM = Struct(">cQHHI")


class Digest:
    """Hashes in chunks, because a call per datagram would cost as much as the network."""

    __slots__ = ("_hash", "_pieces")

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)
        self._pieces: list[bytes] = []

    def datagram(self, direction: bytes, now_us: int, source: int, destination: int, data: bytes) -> None:
        """Takes in one datagram: `direction` is b">" when it leaves and b"<" when it arrives."""
        pieces = self._pieces
        pieces.append(_DATAGRAM.pack(direction, now_us, source, destination, len(data)))
        pieces.append(data)
        if len(pieces) > CHUNK_PIECES:
            self._flush()

    def event(self, now_us: int, node: int, event: Event) -> None:
        """Takes in one event; the frequent ones by their parts, which is faster than their `repr`."""
        if isinstance(event, MessageReceived):
            self._pieces.append(f"m{now_us} {node} {event.id}".encode())
            self._pieces.append(event.body)
        elif isinstance(event, Delivered):
            self._pieces.append(f"d{now_us} {node} {event.tokens!r}".encode())
        elif isinstance(event, MessagesReceived):
            self._pieces.append(f"M{now_us} {node} {event.first}".encode())
            self._pieces.extend(event.bodies)
        else:
            self.note(f"e{now_us} {node} {event!r}")

    def note(self, text: str) -> None:
        """Takes in anything else that belongs to the run."""
        self._pieces.append(text.encode())

    def _flush(self) -> None:
        self._hash.update(b"".join(self._pieces))
        self._pieces.clear()

    def hexdigest(self) -> str:
        """Gives the digest of all that was taken in so far."""
        self._flush()
        return self._hash.hexdigest()
