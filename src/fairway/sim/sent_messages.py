"""What the judge remembers of messages: who sent what to whom, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairway.core.events import Address, Peer

RELIABLE, PLAIN, REQUEST, RESPONSE, CONNECT, PING = "reliable", "plain", "request", "response", "connect", "ping"
WITHOUT_OUTCOME = (PLAIN, RESPONSE)

Scope = tuple[int, Address | None]
"""A process of the receiver and, for protocols that tell peers apart by address alone, the address."""


@dataclass(slots=True, eq=False)
class SentBody:
    """All messages with one body for one receiver; nearly always one, but tiny bodies repeat."""

    body: bytes
    sends: list[Sent] = field(default_factory=list)
    acked: int = 0
    refused: int = 0
    delivered: dict[Scope, int] = field(default_factory=dict)
    delivered_total: int = 0
    committed: dict[Scope, int] | None = None
    """Made when first needed: most runs have no restart to remember it for."""
    committed_total: int = 0


@dataclass(slots=True, eq=False)
class Sent:
    """One message that a machine accepted."""

    sent_body: SentBody
    kind: str
    stream: Stream
    token: int
    ordinal: int
    accepted_us: int
    outcome: str | None = None


@dataclass(slots=True, eq=False)
class Stream:
    """One side's sending half of a conversation: what was accepted on it, in order."""

    sender: int
    process: int
    peer: Peer
    receiver: int
    sends: list[Sent] = field(default_factory=list)
    open_tokens: int = 0
    closed: bool = False


@dataclass(slots=True, eq=False)
class Arrivals:
    """One side's receiving half of a conversation, for the protocols that keep an order."""

    stream: Stream
    next_ordinal: int = 0
    offset: int | None = None
    """The difference between a message's id and its ordinal: the same for the whole conversation."""
