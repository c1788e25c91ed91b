"""Sockets that anyone may call: conversations with many peers, whose messages arrive in one inbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Self

from fairway.core.errors import BadAddress, BadOption
from fairway.core.events import Address
from fairway.net.connection import RECEIVE_MANY_MAX, Connection
from fairway.net.counters import EndpointStatistics
from fairway.net.endpoint import Endpoint
from fairway.net.inbox import Inbox
from fairway.net.messages import Batch, Message
from fairway.net.outcomes import ConversationClosed
from fairway.net.sockets import resolve
from fairway.net.urls import parse


class Listener:
    """Receives from whoever calls one of its URLs; `message.peer` answers there, from the same socket."""

    def __init__(self, endpoints: Sequence[Endpoint], inbox: Inbox) -> None:
        self._endpoints = list(endpoints)
        self._inbox = inbox

    @property
    def urls(self) -> list[str]:
        """The URLs of the bound sockets, with their real ports."""
        return [endpoint.url for endpoint in self._endpoints]

    @property
    def url(self) -> str:
        """The URL of the first socket."""
        return self._endpoints[0].url

    @property
    def statistics(self) -> list[EndpointStatistics]:
        """What each endpoint has counted, in the order of the URLs."""
        return [endpoint.statistics for endpoint in self._endpoints]

    async def receive(self) -> Message:
        """Takes the next message of any peer; waits for one. Raises `ConversationClosed` once closed and empty."""
        return await self._inbox.receive()

    async def receive_many(self, limit: int = RECEIVE_MANY_MAX) -> Batch:
        """Takes what has arrived, at least one message and at most `limit`; waits for the first."""
        return await self._inbox.receive_many(limit)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self._inbox.receive()
        except ConversationClosed:
            raise StopAsyncIteration from None

    async def connect(self, url: str) -> Connection:
        """Opens a conversation from the listening socket. What that peer sends is received from the connection."""
        target = parse(url)
        if target.settings:
            raise BadOption(f"{url!r} has options, but those of the listening socket hold for all its conversations")
        _, address = await resolve(target)
        return await self._endpoint_for(target.protocol, address, url).connect(address, Inbox())

    def _endpoint_for(self, protocol: str, address: Address, url: str) -> Endpoint:
        for endpoint in self._endpoints:
            local = endpoint.driver.link.local
            if endpoint.protocol == protocol and _same_family(local, address):
                return endpoint
        raise BadAddress(f"this listener has no socket for {url!r}; it listens on {', '.join(self.urls)}")

    def restore(self, snapshot: bytes, protocol: str) -> Connection:
        """Takes up a conversation from its snapshot; raises `DamagedSnapshot`."""
        for endpoint in self._endpoints:
            if endpoint.protocol == protocol:
                return endpoint.restore(snapshot)
        raise BadAddress(f"this listener has no socket for {protocol}; it listens on {', '.join(self.urls)}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, timeout_s: float | None = None, linger_s: float = 0.0) -> None:
        """Flushes what was accepted, closes every conversation, then the sockets; within the timeout. Twice is fine.

        `linger_s` keeps the sockets for that long after all is done, to answer copies of what was acknowledged.
        """
        for endpoint in self._endpoints:
            endpoint.closing = True
        await asyncio.gather(*[endpoint.close(timeout_s, linger_s) for endpoint in self._endpoints])


def _same_family(one: Address, other: Address) -> bool:
    return isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other)
