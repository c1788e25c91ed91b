"""The conversations of one endpoint as connections, and what arrives on them as messages in inboxes.

A message goes to the inbox of its listener until somebody receives from its connection; from then on it goes to an
inbox of that connection.
"""

from __future__ import annotations

import asyncio

from fairway.core import events
from fairway.core.events import Address, Peer, Receipt
from fairway.net.connection import Connection
from fairway.net.endpoint import Endpoint
from fairway.net.inbox import Arrival, Inbox
from fairway.net.messages import Message, Part, Request, Run
from fairway.net.outcomes import ConversationClosed

PASSIVE_MAX = 4_096
"""Connections of connectionless peers that are kept before those which nobody asked for are made anew when needed."""
ACCEPTED_MAX = 4_096
"""Accepted connections that wait to be taken before those which have closed meanwhile are left out."""


class Accepted:
    """Connections that peers opened, for who iterates over them; shared by the endpoints of one listener."""

    def __init__(self) -> None:
        self.wanted = False
        """Whether anybody has asked for connections."""
        self._waiting: asyncio.Queue[Connection | None] = asyncio.Queue()
        """None says that there will be no more."""
        self._looked_at = ACCEPTED_MAX
        """How many may wait before those that have closed are looked for again."""

    def put(self, connection: Connection) -> None:
        waiting = self._waiting
        if waiting.qsize() >= self._looked_at:
            for one in [waiting.get_nowait() for _ in range(waiting.qsize())]:
                if one is None or one.closed is None:
                    waiting.put_nowait(one)
            self._looked_at = max(ACCEPTED_MAX, 2 * waiting.qsize())
        waiting.put_nowait(connection)

    def end(self) -> None:
        """There will be no more."""
        self._waiting.put_nowait(None)

    async def take(self) -> Connection | None:
        """Wait for the next connection; return None when there will be no more."""
        connection = await self._waiting.get()
        if connection is None:
            self._waiting.put_nowait(None)
        return connection


class Conversations:
    """The `EventHandler` of applications."""

    screen = None
    outer_screen = None

    def __init__(self, endpoint: Endpoint, inbox: Inbox, accepted: Accepted) -> None:
        self.endpoint = endpoint
        self.inbox = inbox
        self._accepted = accepted
        self._connections: dict[Peer, Connection] = {}
        self._unread_messages = 0
        self._unread_bytes = 0
        self._messages_max = 2 * endpoint.options.open_receipts_max
        self._bytes_max = 2 * endpoint.options.open_receipt_bytes_max
        """Beyond twice the receipt slots of the machine the socket is not read; up to once it is again."""
        self._paused = False

    # From above.

    async def connect(self, address: Address) -> Connection:
        """Open a conversation. What that peer sends is received from the connection alone."""
        connection = self.connection(await self.endpoint.connect(address))
        connection._claim()
        return connection

    def connection(self, peer: Peer) -> Connection:
        """Return the connection of a peer; it is made when it is needed first."""
        connection = self._connections.get(peer)
        if connection is None:
            if peer.session is None and len(self._connections) >= PASSIVE_MAX and not self._accepted.wanted:
                # The connectionless protocols speak of many peers of which nobody ever holds the connection.
                self._connections = {one.identity: one for one in self._connections.values() if one._held}
            connection = self._connections[peer] = Connection(self, peer)
        return connection

    def keep(self, connection: Connection) -> None:
        """Remember a connection that somebody holds, even if it was forgotten."""
        if connection.closed is None:
            self._connections[connection.identity] = connection

    def claim(self, connection: Connection) -> Inbox:
        """Take the messages of a connection out of the listener's inbox, those that come later too."""
        self.keep(connection)
        return self.inbox.split(connection)

    def open_connections(self) -> list[Connection]:
        return list(self._connections.values())

    async def close(self, connection: Connection, timeout_s: float | None) -> None:
        peer = connection.identity
        await self.endpoint.close_peer(peer, lambda: connection.closed is not None, timeout_s)
        if self._connections.get(peer) is connection:  # a message may have opened it again
            del self._connections[peer]
        connection._end("closed by this side")

    def took(self, messages: int, size: int, receipt: Receipt | None) -> None:
        """Note that the application took messages; the receipt is that of a message or run now taken whole, which frees
        its slot unless acknowledgement is deferred."""
        options = self.endpoint.options
        if receipt is not None and not options.deferred:
            few = (
                self._unread_messages * 4 >= options.open_receipts_max
                or self._unread_bytes * 4 >= options.open_receipt_bytes_max
            )
            self.endpoint.free(receipt, urgent=few)
        self._unread_messages -= messages
        self._unread_bytes -= size
        if (
            self._paused
            and 2 * self._unread_messages <= self._messages_max
            and 2 * self._unread_bytes <= self._bytes_max
        ):
            self._paused = False
            self.endpoint.resume()

    # Events.

    def connected(self, event: events.Connected) -> None:
        connection = self.connection(event.peer)
        if event.token is None and self._accepted.wanted:
            self._accepted.put(connection)

    def moved(self, event: events.PeerMoved) -> None:
        self.connection(event.peer).address = event.address

    def closed(self, event: events.Closed) -> None:
        connection = self._connections.pop(event.peer, None)
        if connection is not None:
            connection._end(str(event.reason))

    def message(self, event: events.MessageReceived) -> None:
        # The same as `_put`, without its call: a lone message has the shortest way.
        peer = self._connections.get(event.peer) or self.connection(event.peer)
        self._unread_messages += 1
        self._unread_bytes += len(event.body)
        peer._inbox.put(Message(peer, event.id, event.body, event.reliable))
        if self._unread_messages > self._messages_max or self._unread_bytes > self._bytes_max:
            self._pause()

    def messages(self, event: events.MessagesReceived) -> None:
        peer, bodies = self.connection(event.peer), event.bodies
        self._put(peer, Run(peer, event.first, bodies, event.reliable), len(bodies), sum(map(len, bodies)))

    def part(self, event: events.PartReceived) -> None:
        peer = self.connection(event.peer)
        self._put(peer, Part(peer, event.id, event.offset, event.total, event.body), 0, len(event.body))

    def request(self, event: events.RequestReceived) -> None:
        peer = self.connection(event.peer)
        self._put(peer, Request(peer, event.id, event.body, event.asynchronous), 1, len(event.body))

    def _put(self, peer: Connection, arrival: Arrival, messages: int, size: int) -> None:
        """Add to an inbox. Receipt slots bound what open conversations put there; what closed ones left behind is
        bounded here, by not reading the socket until the application has."""
        self._unread_messages += messages
        self._unread_bytes += size
        peer._inbox.put(arrival)
        if self._unread_messages > self._messages_max or self._unread_bytes > self._bytes_max:
            self._pause()

    def _pause(self) -> None:
        self._paused = True
        self.endpoint.pause()

    def ended(self, reason: str) -> None:
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection._end(reason)
        self.inbox.end(ConversationClosed(reason))
        self._accepted.end()
