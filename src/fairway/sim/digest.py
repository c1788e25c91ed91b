"""The digest of a run: datagrams, times, tokens and kinds of outcome; equal seeds give equal digests everywhere.

What a digest leaves out may be changed without changing a run: class names, sentences, and whether events that say the
same come one by one or together.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from struct import Struct

from fairway.core.events import (
    Closed,
    Connected,
    ConnectRefused,
    ConnectUnknown,
    Delivered,
    DeliveryUnknown,
    Event,
    MessageReceived,
    MessagesReceived,
    PartReceived,
    PeerMoved,
    PingAnswered,
    Refused,
    RequestReceived,
    ResponseReceived,
    Writable,
)

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
        kind, numbers = _outcome(event)
        self._pieces.extend([f"{kind} {now_us} {node} {number};".encode() for number in numbers])

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


def _outcome(event: Event) -> tuple[str, Sequence[int | str | None]]:
    """Return the kind of an event and the tokens or ids that it speaks of."""
    match event:
        case MessageReceived():
            return "received", (event.id,)
        case MessagesReceived():
            return "received", range(event.first, event.first + len(event.bodies))
        case PartReceived():
            return "part", (event.id, event.offset)
        case RequestReceived():
            return "request", (event.id, event.token)
        case ResponseReceived():
            return "response", (event.token, event.id)
        case Delivered():
            return "delivered", event.tokens
        case DeliveryUnknown():
            return "unknown", event.tokens
        case Refused():
            return "refused", event.tokens
        case Connected():
            return "connected", (event.token, event.peer.session)
        case ConnectRefused():
            return "connect refused", (event.token,)
        case ConnectUnknown():
            return "connect unknown", (event.token,)
        case PingAnswered():
            return "ping", (event.token,)
        case Writable():
            return "writable", (event.peer.session,)
        case PeerMoved():
            return "moved", (event.peer.session,)
        case Closed():
            return "closed", (event.peer.session,)
