"""What the machines of all protocols do alike: find a conversation, queue messages for it, ping it, close it, flush.

A protocol adds how conversations begin and end, what its datagrams mean, and what of it survives a restart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from fairway.core.events import Address, CloseReason, Peer, Receipt
from fairway.core.machine import UDP_PAYLOAD_BYTES_MAX, Buffer, Options, Transmit
from fairway.core.outputs import Outputs
from fairway.core.recovery.queue import Backlog
from fairway.core.refusals import (
    TOO_LARGE_FOR_PATH,
    endpoint_closed,
    no_flags,
    no_such_peer,
    send_queue_full,
    still_closing,
    too_large,
    too_many_peers,
)
from fairway.core.timers import Deadlines

HEADER_BYTES_MAX = 64
"""More than the headers of any protocol that sends a message in one datagram."""


class SendingHalf(Protocol):
    """What sends the messages of one conversation."""

    backlog: Backlog

    def queue(self, bodies: Sequence[Buffer], token: int, now_us: int, *, equal: bool) -> None:
        """Queue messages that the backlog accepts; `equal` says that all have the same size."""
        ...


class Conversation:
    """What all protocols keep of a conversation."""

    __slots__ = ("closing", "peer")
    header_bytes: ClassVar[int] = 0
    """What a message's datagram holds beside its body."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.closing: CloseReason | None = None
        """Set from `close` on, while outstanding messages are flushed, and after the end."""


AnyConversation = TypeVar("AnyConversation", bound=Conversation)


