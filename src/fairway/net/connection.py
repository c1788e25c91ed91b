"""A conversation with one peer, as the application sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any, Self

from fairway.core import events
from fairway.core.addresses import device_of, format_address
from fairway.core.errors import BadMessage
from fairway.core.events import Address, Peer, Receipt
from fairway.core.machine import Buffer
from fairway.net.inbox import Inbox, Receiving
from fairway.net.messages import Message, Request, Run
from fairway.net.outcomes import ConversationClosed, DeliveryUnknown, within
from fairway.net.sending import Bulk, Outbox, Outgoing, Special
from fairway.net.urls import format_url

if TYPE_CHECKING:
    from fairway.net.conversations import Conversations
    from fairway.net.counters import EndpointStatistics

BODY_TYPES = (bytes, bytearray, memoryview)
ONLY_BYTES = {bytes}


class Closing:
    """Something that an `async with` closes at its end."""

    __slots__ = ()

    async def close(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.close()


class Connection(Receiving, Closing):
    """Sends to one peer and receives from it.

    `send` and `request` wait for the outcome, and raise `DeliveryRefused` or `DeliveryUnknown` where it is not an
    acknowledgement or an answer. Cancelling one leaves the conversation as it is; the message may still be sent. A body
    is not copied: leave it unchanged until the outcome.
    """

    __slots__ = (
        "_conversations",
        "_endpoint",
        "_inbox",
        "_left",
        "_outbox",
        "_private",
        "address",
        "closed",
        "identity",
    )

    def __init__(self, conversations: Conversations, identity: Peer) -> None:
        self.identity = identity
        """The protocol's name of this conversation."""
        self.address: Address = identity.address
        self.closed: str | None = None
        """Why the conversation ended, or None while it is open."""
        self._conversations = conversations
        self._endpoint = conversations.endpoint
        self._private = False
        """The endpoint serves this connection alone, and closes with it."""
        self._inbox = conversations.inbox
        """Where its messages arrive: that of the listener, until somebody receives from this connection."""
        self._outbox: Outbox | None = None
        self._left: asyncio.Future[str] | None = None
        # Made when needed, because of ten thousand peers most are silent.

    def __eq__(self, other: object) -> bool:
        """Return whether both are the same conversation: an endpoint may forget a silent peer and meet it again."""
        if not isinstance(other, Connection):
            return NotImplemented
        return self.identity == other.identity and self._endpoint is other._endpoint

    def __hash__(self) -> int:
        return hash(self.identity)

    def __repr__(self) -> str:
        return f"<Connection {self.url}{f' ({self.closed})' if self.closed else ''}>"

    @property
    def protocol(self) -> str:
        return self._endpoint.protocol

    @property
    def session(self) -> int | None:
        return self.identity.session

    @property
    def peer(self) -> str:
        return format_address(self.address)

    @property
    def url(self) -> str:
        return format_url(self._endpoint.scheme, self.address)

    @property
    def device(self) -> str | None:
        """The peer's authenticated name; None on a plain port."""
        return device_of(self.address)

    @property
    def statistics(self) -> EndpointStatistics:
        """What the endpoint of this conversation has counted."""
        return self._endpoint.statistics

    # Sending.

    async def send(self, body: Buffer, *, reliable: bool = True, timeout: float | None = None) -> None:
        """Send a message and return when the peer has acknowledged it.

        `reliable=False` sends it once, without acknowledgement (udpc only). After `timeout` seconds without an
        acknowledgement `DeliveryUnknown` is raised; the message may still arrive.
        """
        sending = self.send_nowait(body, reliable=reliable)
        if timeout is None:
            await sending
        else:
            await within(sending, timeout, DeliveryUnknown)

    def send_nowait(self, body: Buffer, *, reliable: bool = True) -> asyncio.Future[None]:
        """Send a message now, or with others at the end of the turn, and return a future of its outcome."""
        if not reliable:
            return self._send_special(body, 0, asks=False)
        endpoint = self._endpoint
        if type(body) is not bytes or self.closed is not None or endpoint.closing:
            self._check(body)
        future: asyncio.Future[None] = asyncio.Future(loop=endpoint.loop)
        outbox = self._outbox
        if outbox is None or not outbox.outgoing:
            if endpoint.send_now(self.identity, body, future):
                return future
            if outbox is None:
                outbox = self._outbox = Outbox(self.identity)
        if outbox.add_single(body, future):
            endpoint.ready(outbox)
        return future

    def send_many(self, bodies: Iterable[Buffer]) -> asyncio.Future[int]:
        """Send messages in order; the future's result is their number when all are acknowledged.

        Otherwise it raises `DeliveryRefused`, or `DeliveryUnknown` if none was refused, whose `tally` counts all.
        """
        sequence = bodies if isinstance(bodies, list | tuple) else list(bodies)
        future: asyncio.Future[int] = self._endpoint.loop.create_future()
        self._check(b"")
        if set(map(type, sequence)) != ONLY_BYTES:
            for body in sequence:
                self._check(body)
            sequence = [_without_gaps(body) for body in sequence]
        if not sequence:
            future.set_result(0)
            return future
        self._add(Bulk(sequence, future))
        return future

    async def request(self, body: Buffer, *, asynchronous: bool = False, timeout: float | None = None) -> Message:
        """Ask (udpc only) and return the answer, which is a `Request` itself when the peer asks back.

        `asynchronous` tells the peer that nobody waits; the answer comes all the same. After `timeout` seconds without
        an answer `DeliveryUnknown` is raised.
        """
        from fairway.protocols.udpc.wire import ASY, REQ

        future = self._send_special(body, REQ | ASY if asynchronous else REQ, asks=True)
        return self._answer_in(await within(future, timeout, DeliveryUnknown))

    def ping(self) -> asyncio.Future[int]:
        """Ask the peer to answer; the future's result is the round-trip time in microseconds."""
        self._check(b"")
        return self._endpoint.ping(self.identity)

    def _answer(self, request_id: int | str, body: Buffer) -> asyncio.Future[None]:
        from fairway.protocols.udpc.wire import ACK

        if self.closed is not None and isinstance(body, BODY_TYPES):
            unheard: asyncio.Future[None] = self._endpoint.loop.create_future()
            unheard.set_result(None)
            return unheard
        return self._send_special(body, ACK, request_id, asks=False)

    async def _answer_with_request(self, request_id: int | str, body: Buffer, timeout: float | None) -> Message:
        from fairway.protocols.udpc.wire import ACK, REQ

        future = self._send_special(body, ACK | REQ, request_id, asks=True)
        return self._answer_in(await within(future, timeout, DeliveryUnknown))

    def _answer_in(self, event: events.RequestReceived | events.ResponseReceived) -> Message:
        if isinstance(event, events.RequestReceived):
            return Request(self, event.id, event.body, event.asynchronous)
        return Message(self, event.id, event.body)

    def _send_special(
        self, body: Buffer, flags: int, answers: int | str | None = None, *, asks: bool
    ) -> asyncio.Future[Any]:
        self._check(body)
        future: asyncio.Future[Any] = self._endpoint.loop.create_future()
        self._add(Special(body, flags, int(answers) if answers is not None else None, future, asks=asks))
        return future

    def _check(self, body: Buffer) -> None:
        if not isinstance(body, BODY_TYPES):
            raise BadMessage(f"a message is bytes, not {type(body).__name__}; encode it first")
        if self.closed is not None or self._endpoint.closing:
            raise ConversationClosed(self.closed or "the endpoint is closing")

    def _add(self, outgoing: Outgoing) -> None:
        if self._outbox is None:
            self._outbox = Outbox(self.identity)
        if self._outbox.add(outgoing):
            self._endpoint.ready(self._outbox)

    # Receiving.

    @property
    def _claimed(self) -> bool:
        """Whether this connection has an inbox of its own."""
        return self._inbox is not self._conversations.inbox

    @property
    def _held(self) -> bool:
        """Whether somebody would miss this object."""
        return self._claimed or self._left is not None

    def _claim(self) -> Inbox:
        """Return an inbox that has the messages of this peer alone; its listener receives them no longer."""
        inbox = self._inbox
        if inbox is self._conversations.inbox:
            inbox = self._inbox = self._conversations.claim(self)
            if self.closed is not None:
                inbox.end(ConversationClosed(self.closed))
        return inbox

    def __aiter__(self) -> AsyncIterator[Message]:
        """Iterate over the messages of this peer, until it has left."""
        self._claim()
        return super().__aiter__()

    def _commit(self, receipt: Receipt, run: Run | None = None) -> None:
        """Acknowledge received messages, where that is deferred; from whatever thread."""
        endpoint = self._endpoint
        if not endpoint.options.deferred:
            return
        if get_ident() == endpoint.thread:
            endpoint.commit(receipt, run)
            return
        try:
            endpoint.loop.call_soon_threadsafe(endpoint.commit, receipt)
        except RuntimeError as error:
            raise ConversationClosed("the event loop of this conversation has ended") from error

    def snapshot(self, committing: Sequence[Receipt] = ()) -> bytes:
        """Return the state that must survive a restart, as it will be once the receipts are committed."""
        return self._endpoint.machine.snapshot(self.identity, committing)

    # The end.

    async def wait_closed(self) -> str:
        """Wait until the conversation is over, and return why."""
        if self.closed is not None:
            return self.closed
        if self._left is None:
            self._left = self._endpoint.loop.create_future()
            self._conversations.keep(self)
        return await asyncio.shield(self._left)

    def _end(self, reason: str) -> None:
        """Note that the conversation is over. Messages already received stay readable."""
        if self.closed is not None:
            return
        self.closed = reason
        if self._outbox is not None:
            self._outbox.refuse()
        if self._claimed:
            self._inbox.end(ConversationClosed(reason))
        if self._left is not None:
            self._left.set_result(reason)

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush what was accepted, then close, within the timeout. Twice is fine.

        On a listener, what was not received from this connection by then is dropped.
        """
        if self._private:
            await self._endpoint.close(timeout_s)
            return
        if self.closed is None:
            await self._conversations.close(self, timeout_s)
        if self._claimed:
            self._inbox.discard()


def _without_gaps(body: Buffer) -> Buffer:
    """Return a body that can be joined to a header."""
    return body if not isinstance(body, memoryview) or body.c_contiguous else bytes(body)
