"""Fairway's own endpoints. A send that returns was acknowledged; that all was right the receiver says at the end."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

from benchmarks.transport.loads import Announce, Load, send_each
from benchmarks.transport.pattern import (
    BATCHES_IN_FLIGHT,
    BlockCheck,
    Reception,
    batch_messages,
    cycle,
    large_messages,
    number_bytes,
    variants,
)
from fairway import net
from fairway.demo.keys import Keys
from fairway.net.link import Io

LARGE_IN_FLIGHT = 3
DTLS = "+dtls"
KEYS = "FAIRWAY_BENCH_KEYS"
"""In the environment: the folder of both sides' identities."""
CONNECTIONS = {"mrp": 8}
"""The standard lets one mrp connection start 327,680 messages a second."""


def _url(scheme: str, host: str, port: int, controller: str, *, calls: bool) -> str:
    """Return the URL of one side; without a controller everything is as a user gets it."""
    url = f"{scheme}://{host}:{port}" + (f"?controller={controller}" if controller else "")
    if not scheme.endswith(DTLS):
        return url
    keys = Keys(Path(os.environ[KEYS]))
    return keys.device_url(url, "device") if calls else keys.gateway_url(url)


async def open_sender(host: str, port: int, load: Load, protocol: str, controller: str, io: Io) -> EndpointSender:
    """Open one connection, or several where the protocol caps one."""
    variants()  # made before the clock runs
    url = _url(protocol, host, port, controller, calls=True)
    return EndpointSender(protocol.removesuffix(DTLS), load, await open_connections(url, load, io))


async def open_connections(url: str, load: Load, io: Io = "auto") -> list[net.Connection]:
    """Open one connection, or several where the protocol caps one: on one socket, unless it is inside DTLS."""
    target, _, options = url.partition("?")
    scheme = target.partition(":")[0]
    count = 1 if load.kind == "ping" or load.drive else CONNECTIONS.get(scheme.removesuffix(DTLS), 1)
    if count == 1 or scheme.endswith(DTLS):
        return [await net.connect(url, io=io) for _ in range(count)]
    node = await net.listen(f"{scheme}://0.0.0.0:0?{options}", io=io)
    return [await node.connect(target) for _ in range(count)]


class EndpointSender:
    """Sends through all connections, and gets the confirmation through the first."""

    def __init__(self, protocol: str, load: Load, connections: list[net.Connection]) -> None:
        self._protocol, self._load, self._connections = protocol, load, connections
        self._cycle = cycle(load.message_bytes) if load.kind in {"bulk", "batches"} else []
        self._first = connections[0]
        self.send = self._first.send_nowait

    async def begin(self, units: int) -> None:
        await self._first.send(number_bytes(units))

    async def _confirmed(self) -> None:
        await self._first.receive()

    async def bulk(self, size: int) -> None:
        if self._protocol != "rup":
            # Whole messages, as many as the bytes ask for; the rest is less than one.
            await self.batches(-(-size // self._load.message_bytes))
            return
        await self.begin(size)
        pending: deque[asyncio.Future[None]] = deque()
        for body in large_messages(size):
            pending.append(self._first.send_nowait(body))
            if len(pending) >= LARGE_IN_FLIGHT:
                await pending.popleft()
        await asyncio.gather(*pending)
        await self._confirmed()

    async def awaited(self, count: int) -> None:
        await self.begin(count)
        sends: list[Callable[[bytes], asyncio.Future[None]]] = [one.send_nowait for one in self._connections]
        await send_each(sends, count, self._load.message_bytes)
        await self._confirmed()

    async def batches(self, count: int) -> None:
        await self.begin(count)
        connections = self._connections
        size, sent = batch_messages(self._load.message_bytes) // len(connections), 0
        pending: deque[asyncio.Future[int]] = deque()
        turn = 0
        while sent < count:
            first = sent % len(self._cycle)
            batch = self._cycle[first : first + min(size, count - sent)]
            pending.append(connections[turn % len(connections)].send_many(batch))
            sent += len(batch)
            turn += 1
            if len(pending) >= BATCHES_IN_FLIGHT * len(connections):
                await pending.popleft()
        await asyncio.gather(*pending)
        await self._confirmed()

    async def ping(self, body: bytes) -> None:
        await self._first.send(body)

    async def ask(self, body: bytes) -> None:
        if self._protocol == "udpc":
            await self._first.request(body)
        else:
            await asyncio.gather(self._first.send(body), self._first.receive())


async def serve(host: str, load: Load, announce: Announce, protocol: str, controller: str, io: Io) -> None:
    """Receive from all connections, compare, and confirm to the one that began the transfer."""
    variants()
    url, protocol = _url(protocol, host, 0, controller, calls=False), protocol.removesuffix(DTLS)
    blocks = load.kind == "bulk" and protocol == "rup"
    reception = Reception(load, BlockCheck) if blocks else Reception(load)
    caller: net.Connection | None = None
    answered: asyncio.Future[None] | None = None
    async with net.listen(url, io=io, close_timeout_s=1.0) as listener:
        announce((host, int(listener.url.rpartition(":")[2])), reception)
        while True:
            batch = await listener.receive_many()
            if answered is not None and answered.done():
                answered.result()
            if caller is None:
                caller = batch.runs[0].peer
            confirmed = reception.take(batch.bodies)
            if load.drive == "ask" and confirmed is not None:
                answered = _answer(list(batch)[-1])
            if load.kind != "ping" and reception.complete:
                await caller.send(b"complete")
                caller = None


def _answer(asked: net.Message) -> asyncio.Future[None]:
    return asked.reply(asked.body) if isinstance(asked, net.Request) else asked.peer.send_nowait(asked.body)