class EndpointMachine(ABC, Generic[AnyConversation]):
    """One endpoint with all its peers; the contract is `core/machine.py`."""

    name: ClassVar[str]

    def __init__(self, options: Options) -> None:
        self._peers_max = options.peers_max
        self._outputs: Outputs[Any] = Outputs(options)
        self.statistics = self._outputs.statistics
        self.events = self._outputs.events
        self._deadlines: Deadlines[Any] = Deadlines()
        self._datagram_bytes_max = UDP_PAYLOAD_BYTES_MAX
        self._fits_always = UDP_PAYLOAD_BYTES_MAX - HEADER_BYTES_MAX
        """A message of 1 to so many bytes needs no closer look."""
        self._is_shut = False
        self._table: dict[Any, AnyConversation] = {}
        """The conversations by what the protocol finds them by, oldest first."""

    # What a protocol adds.

    @abstractmethod
    def _find(self, peer: Peer) -> AnyConversation | None:
        """Return a conversation that is open or closing."""

    @abstractmethod
    def _sender(self, conversation: AnyConversation) -> SendingHalf:
        """Return the sending half, made when it is first needed."""

    @abstractmethod
    def _flush(self, ready: Any, now_us: int) -> None:
        """Let something that is ready send what it may, and arm its timer."""

    @abstractmethod
    def _close(self, conversation: AnyConversation, reason: CloseReason, now_us: int) -> None:
        """Begin to close a conversation."""

    @abstractmethod
    def snapshot(self, peer: Peer, committing: Sequence[Receipt] = ()) -> bytes: ...

    # Conversations.

    def _known(self, peer: Peer) -> AnyConversation:
        conversation = self._find(peer)
        if conversation is None:
            raise no_such_peer(self.name, peer)
        return conversation

    def _open(self, peer: Peer) -> AnyConversation:
        conversation = self._find(peer)
        if conversation is None or conversation.closing is not None:
            raise no_such_peer(self.name, peer)
        return conversation

    def _check_connect(self, *, full: bool) -> None:
        if self._is_shut:
            raise endpoint_closed()
        if full:
            raise too_many_peers(self._peers_max)

    def close(self, peer: Peer | None, now_us: int) -> None:
        if peer is None:
            self._shut()
        for conversation in list(self._table.values()) if peer is None else [self._known(peer)]:
            if conversation.closing is None:
                conversation.closing = CloseReason.SHUT_DOWN if peer is None else CloseReason.LOCAL
                self._close(conversation, conversation.closing, now_us)

    def _shut(self) -> None:
        self._is_shut = True

    # Messages.

    def send(
        self, peer: Peer, body: Buffer, now_us: int, *, flags: int | None = None, answers: int | None = None
    ) -> int:
        if flags is not None or answers is not None:
            raise no_flags(self.name)
        conversation, size = self._open(peer), len(body)
        if not 0 < size <= self._fits_always:
            self._check_size(conversation, size)
        sender = self._sender(conversation)
        if not sender.backlog.accepts(size):
            raise send_queue_full(peer.address)
        token = self._outputs.token()
        sender.queue((body,), token, now_us, equal=True)
        return token

    def send_many(self, peer: Peer, bodies: Sequence[Buffer], now_us: int) -> range:
        conversation = self._open(peer)
        sizes = list(map(len, bodies))
        different = set(sizes)
        for size in (min(different), max(different)) if different else ():
            if not 0 < size <= self._fits_always:
                self._check_size(conversation, size)
        sender = self._sender(conversation)
        tokens = self._outputs.tokens(sender.backlog.accepts_of(sizes))
        if tokens:
            sender.queue(bodies[: len(tokens)], tokens.start, now_us, equal=len(different) == 1)
        return tokens

    def _check_size(self, conversation: AnyConversation, size: int) -> None:
        limit = self._datagram_bytes_max - conversation.header_bytes
        if size > limit and size > 0:
            whose = "" if self._datagram_bytes_max == UDP_PAYLOAD_BYTES_MAX else TOO_LARGE_FOR_PATH
            raise too_large(self.name, size, max(0, limit), whose)

    def limit_datagrams(self, datagram_bytes: int, *, fragments: bool) -> None:
        if not fragments:
            self._datagram_bytes_max = min(self._datagram_bytes_max, datagram_bytes)
            self._fits_always = min(self._fits_always, datagram_bytes - HEADER_BYTES_MAX)

    def room(self, peer: Peer) -> int:
        return self._sender(self._open(peer)).backlog.room()

    def unfinished(self) -> int:
        return self._outputs.unfinished

    # Outputs.

    def transmits(self) -> list[Transmit]:
        outputs = self._outputs
        if outputs.ready:
            self._flush_ready()
        return outputs.outbox.take() if outputs.outbox.groups else []

    def next_deadline_us(self) -> int | None:
        if self._outputs.ready:
            self._flush_ready()
        return self._deadlines.next_us()

    def _flush_ready(self) -> None:
        found, self._outputs.ready = self._outputs.ready, {}
        for ready, now_us in found.items():
            self._flush(ready, now_us)

    def snapshot_in_pieces(self, peer: Peer, committing: Sequence[Receipt]) -> tuple[bytes, bytes]:
        return self.snapshot(peer, committing), b""


class ConnectionlessMachine(EndpointMachine[AnyConversation]):
    """A machine whose conversations are addresses: `connect` sends nothing, a first message opens one."""

    @abstractmethod
    def _at(self, address: Address) -> AnyConversation | None:
        """Return the conversation with an address, open or closing."""

    @abstractmethod
    def _has_room(self) -> bool:
        """Return whether one more address can be taken in."""

    @abstractmethod
    def _name(self, address: Address, token: int, now_us: int) -> None:
        """Open the conversation with an address that our application named, which proves it, and report it."""

    def _find(self, peer: Peer) -> AnyConversation | None:
        conversation = self._at(peer.address)
        return None if conversation is None or conversation.peer != peer else conversation

    def connect(self, address: Address, now_us: int) -> int:
        known = self._at(address)
        self._check_connect(full=known is None and not self._has_room())
        if known is not None and known.closing is not None:
            raise still_closing(address)
        token = self._outputs.token()
        self._name(address, token, now_us)
        return token
