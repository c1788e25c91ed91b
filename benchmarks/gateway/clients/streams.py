"""Redis streams through redis-py: batches as pipelines, awaited messages through its asyncio client.

The asyncio client has one command under way on a connection, so it gets a connection for each message in flight; the
server syncs once for all that it read in one turn.
"""

from __future__ import annotations

from typing import Any

from benchmarks.gateway.clients import Bodies, send_each
from benchmarks.transport.loads import IN_FLIGHT, Load

STREAM = "messages"
FIELD = "body"


class RedisClient:
    """Adds messages to a stream."""

    def __init__(self, bodies: Bodies) -> None:
        self.bodies = bodies
        self.latencies_s: list[float] = []

    async def open(self, host: str, port: int, load: Load) -> None:
        import redis
        import redis.asyncio

        self._redis: Any = redis.Redis(host, port)
        self._redis.ping()
        self._awaitable: Any = redis.asyncio.Redis(host=host, port=port, max_connections=IN_FLIGHT)

    async def bulk(self, size: int) -> None:
        raise NotImplementedError

    async def batches(self, count: int) -> None:
        for batch in self.bodies.batches(count):
            self._add(batch)

    def _add(self, bodies: list[bytes]) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        for body in bodies:
            pipeline.xadd(STREAM, {FIELD: body})
        pipeline.execute()  # raises what any of the commands came to

    async def awaited(self, count: int) -> None:
        self.latencies_s = await send_each(self.bodies.take(count), lambda _: self._send)

    async def _send(self, body: bytes) -> None:
        await self._awaitable.xadd(STREAM, {FIELD: body})

    async def ping(self, body: bytes) -> None:
        self._redis.xadd(STREAM, {FIELD: self.bodies.take(1)[0]})

    async def close(self) -> None:
        self._redis.close()
        await self._awaitable.aclose()
