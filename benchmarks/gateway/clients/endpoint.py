"""Fairway's own connections."""

from __future__ import annotations

import asyncio
from collections import deque

from benchmarks.gateway.clients import Bodies, send_each
from benchmarks.gateway.systems import BATCHES_IN_FLIGHT
from benchmarks.transport.loads import Load
from benchmarks.transport.peers.endpoints import CONNECTIONS
from fairway import net


class FairwayClient:
    """Sends through one connection, or through several where the protocol caps one."""

    def __init__(self, bodies: Bodies, protocol: str) -> None:
        self.bodies = bodies
        self.latencies_s: list[float] = []
        self._protocol = protocol
        self._connections: list[net.Connection] = []

    async def open(self, host: str, port: int, load: Load) -> None:
        url = f"{self._protocol}://{host}:{port}?controller=eager"
        for _ in range(1 if load.kind == "ping" else CONNECTIONS.get(self._protocol, 1)):
            self._connections.append(await net.connect(url))

    async def bulk(self, size: int) -> None:
        raise NotImplementedError

    async def batches(self, count: int) -> None:
        connections = self._connections
        pending: deque[asyncio.Future[int]] = deque()
        for batch in self.bodies.batches(count):
            # Over several connections a batch is dealt out, so that as many messages are under way as over one.
            share = -(-len(batch) // len(connections))
            for place, connection in enumerate(connections):
                if part := batch[place * share : (place + 1) * share]:
                    pending.append(connection.send_many(part))
            while len(pending) >= BATCHES_IN_FLIGHT * len(connections):
                await pending.popleft()
        for future in pending:
            await future

    async def awaited(self, count: int) -> None:
        connections = self._connections
        self.latencies_s = await send_each(
            self.bodies.take(count), lambda number: connections[number % len(connections)].send_nowait
        )

    async def ping(self, body: bytes) -> None:
        await self._connections[0].send(self.bodies.take(1)[0])

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close(1.0)
