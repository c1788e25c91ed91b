"""A conversation with one peer, as the application sees it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from fairway.core.addresses import device_of, format_address
from fairway.core.errors import BadMessage
from fairway.core.events import NOT_SENT, Address, Peer, Receipt
from fairway.core.machine import Buffer, Machine
from fairway.net.inbox import Inbox, Receiving
from fairway.net.messages import Message, Run
from fairway.net.outcomes import ConversationClosed, DeliveryRefused
from fairway.net.sending import Bulk, Outgoing, Singles, Special, Tokens
from fairway.net.urls import format_url

if TYPE_CHECKING:
    from fairway.net.counters import EndpointStatistics
    from fairway.net.endpoint import Endpoint

BODY_TYPES = (bytes, bytearray, memoryview)
ONLY_BYTES = {bytes}


class Connection(Receiving):
    """Sends to one peer and receives from it.

    `send`, `request` and `ping` return futures: to await one means to wait for the outcome, which raises
    `DeliveryRefused` or `DeliveryUnknown` where it is not an acknowledgement. Cancelling one leaves the conversation as
    it is; the message may still be sent. A body is not copied: leave it unchanged until the outcome.
    """

    __slots__ = (
        "_deferred",
        "_endpoint",
        "_loop",
        "_outgoing",
        "_singles",
        "address",
        "closed",
        "identity",
        "private",
    )

    def __init__(self, endpoint: Endpoint, identity: Peer, inbox: Inbox) -> None:
        super().__init__(inbox)
        self.identity = identity
        self.address: Address = identity.address
        self.closed: str | None = None
        """Why the conversation ended, or None while it is open."""
        self.private = False
        """The endpoint serves this connection alone, and closes with it."""
        self._endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        self._outgoing: deque[Outgoing] | None = None
        """What waits to be handed to the machine; made when needed, because of ten thousand peers most are silent."""
        self._singles: Singles | None = None
        """The last of the outgoing, while awaited messages may still be added to it."""
        self._deferred = endpoint.options.deferred

    def __eq__(self, other: object) -> bool:
        """Tells whether both are the same conversation: an endpoint may forget a silent peer and meet it again."""
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
        """The protocol's name of this conversation, as it stands in JSON."""
        return self.identity.session

    @property
    def peer(self) -> str:
        """The peer's host:port, IPv6 in brackets."""
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

    def send(self, body: Buffer, *, reliable: bool = True) -> asyncio.Future[None]:
        """Sends a message; awaited, returns when the peer has acknowledged it.

        `reliable=False` sends it once, without acknowledgement (udpc only).
        """
        if not reliable:
            return self._send_special(body, 0, asks=False)
        if type(body) is not bytes or self.closed is not None or self._endpoint.closing:
            self._check(body)
        future: asyncio.Future[None] = asyncio.Future(loop=self._loop)
        if not self._outgoing and self._endpoint.send_now(self.identity, body, future):
            return future
        singles = self._singles
        if singles is not None:
            singles.bodies.append(body)
            singles.futures.append(future)
            return future
        singles = self._singles = Singles()
        singles.bodies.append(body)
        singles.futures.append(future)
        self._add(singles)
        return future

    def send_many(self, bodies: Iterable[Buffer]) -> asyncio.Future[int]:
        """Sends messages in order; awaited, gives their number when all are acknowledged.

        Otherwise it raises `DeliveryRefused`, or `DeliveryUnknown` if none was refused, whose `tally` counts all.
        """
        sequence = bodies if isinstance(bodies, list | tuple) else list(bodies)
        future: asyncio.Future[int] = self._loop.create_future()
        self._check(b"")
        if set(map(type, sequence)) != ONLY_BYTES:
            for body in sequence:
                self._check(body)
            sequence = [_without_gaps(body) for body in sequence]
        if not sequence:
            future.set_result(0)
            return future
        self._singles = None
        self._add(Bulk(sequence, future))
        return future

    def request(self, body: Buffer, *, asynchronous: bool = False) -> asyncio.Future[Message]:
        """Asks (udpc only); awaited, gives the answer, which is a `Request` itself when the peer asks back.

        `asynchronous` tells the peer that nobody waits; the answer still resolves the future.
        """
        from fairway.protocols.udpc.wire import ASY, REQ

        return self._send_special(body, REQ | ASY if asynchronous else REQ, asks=True)

    def answer(self, request_id: int | str, body: Buffer) -> asyncio.Future[None]:
        """Answers a request; see `Request.reply`."""
        from fairway.protocols.udpc.wire import ACK

        if self.closed is not None and isinstance(body, BODY_TYPES):
            unheard: asyncio.Future[None] = self._loop.create_future()
            unheard.set_result(None)
            return unheard
        return self._send_special(body, ACK, request_id, asks=False)

    def answer_with_request(self, request_id: int | str, body: Buffer) -> asyncio.Future[Message]:
        """Answers a request and asks back; see `Request.reply_with_request`."""
        from fairway.protocols.udpc.wire import ACK, REQ

        return self._send_special(body, ACK | REQ, request_id, asks=True)

    def ping(self) -> asyncio.Future[int]:
        """Asks for a sign of life; awaited, gives the round-trip time in microseconds."""
        self._check(b"")
        return self._endpoint.ping(self.identity)

    def _send_special(
        self, body: Buffer, flags: int, answers: int | str | None = None, *, asks: bool
    ) -> asyncio.Future[Any]:
        self._check(body)
        future: asyncio.Future[Any] = self._loop.create_future()
        self._singles = None
        self._add(Special(body, flags, int(answers) if answers is not None else None, future, asks=asks))
        return future

    def _check(self, body: Buffer) -> None:
        if not isinstance(body, BODY_TYPES):
            raise BadMessage(f"a message is bytes, not {type(body).__name__}; encode it first")
        if self.closed is not None or self._endpoint.closing:
            raise ConversationClosed(self.closed or "the endpoint is closing")

    def _add(self, outgoing: Outgoing) -> None:
        if self._outgoing is None:
            self._outgoing = deque((outgoing,))
            self._endpoint.ready(self)
        else:
            self._outgoing.append(outgoing)

    # For the endpoint.

    @property
    def active(self) -> bool:
        """Tells whether something waits to be handed to the machine."""
        return self._outgoing is not None

    def hand_over(self, machine: Machine, now_us: int, tokens: Tokens) -> bool:
        """Hands what waits to the machine, as far as it has room; tells whether that was all."""
        outgoing = self._outgoing
        while outgoing:
            if len(outgoing) == 1:
                self._singles = None
            if not outgoing[0].hand_over(machine, self.identity, now_us, tokens):
                return False
            outgoing.popleft()
        self._outgoing = None
        return True

    def ended(self, reason: str) -> None:
        """Takes note that the conversation is over. Messages already received stay readable."""
        if self.closed is not None:
            return
        self.closed = reason
        error = DeliveryRefused(NOT_SENT)
        for outgoing in self._outgoing or ():
            outgoing.refuse(error)
        self._outgoing = self._singles = None
        if self.private or self.inbox is not self._endpoint.inbox:
            self.inbox.end(ConversationClosed(reason))

    # Receiving.

    def took(self, messages: int, size: int, receipt: Receipt | None) -> None:
        """Takes note that messages were taken out of the inbox; the receipt is that of a message or run now taken
        whole, which frees its place unless that is deferred."""
        self._endpoint.took(messages, size, receipt)

    def commit(self, receipt: Receipt, run: Run | None = None) -> None:
        """Commits received messages, where acknowledgement is deferred."""
        if self._deferred:
            self._endpoint.commit(receipt, run)

    def snapshot(self, committing: Sequence[Receipt] = ()) -> bytes:
        """Gives the state that must survive a restart, as it will be once the receipts are committed."""
        return self._endpoint.machine.snapshot(self.identity, committing)

    # The end.

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, timeout_s: float | None = None) -> None:
        """Flushes what was accepted, then closes, within the timeout. Twice is fine."""
        if self.private:
            await self._endpoint.close(timeout_s)
        elif self.closed is None:
            await self._endpoint.close_one(self, timeout_s)


def _without_gaps(body: Buffer) -> Buffer:
    """Gives a body that can be joined to a header."""
    return body if not isinstance(body, memoryview) or body.c_contiguous else bytes(body)
