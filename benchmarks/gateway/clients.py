"""The sending sides: a class for each client library, all driven in the same way, each in a process of its own.

python -m benchmarks.gateway.clients JOB, where JOB is a JSON object
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Iterator
from itertools import cycle
from statistics import quantiles
from time import perf_counter
from typing import Any

from benchmarks.gateway.systems import BATCH_MESSAGES, BATCHES_IN_FLIGHT, LOADS, NAME, SYSTEMS
from benchmarks.transport.clocks import peak_bytes
from benchmarks.transport.loads import IN_FLIGHT, Load, measure
from benchmarks.transport.pattern import message, tail
from benchmarks.transport.peers.endpoints import open_connections
from benchmarks.transport.worker import run

OPEN_S = 30.0


class Client:
    """Sends messages that are all different, a number and a tail, and remembers how long each awaited one took."""

    def __init__(self, first: int, size: int, protocol: str) -> None:
        self.next = first
        self.protocol = protocol
        self.latencies_s: list[float] = []
        """From send to acknowledgement, of every message of the last transfer of awaited ones."""
        self._tail = tail(size)

    def take(self, count: int) -> list[bytes]:
        first = self.next
        self.next += count
        return [message(number, self._tail) for number in range(first, self.next)]

    def take_batches(self, count: int) -> Iterator[list[bytes]]:
        """Return the next messages, a batch at a time."""
        for start in range(0, count, BATCH_MESSAGES):
            yield self.take(min(count - start, BATCH_MESSAGES))

    async def awaited(self, count: int) -> None:
        """Send messages, each awaited by itself, 256 at a time."""
        left, self.latencies_s = iter(self.take(count)), []

        async def worker() -> None:
            for body in left:
                began_s = perf_counter()
                await self.send(body)
                self.latencies_s.append(perf_counter() - began_s)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(IN_FLIGHT, count)):
                group.create_task(worker())

    async def ping(self, _: bytes) -> None:
        await self.send(self.take(1)[0])

    async def send(self, body: bytes) -> None:
        """Send a message, and return when it was acknowledged. `open`, `batches` and `close` are each library's own."""
        raise NotImplementedError


