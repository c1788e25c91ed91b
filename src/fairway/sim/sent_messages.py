"""What the judge remembers of messages: who sent what to whom, and what became of it."""

from __future__ import annotations

from fairway.core.events import Address, Peer

RELIABLE, PLAIN, REQUEST, RESPONSE, CONNECT, PING = "reliable", "plain", "request", "response", "connect", "ping"
WITHOUT_OUTCOME = (PLAIN, RESPONSE)

Scope = tuple[int, Address | None]
"""A process of the receiver and, for protocols that tell peers apart by address alone, the address."""


class SentBody:
    """All messages with one body for one receiver; nearly always one, but tiny bodies repeat."""

    __slots__ = ("acked", "body", "committed", "committed_total", "delivered", "delivered_total", "refused", "sends")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.sends: list[Sent] = []
        self.acked = 0
        self.refused = 0
        self.delivered: dict[Scope, int] = {}
        self.delivered_total = 0
        self.committed: dict[Scope, int] | None = None
        """Made when first needed: most runs have no restart to remember it for."""
        self.committed_total = 0


class Sent:
    """One message that a machine accepted."""

    __slots__ = ("accepted_us", "kind", "ordinal", "outcome", "sent_body", "stream", "token")

    def __init__(
        self, sent_body: SentBody, kind: str, stream: Stream, token: int, ordinal: int, accepted_us: int
    ) -> None:
        self.sent_body = sent_body
        self.kind = kind
        self.stream = stream
        self.token = token
        self.ordinal = ordinal
        self.accepted_us = accepted_us
        self.outcome: str | None = None


class Stream:
    """One side's sending half of a conversation: what was accepted on it, in order."""

    __slots__ = ("closed", "open_tokens", "peer", "process", "receiver", "sender", "sends")

    def __init__(self, sender: int, process: int, peer: Peer, receiver: int) -> None:
        self.sender = sender
        self.process = process
        self.peer = peer
        self.receiver = receiver
        self.sends: list[Sent] = []
        self.open_tokens = 0
        self.closed = False


class Arrivals:
    """One side's receiving half of a conversation, for the protocols that keep an order."""

    __slots__ = ("next_ordinal", "offset", "stream")

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.next_ordinal = 0
        self.offset: int | None = None
        """The difference between a message's id and its ordinal: the same for the whole conversation."""
