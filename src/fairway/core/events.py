"""What a machine reports: small frozen facts, named by what happened.

A *token* is the number that `connect`, `send` or `ping` returned; each token gets exactly one outcome. An *id* is the
identity of a received message as it stands in JSON, the journal and the tables: the protocol's own counter widened
to 64 bits, or rup's 32 hexadecimal digits.

Two events speak of many things at once, because a batch that arrives in one system call should cost a few
operations and not a few per message: `MessagesReceived`, and the outcomes, whose `tokens` is a sequence (often a
`range`). A listener that does not care iterates. The two events that every single message causes, `MessageReceived`
and `Delivered`, are tuples: they are made in a third of the time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

Address = Hashable
"""Where a datagram goes or came from; opaque to machines. Sockets and the simulator use `(host, port, ...)` tuples."""


NOT_SENT = "not sent"
"""The reason of `Refused` for a message of which nothing was ever transmitted: it cannot have arrived."""
NO_ACKNOWLEDGEMENT = "no acknowledgement in time"
"""The reason of `DeliveryUnknown` for a message."""
NO_RESPONSE = "no response in time"
"""The same for a request."""
NO_ANSWER = "no answer in time"
"""The same for a ping, and the reason of `ConnectUnknown`."""


class Peer(NamedTuple):
    """One conversation of a machine, as a value that stays the same for its whole life.

    `session` is what JSON shows (udpc sessionID, mrp sv_conid, None for the connectionless two). `local` tells two
    mrp connections apart that happen to share address and sv_conid, one opened by each side; 0 elsewhere.
    """

    address: Address
    session: int | None = None
    local: int = 0


class Receipt(NamedTuple):
    """Names received messages that the application still has to commit: `count` of them with consecutive ids."""

    peer: Peer
    first: int | str
    count: int = 1  # type: ignore[assignment]  # the field matters more than tuple.count


class CloseReason(StrEnum):
    """Why a conversation ended."""

    LOCAL = "closed by this side"
    REMOTE = "closed by the peer"
    TIMED_OUT = "the peer is silent"
    REPLACED = "the peer opened a new session from the same address"
    FORGOTTEN = "nothing valid was received for too long"
    SHUT_DOWN = "the endpoint was shut down"


@dataclass(frozen=True)
class Connected:
    """A conversation is open. `token` is that of our `connect`, or None when the peer called us."""

    peer: Peer
    token: int | None


@dataclass(frozen=True)
class ConnectRefused:
    """The peer, or a rule, said no to our `connect`."""

    token: int
    address: Address
    reason: str


@dataclass(frozen=True)
class ConnectUnknown:
    """Our `connect` got no answer in time."""

    token: int
    address: Address
    reason: str


class MessageReceived(NamedTuple):
    """One message arrived, once. Committing `receipt` frees its slot and, when deferred, acknowledges it."""

    peer: Peer
    id: int | str
    body: bytes
    reliable: bool = True

    @property
    def receipt(self) -> Receipt:
        return Receipt(self.peer, self.id)


@dataclass(frozen=True)
class MessagesReceived:
    """Several messages with consecutive ids arrived in one batch; equal to as many `MessageReceived` in order."""

    peer: Peer
    first: int
    bodies: Sequence[bytes]
    reliable: bool = True

    @property
    def receipt(self) -> Receipt:
        return Receipt(self.peer, self.first, len(self.bodies))

    def __iter__(self) -> Iterator[MessageReceived]:
        for position, body in enumerate(self.bodies):
            yield MessageReceived(self.peer, self.first + position, body, self.reliable)


@dataclass(frozen=True)
class PartReceived:
    """A part of a large message, for an application that spools it; `MessageReceived` with an empty body ends it."""

    peer: Peer
    id: str
    offset: int
    total: int
    body: bytes


@dataclass(frozen=True)
class RequestReceived:
    """The peer asks and waits for a response to `id`; `token` is set when it also answers our own request."""

    peer: Peer
    id: int
    body: bytes
    asynchronous: bool
    token: int | None = None

    @property
    def receipt(self) -> Receipt:
        return Receipt(self.peer, self.id)


@dataclass(frozen=True)
class ResponseReceived:
    """The answer to our request `token`."""

    peer: Peer
    token: int
    id: int
    body: bytes


class Delivered(NamedTuple):
    """The peer acknowledged these sends."""

    peer: Peer
    tokens: Sequence[int]


@dataclass(frozen=True)
class DeliveryUnknown:
    """No answer in time: these may have arrived."""

    peer: Peer
    tokens: Sequence[int]
    reason: str


@dataclass(frozen=True)
class Refused:
    """The peer or a rule said no, or nothing of these was ever transmitted (`NOT_SENT`)."""

    peer: Peer
    tokens: Sequence[int]
    reason: str


@dataclass(frozen=True)
class Writable:
    """The send queue of this peer has room again, after a `QueueFull`."""

    peer: Peer


@dataclass(frozen=True)
class PingAnswered:
    """The peer answered our `ping`."""

    peer: Peer
    token: int
    rtt_us: int


@dataclass(frozen=True)
class PeerMoved:
    """The conversation goes on at another address."""

    peer: Peer
    address: Address


@dataclass(frozen=True)
class Closed:
    """The conversation is over; nothing more is reported of it. Every open token had its outcome before."""

    peer: Peer
    reason: CloseReason


Event = (
    Connected
    | ConnectRefused
    | ConnectUnknown
    | MessageReceived
    | MessagesReceived
    | PartReceived
    | RequestReceived
    | ResponseReceived
    | Delivered
    | DeliveryUnknown
    | Refused
    | Writable
    | PingAnswered
    | PeerMoved
    | Closed
)
