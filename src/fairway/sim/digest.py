"""The digest of a run: datagrams, times, tokens and kinds of outcome; equal seeds give equal digests everywhere.

What a digest leaves out may be changed without changing a run: class names, sentences, and whether events that say the
same come one by one or together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from struct import Struct
from typing import Any

from fairway.core import events
from fairway.core.events import Event

CHUNK_PIECES = 4_096
_DATAGRAM = Struct(">cQHHI")


class Digest:
    """Hashes in chunks, because a call per datagram would cost as much as the network."""

    __slots__ = ("_hash", "_pieces")

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)
        self._pieces: list[bytes] = []

    def datagram(self, direction: bytes, now_us: int, source: int, destination: int, data: bytes) -> None:
        """Add one datagram: `direction` is b">" when it leaves and b"<" when it arrives."""
        pieces = self._pieces
        pieces.append(_DATAGRAM.pack(direction, now_us, source, destination, len(data)))
        pieces.append(data)
        if len(pieces) > CHUNK_PIECES:
            self._flush()

    def event(self, now_us: int, node: int, event: Event) -> None:
        """Add what one event says happened, to each token or message on its own."""
        kind, numbers = _OUTCOMES[type(event)]
        self._pieces.extend([f"{kind} {now_us} {node} {number};".encode() for number in numbers(event)])

    def note(self, text: str) -> None:
        """Add anything else that belongs to the run."""
        self._pieces.append(text.encode())

    def _flush(self) -> None:
        self._hash.update(b"".join(self._pieces))
        self._pieces.clear()

    def hexdigest(self) -> str:
        """Return the digest of everything added so far."""
        self._flush()
        return self._hash.hexdigest()


_OUTCOMES: dict[type[Event], tuple[str, Callable[[Any], Sequence[int | str | None]]]] = {
    events.MessageReceived: ("received", lambda event: (event.id,)),
    events.MessagesReceived: ("received", lambda event: range(event.first, event.first + len(event.bodies))),
    events.PartReceived: ("part", lambda event: (event.id, event.offset)),
    events.RequestReceived: ("request", lambda event: (event.id, event.token)),
    events.ResponseReceived: ("response", lambda event: (event.token, event.id)),
    events.Delivered: ("delivered", lambda event: event.tokens),
    events.DeliveryUnknown: ("unknown", lambda event: event.tokens),
    events.Refused: ("refused", lambda event: event.tokens),
    events.Connected: ("connected", lambda event: (event.token, event.peer.session)),
    events.ConnectRefused: ("connect refused", lambda event: (event.token,)),
    events.ConnectUnknown: ("connect unknown", lambda event: (event.token,)),
    events.PingAnswered: ("ping", lambda event: (event.token,)),
    events.Writable: ("writable", lambda event: (event.peer.session,)),
    events.PeerMoved: ("moved", lambda event: (event.peer.session,)),
    events.Closed: ("closed", lambda event: (event.peer.session,)),
}
"""The kind of an event, and the tokens or ids that it speaks of."""
