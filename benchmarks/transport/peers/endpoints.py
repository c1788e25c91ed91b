"""Fairway's own endpoints. A send that returns was acknowledged; that all was right the receiver says at the end."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, get_args

from benchmarks.transport.loads import Load, send_each
from benchmarks.transport.pattern import (
    BATCHES_IN_FLIGHT,
    NUMBER_BYTES,
    BlockCheck,
    Corrupt,
    MessageCheck,
    batch_messages,
    cycle,
    large_messages,
    message,
    tail,
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


def make_sender(protocol: str, controller: str, io: Io) -> EndpointSender:
    return EndpointSender(protocol, controller, io)


def make_receiver(protocol: str, controller: str, io: Io) -> EndpointReceiver:
    return EndpointReceiver(protocol, controller, io)


def _url(scheme: str, place: str, controller: str, *, calls: bool) -> str:
    """Return the URL of one side; without a controller everything is as a user gets it."""
    url = f"{scheme}://{place}{f'?controller={controller}' if controller else ''}"
    if not scheme.endswith(DTLS):
        return url
    keys = Keys(Path(os.environ[KEYS]))
    return keys.device_url(url, "device") if calls else keys.gateway_url(url)


class EndpointSender:
    """Sends through one connection, or through several where the protocol caps one."""

    def __init__(self, protocol: str, controller: str, io: Io) -> None:
        assert io in get_args(Io)
        self._scheme, self._controller, self._io = protocol, controller, io
        self._protocol = protocol.removesuffix(DTLS)
        self._connections: list[net.Connection] = []

    async def open(self, host: str, port: int, load: Load) -> None:
        self._load = load
        self._cycle = cycle(load.message_bytes) if load.kind in {"bulk", "batches"} else []
        variants()  # made before the clock runs
        url = _url(self._scheme, f"{host}:{port}", self._controller, calls=True)
        for _ in range(1 if load.kind == "ping" or load.drive else CONNECTIONS.get(self._protocol, 1)):
            self._connections.append(await net.connect(url, io=self._io))
        self._first = self._connections[0]

    async def begin(self, units: int) -> None:
        await self._begin(units)

    def send(self, body: bytes) -> asyncio.Future[None]:
        return self._first.send_nowait(body)

    async def _begin(self, units: int) -> None:
        await self._first.send(units.to_bytes(NUMBER_BYTES, "big"))

    async def _confirmed(self) -> None:
        await self._first.receive()

    async def bulk(self, size: int) -> None:
        if self._protocol != "rup":
            # Whole messages, as many as the bytes ask for; the rest is less than one.
            await self.batches(-(-size // self._load.message_bytes))
            return
        await self._begin(size)
        pending: deque[asyncio.Future[None]] = deque()
        for body in large_messages(size):
            pending.append(self._first.send_nowait(body))
            if len(pending) >= LARGE_IN_FLIGHT:
                await pending.popleft()
        for future in pending:
            await future
        await self._confirmed()

    async def awaited(self, count: int) -> None:
        await self._begin(count)
        sends: list[Callable[[bytes], asyncio.Future[None]]] = [one.send_nowait for one in self._connections]
        await send_each(sends, count, self._load.message_bytes)
        await self._confirmed()

    async def batches(self, count: int) -> None:
        await self._begin(count)
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
        for future in pending:
            await future
        await self._confirmed()

    async def ping(self, body: bytes) -> None:
        await self._first.send(body)

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close(1.0)


class _Check(Protocol):
    @property
    def complete(self) -> bool: ...

    def take(self, bodies: Sequence[bytes | bytearray]) -> None: ...


class EndpointReceiver:
    """Receives from all connections, compares, and confirms to the one that began the transfer."""

    def __init__(self, protocol: str, controller: str, io: Io) -> None:
        self._scheme, self._controller, self._io = protocol, controller, io
        self._protocol = protocol.removesuffix(DTLS)
        self.received = 0

    async def serve(self, host: str, load: Load, announce: Callable[[str, int], None]) -> None:
        variants()
        url = _url(self._scheme, f"{host}:0", self._controller, calls=False)
        async with net.listen(url, io=self._io, close_timeout_s=1.0) as listener:
            announce(host, int(listener.url.rpartition(":")[2]))
            if load.kind == "ping":
                await self._pings(listener, load)
            else:
                await self._transfers(listener, load)

    async def _pings(self, listener: net.Listener, load: Load) -> None:
        expected = message(0, tail(load.message_bytes))
        while True:
            received = await listener.receive()
            if received.body != expected:
                raise Corrupt("a ping differs from what was sent")
            self.received += 1

    async def _transfers(self, listener: net.Listener, load: Load) -> None:
        check: _Check | None = None
        while True:
            batch = await listener.receive_many()
            bodies = batch.bodies
            if check is None:
                units = int.from_bytes(bodies.pop(0), "big")
                caller, check = batch.runs[0].peer, self._check(load, units)
            if not bodies:
                continue
            check.take(bodies)
            self.received += sum(map(len, bodies)) if load.kind == "bulk" else len(bodies)
            if check.complete:
                check = None
                await caller.send(b"complete")

    def _check(self, load: Load, units: int) -> _Check:
        if load.kind == "bulk" and self._protocol == "rup":
            return BlockCheck(units)
        period = None if load.kind == "awaited" else len(cycle(load.message_bytes))
        return MessageCheck(load.message_bytes, units, period)
