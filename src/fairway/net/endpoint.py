"""An endpoint: what the application awaits of the conversations of one machine.

What the application wants sent is gathered during a turn of the loop and submitted to the machine together; outcomes
resolve the futures of those who wait, many at a time. No message has a task or a timer of its own. Conversations and
what arrives on them are reported to an `EventHandler`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from itertools import chain
from typing import Any

from fairway.core import events
from fairway.core.errors import CallerError, NoSuchPeer, QueueFull
from fairway.core.events import Address, Event, Peer, Receipt
from fairway.core.machine import Buffer, Machine, Options
from fairway.net.counters import EndpointStatistics
from fairway.net.driver import Driver
from fairway.net.layers import EventHandler
from fairway.net.outcomes import ConnectRefused, ConnectUnknown, DeliveryRefused, DeliveryUnknown
from fairway.net.sending import Outbox, Tokens
from fairway.net.urls import format_url

COMMITS_MAX = 64
"""Receipts of taken messages that wait for the next turn at the most."""

_log = logging.getLogger("fairway.net")


class Endpoint:
    """Serves the conversations of one machine. Applications see `Connection` and `Listener`."""

    def __init__(
        self,
        driver: Driver,
        options: Options,
        make_handler: Callable[[Endpoint], EventHandler],
        *,
        close_timeout_s: float,
        scheme: str = "",
    ) -> None:
        self.driver = driver
        self.machine: Machine = driver.machine
        self.scheme = scheme or driver.machine.name
        """Of its URL: the protocol, or what says that it is inside DTLS."""
        self.options = options
        self.closing = False
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self._close_timeout_s = close_timeout_s
        self._tokens = Tokens()
        self._ready: list[Outbox] = []
        self._blocked: dict[Peer, list[Outbox]] = {}
        """Outboxes for which the machine had no room; an event says when it has."""
        self._commits: list[Receipt] = []
        self._commit_run: object = None
        """The run that the last of the commits is a part of."""
        self._connecting = 0
        self._said_too_large = False
        self._handler = handler = make_handler(self)
        self._reports: dict[type[Event], Callable[[Any], object]] = {
            events.Connected: self._connected,
            events.ConnectRefused: lambda event: self._resolve(event.token, ConnectRefused(event.reason)),
            events.ConnectUnknown: self._connect_unknown,
            events.MessageReceived: handler.message,
            events.MessagesReceived: handler.messages,
            events.PartReceived: handler.part,
            events.RequestReceived: self._request_received,
            events.ResponseReceived: self._response_received,
            events.Delivered: self._delivered,
            events.DeliveryUnknown: self._delivery_unknown,
            events.Refused: lambda event: self._failed(event, DeliveryRefused),
            events.Writable: lambda event: self._retry(event.peer),
            events.PingAnswered: lambda event: self._resolve(event.token, event.rtt_us),
            events.PeerMoved: handler.moved,
            events.Closed: self._closed,
        }

    def start(self) -> None:
        self.driver.start(self, self._handler.screen, self._handler.outer_screen)

    @property
    def protocol(self) -> str:
        return self.machine.name

    @property
    def url(self) -> str:
        """The URL of the bound socket, with its real port."""
        return format_url(self.scheme, self.driver.link.local)

    @property
    def statistics(self) -> EndpointStatistics:
        """What the machine and the socket have counted."""
        link = self.driver.link
        link.refresh()
        return EndpointStatistics(self.protocol, self.machine.statistics, link.counters, link.dtls)

    # From above.

    def ready(self, outbox: Outbox) -> None:
        """Submit what an outbox holds at the end of the turn."""
        self._ready.append(outbox)
        self.driver.schedule()

    def send_now(self, peer: Peer, body: Buffer, future: asyncio.Future[None]) -> bool:
        """Send the first message after a pause at once, and return whether that was done.

        To wait for the end of the turn would cost a lone message a turn of the loop. With others under way, what is
        gathered until the turn ends leaves together.
        """
        driver = self.driver
        tokens, futures = self._tokens, self._tokens.futures
        if futures or tokens.ranges or tokens.crowded or driver.flush_scheduled or driver.closed:
            return False
        try:
            futures[self.machine.send(peer, body, driver.now_us())] = future
            driver.settle()
        except QueueFull:
            return False
        except CallerError as error:
            future.set_exception(error)
        except Exception as error:
            self.failed(error)
            raise
        return True

    def answer(self, peer: Peer, request: int, body: Buffer) -> None:
        """Answer a request at the end of the turn; raise `CallerError` if that cannot be done any more."""
        self.machine.send(peer, body, self.driver.now_us(), answers=request)
        self.driver.schedule()

    def commit(self, receipt: Receipt, run: object = None) -> None:
        """Commit received messages at the end of the turn.

        Neighbours of one run become one receipt, but never those of two: what is committed as it was delivered costs a
        machine least.
        """
        commits = self._commits
        if commits and run is not None and run is self._commit_run:
            peer, first, count = commits[-1]
            if isinstance(first, int) and first + count == receipt.first:
                commits[-1] = Receipt(peer, first, count + receipt.count)
                return
        self._commit_run = run
        commits.append(receipt)
        self.driver.schedule()

    def free(self, receipt: Receipt, *, urgent: bool) -> None:
        """Free the slots of messages that the application took.

        While slots are plenty they are freed in passing, after the next datagram that arrives; when they are few, at
        the end of this turn and before any further datagram.
        """
        self._commits.append(receipt)
        self._commit_run = None
        self.driver.gathered = True
        if urgent or len(self._commits) >= COMMITS_MAX:
            self.driver.urgent = True
            self.driver.schedule()

    def restore(self, snapshot: bytes) -> Peer:
        peer = self.machine.restore(snapshot, self.driver.now_us())
        self.driver.schedule()
        return peer

    async def connect(self, address: Address) -> Peer:
        """Open a conversation; raise `ConnectRefused` or `ConnectUnknown`."""
        future: asyncio.Future[Peer] = self.loop.create_future()
        token = self.machine.connect(address, self.driver.now_us())
        self._tokens.futures[token] = future
        self._connecting += 1
        self.driver.link.expect_errors(True)
        self.driver.flush()
        try:
            return await future
        finally:
            self._connecting -= 1
            if not self._connecting and not self.driver.closed:
                self.driver.link.expect_errors(False)

    def ping(self, peer: Peer) -> asyncio.Future[int]:
        """Ask the peer for a sign that it is there; the result is the round-trip time in microseconds."""
        future: asyncio.Future[int] = self.loop.create_future()
        self._tokens.futures[self.machine.ping(peer, self.driver.now_us())] = future
        self.driver.schedule()
        return future

    def pause(self) -> None:
        self.driver.link.pause()

    def resume(self) -> None:
        self.driver.link.resume()

    # From the driver.

    def report(self, event: Event) -> None:
        self._reports[type(event)](event)

    def gather(self, now_us: int) -> bool:
        """Submit commits and gathered messages.

        Commits that acknowledge nothing only free slots: no datagram and no event follows from them.
        """
        if self._commits:
            commits, self._commits = self._commits, []
            for receipt in commits:
                self.machine.commit(receipt, now_us)
        if not self._ready:
            return self.options.deferred
        ready, self._ready = self._ready, []
        for outbox in ready:
            if not outbox.submit(self.machine, now_us, self._tokens):
                self._blocked.setdefault(outbox.peer, []).append(outbox)
        return True

    def oversized(self) -> None:
        if not self._said_too_large:
            self._said_too_large = True
            limit = getattr(self.options, "message_bytes_max", 0)
            _log.warning("%s: a message above message_bytes_max=%d is not taken (said once)", self.url, limit)

    def failed(self, error: Exception) -> None:
        self._end(f"the endpoint failed: {error!r}")

    # Events.

    def _connected(self, event: events.Connected) -> None:
        self._handler.connected(event)
        if event.token is None:
            return
        future = self._tokens.futures.pop(event.token, None)
        if future is None or future.done():
            # Nobody waits any more: the caller was cancelled.
            self.machine.close(event.peer, self.driver.now_us())
        else:
            future.set_result(event.peer)

    def _connect_unknown(self, event: events.ConnectUnknown) -> None:
        refused = event.reason == self.driver.refusal
        self._resolve(event.token, (ConnectRefused if refused else ConnectUnknown)(event.reason))

    def _resolve(self, token: int, result: object) -> bool:
        """Resolve the future of a token, if somebody still waits, and return whether that is so."""
        future = self._tokens.futures.pop(token, None)
        if future is None or future.done():
            return False
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
        return True

    def _request_received(self, event: events.RequestReceived) -> None:
        if event.token is None or not self._resolve(event.token, event):
            self._handler.request(event)
            return
        self._retry(event.peer)
        if not self.options.deferred:
            self.commit(event.receipt)

    def _response_received(self, event: events.ResponseReceived) -> None:
        self._resolve(event.token, event)
        self._retry(event.peer)

    def _delivered(self, event: events.Delivered) -> None:
        self._tokens.delivered(event.tokens)
        if self._blocked:
            self._retry(event.peer)

    def _delivery_unknown(self, event: events.DeliveryUnknown) -> None:
        refused = event.reason == self.driver.refusal
        self._failed(event, DeliveryRefused if refused else DeliveryUnknown)

    def _failed(
        self, event: events.DeliveryUnknown | events.Refused, error: type[DeliveryRefused] | type[DeliveryUnknown]
    ) -> None:
        self._tokens.failed(event.tokens, error, event.reason)
        self._retry(event.peer)

    def _retry(self, peer: Peer) -> None:
        if self._blocked and (blocked := self._blocked.pop(peer, None)) is not None:
            self._ready.extend(blocked)
            self.driver.gathered = True

    def _closed(self, event: events.Closed) -> None:
        for outbox in self._blocked.pop(event.peer, ()):
            outbox.refuse()
        self._handler.closed(event)

    # The end.

    async def close(self, timeout_s: float | None = None, linger_s: float = 0.0) -> None:
        """Flush what was accepted, close every conversation, then the socket; within the timeout. Twice is fine.

        `linger_s` keeps the socket for that long after all is done, to answer duplicates of what was acknowledged.
        """
        if self.driver.closed:
            return
        self.closing = True
        try:
            async with asyncio.timeout(self._close_timeout_s if timeout_s is None else timeout_s):
                await self.driver.until(lambda: not self._ready and not self._blocked)
                self.machine.close(None, self.driver.now_us())
                self.driver.flush()
                await self.driver.until(lambda: self.machine.unfinished() == 0)
            if linger_s > 0:
                await asyncio.sleep(linger_s)
        except TimeoutError:
            _log.debug("%s: closed before everything had an outcome", self.url)
        finally:
            self._end("the endpoint was closed before an answer came")

    async def close_peer(self, peer: Peer, finished: Callable[[], bool], timeout_s: float | None) -> None:
        """Flush what one conversation accepted, then close it, and wait until it has `finished`; within the timeout."""
        try:
            async with asyncio.timeout(self._close_timeout_s if timeout_s is None else timeout_s):
                await self.driver.until(lambda: peer not in self._blocked and all(o.peer != peer for o in self._ready))
                self.machine.close(peer, self.driver.now_us())
                self.driver.flush()
                await self.driver.until(finished)
        except (TimeoutError, NoSuchPeer):
            _log.debug("%s: a conversation was closed before everything had an outcome", self.url)

    def leave(self) -> None:
        """Close the socket without a word to any peer: whoever restores the conversations goes on with them."""
        self._end("the endpoint was left")

    def _end(self, reason: str) -> None:
        """End whatever is still open, and let go of the socket."""
        if self.driver.closed:
            return
        self.closing = True
        self.driver.close()
        outboxes = [*self._ready, *chain.from_iterable(self._blocked.values())]
        self._ready, self._blocked = [], {}
        self._tokens.abandon(reason)
        for outbox in outboxes:
            outbox.refuse()
        self._handler.ended(reason)
