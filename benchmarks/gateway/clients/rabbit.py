"""RabbitMQ through pika: confirms come as the broker sends them, one for many where it gathered them."""

from __future__ import annotations

import asyncio
from typing import Any

from benchmarks.gateway.clients import Bodies, send_each
from benchmarks.gateway.systems import BATCH_MESSAGES, BATCHES_IN_FLIGHT
from benchmarks.transport.loads import Load
from fairway.core.errors import FairwayError

QUEUE = "messages"


class NotConfirmed(FairwayError):
    """The broker did not take a message, or ended the conversation."""


class RabbitClient:
    """Publishes persistent messages to a durable queue and counts their confirms."""

    def __init__(self, bodies: Bodies) -> None:
        self.bodies = bodies
        self.latencies_s: list[float] = []
        self._open: dict[int, asyncio.Future[None] | None] = {}
        """Messages that are not confirmed yet, by their delivery tag, with the future of whoever awaits one."""
        self._sent = 0
        self._waiting: asyncio.Future[None] | None = None
        self._wanted = 0
        """At most so many unconfirmed messages, then the one who waits goes on."""

    async def open(self, host: str, port: int, load: Load) -> None:
        import pika
        from pika.adapters.asyncio_connection import AsyncioConnection

        opened = self._waiting = asyncio.get_running_loop().create_future()
        AsyncioConnection(
            pika.ConnectionParameters(host, port),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._opened),
            on_open_error_callback=self._lost,
            on_close_callback=self._lost,
        )
        self._persistent: Any = pika.BasicProperties(delivery_mode=2)
        await opened

    def _opened(self, channel: Any) -> None:
        self._channel = channel
        channel.confirm_delivery(self._settled, callback=lambda _: self._declare())

    def _declare(self) -> None:
        self._channel.queue_declare(QUEUE, durable=True, callback=lambda _: self._go_on())

    def _lost(self, _: Any, reason: Any) -> None:
        error = NotConfirmed(f"the connection to RabbitMQ ended: {reason}")
        for future in (self._waiting, *self._open.values()):
            if future is not None and not future.done():
                future.set_exception(error)

    def _go_on(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _settled(self, frame: Any) -> None:
        import pika

        if not isinstance(frame.method, pika.spec.Basic.Ack):
            self._lost(None, "it refused a message")
            return
        last = frame.method.delivery_tag
        first = next(iter(self._open)) if frame.method.multiple else last
        for tag in range(first, last + 1):
            future = self._open.pop(tag, None)
            if future is not None:
                future.set_result(None)
        if len(self._open) <= self._wanted:
            self._go_on()

    def _publish(self, body: bytes, future: asyncio.Future[None] | None = None) -> None:
        self._sent += 1
        self._open[self._sent] = future
        self._channel.basic_publish("", QUEUE, body, self._persistent)

    async def _send(self, body: bytes) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._publish(body, future)
        await future

    async def _until(self, unconfirmed: int) -> None:
        """Waits until at most so many are unconfirmed."""
        if len(self._open) > unconfirmed:
            self._wanted = unconfirmed
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting

    async def bulk(self, size: int) -> None:
        raise NotImplementedError

    async def batches(self, count: int) -> None:
        for batch in self.bodies.batches(count):
            for body in batch:
                self._publish(body)
            await self._until((BATCHES_IN_FLIGHT - 1) * BATCH_MESSAGES)
        await self._until(0)

    async def awaited(self, count: int) -> None:
        self.latencies_s = await send_each(self.bodies.take(count), lambda _: self._send)

    async def ping(self, body: bytes) -> None:
        await self._send(self.bodies.take(1)[0])

    async def close(self) -> None:
        self._channel.connection.close()
