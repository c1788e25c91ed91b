"""Sockets that anyone may call: conversations with many peers, whose messages arrive in one inbox."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from fairway.core.errors import BadAddress, BadOption
from fairway.core.events import Address
from fairway.net.connection import Connection
from fairway.net.counters import EndpointStatistics
from fairway.net.endpoint import Endpoint
from fairway.net.inbox import Inbox, Receiving
from fairway.net.sockets import resolve_peer
from fairway.net.urls import parse


class Listener(Receiving):
    """Receives from whoever calls one of its URLs; `message.peer` answers there, from the same socket."""

    def __init__(self, endpoints: Sequence[Endpoint], inbox: Inbox) -> None:
        super().__init__(inbox)
        self._endpoints = list(endpoints)

    @property
    def urls(self) -> list[str]:
        """The URLs of the bound sockets, with their real ports."""
        return [endpoint.url for endpoint in self._endpoints]

    @property
    def endpoints(self) -> list[Endpoint]:
        """The endpoints, in the order of the URLs, for a service that drives them itself."""
        return list(self._endpoints)

    @property
    def url(self) -> str:
        """The URL of the first socket."""
        return self._endpoints[0].url

    @property
    def statistics(self) -> list[EndpointStatistics]:
        """What each endpoint has counted, in the order of the URLs."""
        return [endpoint.statistics for endpoint in self._endpoints]

    async def connect(self, url: str) -> Connection:
        """Opens a conversation from the listening socket. What that peer sends is received from the connection."""
        target = parse(url)
        if target.settings:
            raise BadOption(f"{url!r} has options, but those of the listening socket hold for all its conversations")
        _, address = await resolve_peer(target)
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
