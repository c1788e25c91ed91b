"""An endpoint: conversations of one machine, and what the application awaits of them.

What the application wants sent is gathered during a turn of the loop and handed to the machine together; outcomes
resolve the futures of those who wait, many at a time. No message has a task or a timer of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import chain
from typing import Any

from fairway.core import events
from fairway.core.errors import CallerError, NoSuchPeer, QueueFull
from fairway.core.events import Address, Event, Peer, Receipt
from fairway.core.machine import Buffer, Machine, Options
from fairway.net.connection import Connection
from fairway.net.counters import EndpointStatistics
from fairway.net.driver import Driver
from fairway.net.inbox import Arrival, Inbox
from fairway.net.messages import Message, Part, Request, Run
from fairway.net.outcomes import ConnectRefused, ConnectUnknown, ConversationClosed, DeliveryRefused, DeliveryUnknown
from fairway.net.recorder import Recorder
from fairway.net.sending import Tokens
from fairway.net.urls import format_url

PASSIVE_MAX = 4_096
"""Handles of connectionless peers that are kept before those which nobody connected are made anew when needed."""
COMMITS_MAX = 64
"""Receipts of taken messages that wait for the next turn at the most."""

_log = logging.getLogger("fairway.net")


class Endpoint:
    """Serves the conversations of one machine. Applications see `Connection` and `Listener`."""

    def __init__(
        self, machine: Machine, options: Options, inbox: Inbox, recorder: Recorder | None, *, close_timeout_s: float
    ) -> None:
        self.machine = machine
        self.scheme = machine.name
        """Of its URL: with DTLS another than the protocol."""
        self.options = options
        self.close_timeout_s = close_timeout_s
        self.driver = Driver(machine, self, recorder)
        self._recorder = recorder.share() if recorder is not None else None
        self.closing = False
        self.gathered = False
        self.short_of_places = False
        self.inbox = inbox
        self._loop = asyncio.get_running_loop()
        self._tokens = Tokens()
        self._connections: dict[Peer, Connection] = {}
        self._ready: list[Connection] = []
        self._blocked: dict[Peer, list[Connection]] = {}
        """Connections for which the machine had no room; an event says when it has."""
        self._commits: list[Receipt] = []
        self._commit_run: Run | None = None
        """The run that the last of the commits is a part of."""
        self._connecting = 0
        self._unread_messages = 0
        self._unread_bytes = 0
        self._paused = False
        self._said_too_large = False
        self.awaited: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._reports: dict[type[Event], Callable[[Any], None]] = {
            events.Connected: self._connected,
            events.ConnectRefused: self._connect_refused,
            events.ConnectUnknown: self._connect_unknown,
            events.MessageReceived: self._message_received,
            events.MessagesReceived: self._messages_received,
            events.PartReceived: self._part_received,
            events.RequestReceived: self._request_received,
            events.ResponseReceived: self._response_received,
            events.Delivered: self._delivered,
            events.DeliveryUnknown: self._delivery_unknown,
            events.Refused: self._refused,
            events.Writable: self._writable,
            events.PingAnswered: self._ping_answered,
            events.PeerMoved: self._peer_moved,
            events.Closed: self._peer_closed,
        }

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
        return EndpointStatistics(self.protocol, self.machine.statistics, link.counters, getattr(link, "dtls", None))

    # Inputs from the application.

    def ready(self, connection: Connection) -> None:
        """Takes note that a connection has something to hand over at the end of the turn."""
        self._ready.append(connection)
        self.gathered = True
        self.driver.schedule()

    def send_now(self, peer: Peer, body: Buffer, future: asyncio.Future[None]) -> bool:
        """Sends the first message after a pause at once, and tells whether it did.

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
            self.broken(error)
            raise
        return True

    def commit(self, receipt: Receipt, run: Run | None = None) -> None:
        """Commits received messages at the end of the turn.

        Neighbours of one run become one receipt, but never those of two: what is committed as it was handed over costs
        a machine least.
        """
        commits = self._commits
        if commits and run is not None and run is self._commit_run:
            peer, first, count = commits[-1]
            if isinstance(first, int) and first + count == receipt.first:
                commits[-1] = Receipt(peer, first, count + receipt.count)
                return
        self._commit_run = run
        commits.append(receipt)
        self.gathered = True
        self.driver.schedule()

    def took(self, messages: int, size: int, receipt: Receipt | None) -> None:
        """Takes note that the application took messages out of an inbox, and frees the places of those in the receipt.

        While places are plenty they are freed in passing, after the next datagram that arrives; when they are few, at
        the end of this turn and before any further datagram.
        """
        options = self.options
        if receipt is not None and not options.deferred:
            self._commits.append(receipt)
            self._commit_run = None
            self.gathered = True
            if (
                len(self._commits) >= COMMITS_MAX
                or self._unread_messages * 4 >= options.open_receipts_max
                or self._unread_bytes * 4 >= options.open_receipt_bytes_max
            ):
                self.short_of_places = True
                self.driver.schedule()
        self._unread_messages -= messages
        self._unread_bytes -= size
        if self._paused and not self._overfull(1):
            self._paused = False
            self.driver.link.resume()

    def _overfull(self, factor: int) -> bool:
        """Tells whether more is unread than so many times the places of the machine."""
        options = self.options
        return (
            self._unread_messages > factor * options.open_receipts_max
            or self._unread_bytes > factor * options.open_receipt_bytes_max
        )

    def restore(self, snapshot: bytes) -> Connection:
        """Takes up a conversation from its snapshot."""
        peer = self.machine.restore(snapshot, self.driver.now_us())
        self.driver.schedule()
        return self._connection(peer)

    async def connect(self, address: Address, inbox: Inbox | None) -> Connection:
        """Opens a conversation; its messages go to the inbox given, or to that of the endpoint."""
        future: asyncio.Future[Connection] = self._loop.create_future()
        token = self.machine.connect(address, self.driver.now_us())
        self._tokens.futures[token] = future
        self._connecting += 1
        self.driver.link.expect_errors(True)
        self.driver.flush()
        try:
            connection = await future
        finally:
            self._connecting -= 1
            if not self._connecting and not self.driver.closed:
                self.driver.link.expect_errors(False)
        if inbox is not None:
            connection.inbox = inbox
        return connection

    def ping(self, peer: Peer) -> asyncio.Future[int]:
        """Asks the peer for a sign of life."""
        future: asyncio.Future[int] = self._loop.create_future()
        token = self.machine.ping(peer, self.driver.now_us())
        self._tokens.futures[token] = future
        self.driver.schedule()
        return future

    # What the driver asks for.

    def prepare(self, now_us: int) -> bool:
        """Hands commits and gathered messages to the machine.

        Commits that acknowledge nothing only free places: no datagram and no event follows from them.
        """
        self.gathered = self.short_of_places = False
        if self._commits:
            commits, self._commits = self._commits, []
            for receipt in commits:
                self.machine.commit(receipt, now_us)
        if not self._ready:
            return self.options.deferred
        ready, self._ready = self._ready, []
        for connection in ready:
            if not connection.hand_over(self.machine, now_us, self._tokens):
                self._blocked.setdefault(connection.identity, []).append(connection)
        return True

    def settled(self) -> None:
        """Looks whether what somebody waits for has come true."""
        for condition, future in self.awaited:
            if not future.done() and condition():
                future.set_result(None)

    def never_taken(self) -> None:
        """Say, once, that a message was larger than the options let in: its sender hears nothing, so somebody must."""
        if not self._said_too_large:
            self._said_too_large = True
            limit = getattr(self.options, "message_bytes_max", 0)
            _log.warning("%s: a message above message_bytes_max=%d is not taken (said once)", self.url, limit)

    def broken(self, error: Exception) -> None:
        """Ends everything: a machine that raised is not to be trusted with another datagram."""
        self._end(f"the endpoint failed: {error!r}")

    def report(self, event: Event) -> None:
        """Takes note of what happened."""
        self._reports[type(event)](event)

    def divert(self, kind: type[Event], taker: Callable[[Any], None]) -> None:
        """Gives events of a kind to someone else instead of to the application's inbox and futures."""
        self._reports[kind] = taker

    def watch(self, kind: type[Event], watcher: Callable[[Any], None]) -> None:
        """Tells events of a kind to someone else too, after the endpoint took note of them."""
        note = self._reports[kind]

        def both(event: Event) -> None:
            note(event)
            watcher(event)

        self._reports[kind] = both

    # Events.

    def _connection(self, peer: Peer) -> Connection:
        connection = self._connections.get(peer)
        if connection is None:
            if peer.session is None and len(self._connections) >= PASSIVE_MAX:
                self._forget_passive()
            connection = self._connections[peer] = Connection(self, peer, self.inbox)
        return connection

    def _forget_passive(self) -> None:
        """Lets go of handles that hold nothing: the connectionless protocols never say that a peer is gone."""
        self._connections = {peer: one for peer, one in self._connections.items() if one.inbox is not self.inbox}

    def _connected(self, event: events.Connected) -> None:
        connection = self._connection(event.peer)
        if event.token is None:
            return
        future = self._tokens.futures.pop(event.token, None)
        if future is None or future.done():
            # Nobody waits any more: the caller was cancelled.
            self.machine.close(event.peer, self.driver.now_us())
        else:
            future.set_result(connection)

    def _connect_refused(self, event: events.ConnectRefused) -> None:
        self._fail(event.token, ConnectRefused(event.reason))

    def _connect_unknown(self, event: events.ConnectUnknown) -> None:
        self._fail(event.token, ConnectUnknown(event.reason))

    def _fail(self, token: int, error: Exception) -> None:
        future = self._tokens.futures.pop(token, None)
        if future is not None and not future.done():
            future.set_exception(error)

    def _put(self, peer: Connection, arrival: Arrival, messages: int, size: int) -> None:
        """Adds to an inbox. Places in the machine bound what open conversations put there; what closed ones left behind
        is bounded here, by not reading the socket until the application has."""
        self._unread_messages += messages
        self._unread_bytes += size
        peer.inbox.put(arrival)
        if self._overfull(2):
            self._paused = True
            self.driver.link.pause()

    def _message_received(self, event: events.MessageReceived) -> None:
        peer = self._connection(event.peer)
        self._put(peer, Message(peer, event.id, event.body, event.reliable), 1, len(event.body))

    def _messages_received(self, event: events.MessagesReceived) -> None:
        peer, bodies = self._connection(event.peer), event.bodies
        self._put(peer, Run(peer, event.first, bodies, event.reliable), len(bodies), sum(map(len, bodies)))

    def _part_received(self, event: events.PartReceived) -> None:
        peer = self._connection(event.peer)
        self._put(peer, Part(peer, event.id, event.offset, event.total, event.body), 0, len(event.body))

    def _request_received(self, event: events.RequestReceived) -> None:
        peer = self._connection(event.peer)
        request = Request(peer, event.id, event.body, event.asynchronous)
        future = self._tokens.futures.pop(event.token, None) if event.token is not None else None
        if future is None or future.done():
            self._put(peer, request, 1, len(event.body))
        else:
            future.set_result(request)
            self._retry(event.peer)
            if not self.options.deferred:
                self.commit(event.receipt)

    def _response_received(self, event: events.ResponseReceived) -> None:
        future = self._tokens.futures.pop(event.token, None)
        if future is not None and not future.done():
            future.set_result(Message(self._connection(event.peer), event.id, event.body))
        self._retry(event.peer)

    def _delivered(self, event: events.Delivered) -> None:
        self._tokens.delivered(event.tokens)
        if self._blocked:
            self._retry(event.peer)

    def _delivery_unknown(self, event: events.DeliveryUnknown) -> None:
        self._tokens.failed(event.tokens, DeliveryUnknown, event.reason)
        self._retry(event.peer)

    def _refused(self, event: events.Refused) -> None:
        self._tokens.failed(event.tokens, DeliveryRefused, event.reason)
        self._retry(event.peer)

    def _writable(self, event: events.Writable) -> None:
        self._retry(event.peer)

    def _retry(self, peer: Peer) -> None:
        if self._blocked and (blocked := self._blocked.pop(peer, None)) is not None:
            self._ready.extend(blocked)
            self.gathered = True

    def _ping_answered(self, event: events.PingAnswered) -> None:
        future = self._tokens.futures.pop(event.token, None)
        if future is not None and not future.done():
            future.set_result(event.rtt_us)

    def _peer_moved(self, event: events.PeerMoved) -> None:
        self._connection(event.peer).address = event.address

    def _peer_closed(self, event: events.Closed) -> None:
        handles = self._blocked.pop(event.peer, [])
        connection = self._connections.pop(event.peer, None)
        for handle in handles if connection is None else (connection, *handles):
            handle.ended(str(event.reason))

    # The end.

    async def close(self, timeout_s: float | None = None, linger_s: float = 0.0) -> None:
        """Flushes what was accepted, closes every conversation, then the socket; within the timeout. Twice is fine.

        `linger_s` keeps the socket for that long after all is done, to answer copies of what was acknowledged.
        """
        if self.driver.closed:
            return
        self.closing = True
        try:
            async with asyncio.timeout(self.close_timeout_s if timeout_s is None else timeout_s):
                await self.until(lambda: not self._ready and not self._blocked)
                self.machine.close(None, self.driver.now_us())
                self.driver.flush()
                await self.until(lambda: self.machine.unfinished() == 0)
            if linger_s > 0:
                await asyncio.sleep(linger_s)
        except TimeoutError:
            pass
        finally:
            self._end("the endpoint was closed before an answer came")

    async def close_one(self, connection: Connection, timeout_s: float | None) -> None:
        """Flushes what one conversation accepted, then closes it; within the timeout."""
        try:
            async with asyncio.timeout(self.close_timeout_s if timeout_s is None else timeout_s):
                await self.until(lambda: not connection.active)
                self.machine.close(connection.identity, self.driver.now_us())
                self.driver.flush()
                await self.until(lambda: connection.closed is not None)
        except (TimeoutError, NoSuchPeer):
            pass
        finally:
            if self._connections.get(connection.identity) is connection:  # a message may have opened it again
                del self._connections[connection.identity]
            connection.ended("closed by this side")

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits until the condition is true at the end of a turn, or the endpoint is closed."""
        if self.driver.closed or condition():
            return
        entry = (condition, self._loop.create_future())
        self.awaited.append(entry)
        try:
            await entry[1]
        finally:
            self.awaited.remove(entry)

    def leave(self) -> None:
        """Closes the socket without a word to any peer: whoever restores the conversations goes on with them."""
        self._end("the endpoint was left")

    def _end(self, reason: str) -> None:
        """Ends whatever is still open, and lets go of the socket."""
        if self.driver.closed:
            return
        self.closing = True
        self.driver.close()
        connections = [*self._connections.values(), *self._ready, *chain.from_iterable(self._blocked.values())]
        self._connections, self._ready, self._blocked = {}, [], {}
        self._tokens.abandon(reason)
        for connection in connections:
            connection.ended(reason)
        self.inbox.end(ConversationClosed(reason))
        for _, future in self.awaited:
            if not future.done():
                future.set_result(None)
        if self._recorder is not None:
            self._recorder.close()