class FairwayClient(Client):
    """Sends through one connection, or through several where the protocol caps one."""

    async def open(self, host: str, port: int, load: Load) -> None:
        self._connections = await open_connections(f"{self.protocol}://{host}:{port}?controller=eager", load)
        self._in_turn = cycle(self._connections)

    async def send(self, body: bytes) -> None:
        await next(self._in_turn).send_nowait(body)

    async def batches(self, count: int) -> None:
        connections = self._connections
        pending: deque[asyncio.Future[int]] = deque()
        for batch in self.take_batches(count):
            # Over several connections a batch is dealt out, so that as many messages are under way as over one.
            share = -(-len(batch) // len(connections))
            for number, connection in enumerate(connections):
                if part := batch[number * share : (number + 1) * share]:
                    pending.append(connection.send_many(part))
            while len(pending) >= BATCHES_IN_FLIGHT * len(connections):
                await pending.popleft()
        await asyncio.gather(*pending)

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close(1.0)


class RedisClient(Client):
    """Adds messages to a stream: batches as pipelines, awaited messages through the asyncio client.

    That client has one command under way on a connection, so it gets a connection for each message in flight; the
    server syncs once for all that it read in one turn.
    """

    async def open(self, host: str, port: int, load: Load) -> None:
        import redis
        import redis.asyncio

        self._redis: Any = redis.Redis(host, port)
        self._redis.ping()
        self._awaitable: Any = redis.asyncio.Redis(host=host, port=port, max_connections=IN_FLIGHT)

    async def send(self, body: bytes) -> None:
        await self._awaitable.xadd(NAME, {"body": body})

    async def ping(self, _: bytes) -> None:
        self._redis.xadd(NAME, {"body": self.take(1)[0]})

    async def batches(self, count: int) -> None:
        for batch in self.take_batches(count):
            pipeline = self._redis.pipeline(transaction=False)
            for body in batch:
                pipeline.xadd(NAME, {"body": body})
            pipeline.execute()  # raises what any of the commands came to

    async def close(self) -> None:
        self._redis.close()
        await self._awaitable.aclose()


class RabbitClient(Client):
    """Publishes persistent messages to a durable queue; one confirm of the broker may stand for many."""

    async def open(self, host: str, port: int, load: Load) -> None:
        import pika
        from pika.adapters.asyncio_connection import AsyncioConnection

        self._unconfirmed: dict[int, asyncio.Future[None] | None] = {}
        """By delivery tag, with the future of whoever awaits that message."""
        self._confirmed = asyncio.Event()
        self._error: ConnectionError | None = None
        self._sent = 0
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        AsyncioConnection(
            pika.ConnectionParameters(host, port),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._opened),
            on_open_error_callback=self._lost,
            on_close_callback=self._lost,
        )
        self._persistent: Any = pika.BasicProperties(delivery_mode=2)
        await self._ready

    def _opened(self, channel: Any) -> None:
        def declare(_: Any) -> None:
            channel.queue_declare(NAME, durable=True, callback=lambda _: self._ready.set_result(None))

        self._channel = channel
        channel.confirm_delivery(self._settled, callback=declare)

    def _lost(self, _: Any, reason: Any) -> None:
        error = self._error = ConnectionError(f"the connection to RabbitMQ ended: {reason}")
        self._confirmed.set()
        for future in (self._ready, *self._unconfirmed.values()):
            if future is not None and not future.done():
                future.set_exception(error)

    def _settled(self, frame: Any) -> None:
        import pika

        if not isinstance(frame.method, pika.spec.Basic.Ack):
            self._lost(None, "it refused a message")
            return
        last = frame.method.delivery_tag
        first = next(iter(self._unconfirmed)) if frame.method.multiple else last
        for tag in range(first, last + 1):
            future = self._unconfirmed.pop(tag, None)
            if future is not None:
                future.set_result(None)
        self._confirmed.set()

    def _publish(self, body: bytes, future: asyncio.Future[None] | None = None) -> None:
        self._sent += 1
        self._unconfirmed[self._sent] = future
        self._channel.basic_publish("", NAME, body, self._persistent)

    async def send(self, body: bytes) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._publish(body, future)
        await future

    async def batches(self, count: int) -> None:
        for batch in self.take_batches(count):
            for body in batch:
                self._publish(body)
            await self._until((BATCHES_IN_FLIGHT - 1) * BATCH_MESSAGES)
        await self._until(0)

    async def _until(self, unconfirmed: int) -> None:
        """Wait until at most so many are unconfirmed."""
        while len(self._unconfirmed) > unconfirmed:
            self._confirmed.clear()
            await self._confirmed.wait()
            if self._error:
                raise self._error

    async def close(self) -> None:
        self._channel.connection.close()


def make_client(system: str, load: Load, first: int) -> FairwayClient | RedisClient | RabbitClient:
    """Return the sending side of a system, whose messages are numbered from `first` on."""
    one = SYSTEMS[system]
    kinds: dict[str, type[RedisClient | RabbitClient]] = {"redis": RedisClient, "rabbitmq": RabbitClient}
    return kinds.get(one.server, FairwayClient)(first, load.message_bytes, one.protocol)


async def _send(job: dict[str, Any]) -> dict[str, Any]:
    load = LOADS[job["load"]]
    client = make_client(job["system"], load, job["first"])
    async with asyncio.timeout(OPEN_S):
        await client.open(job["host"], job["port"], load)
    result = await measure(client, load, job["seconds"], job["server_pid"])
    await client.close()
    result |= {"acknowledged": client.next - job["first"], "sender_peak_mb": peak_bytes() / 1e6}
    if len(client.latencies_s) > 1:
        cuts = quantiles(client.latencies_s, n=100)
        result |= {"p50_ms": cuts[49] * 1e3, "p99_ms": cuts[98] * 1e3}
    return result


if __name__ == "__main__":
    run(sys.argv[1], _send)
