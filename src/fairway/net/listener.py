"""Sockets that anyone may call: what arrives on them from many peers, or a handler for each connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from fairway.core.errors import BadAddress, BadOption, NotSupported
from fairway.core.events import Address
from fairway.net.connection import Closing, Connection
from fairway.net.conversations import Accepted, Conversations
from fairway.net.counters import EndpointStatistics
from fairway.net.inbox import Inbox, Receiving
from fairway.net.outcomes import ConnectUnknown, ConversationClosed, OutcomeRefused, OutcomeUnknown, within
from fairway.net.sockets import resolve_peer
from fairway.net.urls import parse

_log = logging.getLogger("fairway.net")


class Served:
    """Bound sockets, and what they count."""

    def __init__(self, served: Sequence[Conversations]) -> None:
        self._served = list(served)

    @property
    def urls(self) -> list[str]:
        """The URLs of the bound sockets, with their real ports."""
        return [one.endpoint.url for one in self._served]

    @property
    def url(self) -> str:
        """The URL of the first socket."""
        return self._served[0].endpoint.url

    @property
    def statistics(self) -> list[EndpointStatistics]:
        """What each endpoint has counted, in the order of the URLs."""
        return [one.endpoint.statistics for one in self._served]


class Listener(Served, Receiving, Closing):
    """Receives from whoever calls one of its URLs; `message.peer` answers there, from the same socket.

    `receive` and `async for` take the messages of all peers; `connections()` iterates over the peers, and what is
    received from one of these connections the listener does not receive.
    """

    def __init__(self, served: Sequence[Conversations], inbox: Inbox, accepted: Accepted) -> None:
        super().__init__(served)
        self._inbox = inbox
        self._accepted = accepted

    def _claim(self) -> Inbox:
        return self._inbox

    async def connections(self) -> AsyncIterator[Connection]:
        """Iterate over the connections that peers have opened, those that are open already first.

        When a peer leaves, `connection.wait_closed()` returns the reason, and iteration over its messages ends.
        """
        if not self._accepted.wanted:
            self._accepted.wanted = True
            for conversations in self._served:
                for connection in conversations.open_connections():
                    self._accepted.put(connection)
        while (accepted := await self._accepted.take()) is not None:
            yield accepted

    async def connect(self, url: str, *, timeout: float | None = None) -> Connection:
        """Open a conversation from the listening socket. What that peer sends is received from the connection."""
        return await within(self._connect(url), timeout, ConnectUnknown)

    async def _connect(self, url: str) -> Connection:
        target = parse(url)
        if target.settings:
            raise BadOption(f"{url!r} has options, but those of the listening socket hold for all its conversations")
        if target.secure:
            raise NotSupported("a listening socket opens no DTLS conversations; fairway.connect does, on its own")
        failure: Exception = BadAddress(
            f"this listener has no socket for {url!r}; it listens on {', '.join(self.urls)}"
        )
        for _, address in await resolve_peer(target):
            served = self._served_by(target.protocol, address)
            if served is not None:
                try:
                    return await served.connect(address)
                except ConnectUnknown as error:
                    failure = error
        raise failure

    def _served_by(self, protocol: str, address: Address) -> Conversations | None:
        for one in self._served:
            if one.endpoint.scheme == protocol and _same_family(one.endpoint.driver.link.local, address):
                return one
        return None

    def restore(self, snapshot: bytes, protocol: str) -> Connection:
        """Take up a conversation from its snapshot; raise `DamagedSnapshot`."""
        for one in self._served:
            if one.endpoint.protocol == protocol:
                return one.connection(one.endpoint.restore(snapshot))
        raise BadAddress(f"this listener has no socket for {protocol}; it listens on {', '.join(self.urls)}")

    async def close(self, timeout_s: float | None = None, linger_s: float = 0.0) -> None:
        """Flush what was accepted, close every conversation, then the sockets; within the timeout. Twice is fine.

        `linger_s` keeps the sockets for that long after all is done, to answer duplicates of what was acknowledged.
        """
        endpoints = [one.endpoint for one in self._served]
        for endpoint in endpoints:
            endpoint.closing = True
        await asyncio.gather(*[endpoint.close(timeout_s, linger_s) for endpoint in endpoints])


class Server(Served, Closing):
    """Runs a handler for each connection that a peer opens, and closes the connection when the handler returns.

    A peer that leaves ends the iteration over its messages; what its handler meets because of that (an outcome, a
    closed conversation) ends the handler quietly. Any other exception of a handler goes to the loop's exception
    handler. Either way the server goes on.
    """

    def __init__(
        self, listener: Listener, handler: Callable[[Connection], Awaitable[None]], close_timeout_s: float
    ) -> None:
        super().__init__(listener._served)
        self._listener = listener
        self._handler = handler
        self._close_timeout_s = close_timeout_s
        self._loop = asyncio.get_running_loop()
        self._handling: set[asyncio.Task[None]] = set()
        self._accepting = self._loop.create_task(self._accept())

    async def _accept(self) -> None:
        async for connection in self._listener.connections():
            handling = self._loop.create_task(self._handle(connection))
            self._handling.add(handling)
            handling.add_done_callback(self._handling.discard)

    async def _handle(self, connection: Connection) -> None:
        connection._claim()
        try:
            await self._handler(connection)
        except (OutcomeRefused, OutcomeUnknown, ConversationClosed) as error:
            _log.debug("%s: the handler ended, because %s", connection.url, error)
        except Exception as error:
            message = f"the handler of {connection.url} failed"
            self._loop.call_exception_handler({"message": message, "exception": error})
        finally:
            await connection.close()

    async def serve_forever(self) -> None:
        """Serve until this is cancelled, or until the server is closed elsewhere."""
        try:
            await asyncio.shield(self._accepting)
        finally:
            await self.close()

    async def close(self) -> None:
        """Flush what was accepted, close everything, and wait for the handlers. Twice is fine."""
        await self._listener.close()
        await self._accepting
        if self._handling:
            _, slow = await asyncio.wait(self._handling, timeout=self._close_timeout_s)
            for handling in slow:
                handling.cancel()
            if slow:
                await asyncio.wait(slow)


def _same_family(one: Address, other: Address) -> bool:
    return isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other)
