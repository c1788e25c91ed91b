"""The sending sides: one module for each client library, all driven in the same way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from benchmarks.gateway.systems import BATCH_MESSAGES, SYSTEMS
from benchmarks.transport.loads import IN_FLIGHT, Load
from benchmarks.transport.pattern import message, tail

if TYPE_CHECKING:
    from benchmarks.transport.loads import Sender


class Bodies:
    """Gives messages that are all different: a number, counted on from a first one, and a tail."""

    def __init__(self, first: int, size: int) -> None:
        self.next = first
        self._tail = tail(size)

    def take(self, count: int) -> list[bytes]:
        """Return the next messages."""
        first = self.next
        self.next += count
        return [message(number, self._tail) for number in range(first, first + count)]

    def batches(self, count: int) -> Iterator[list[bytes]]:
        """Return the next messages, a batch at a time."""
        while count > 0:
            yield self.take(min(count, BATCH_MESSAGES))
            count -= BATCH_MESSAGES


async def send_each(bodies: list[bytes], send_of: Callable[[int], Callable[[bytes], Awaitable[None]]]) -> list[float]:
    """Sends messages, each awaited by itself, 256 at a time; gives the seconds that each took.

    `send_of` gives the n-th of those who send at the same time its way to send.
    """
    left, latencies_s = iter(bodies), []

    async def worker(send: Callable[[bytes], Awaitable[None]]) -> None:
        for body in left:
            began_s = perf_counter()
            await send(body)
            latencies_s.append(perf_counter() - began_s)

    async with asyncio.TaskGroup() as group:
        for number in range(min(IN_FLIGHT, len(bodies))):
            group.create_task(worker(send_of(number)))
    return latencies_s


class Client(Protocol):
    """A sender that numbers its messages and remembers how long each took."""

    bodies: Bodies
    latencies_s: list[float]
    """From send to acknowledgement, of every message of the last transfer of awaited ones."""


def make_client(system: str, load: Load, first: int) -> Sender:
    """Makes the sending side of a system, whose messages are numbered from `first` on."""
    bodies = Bodies(first, load.message_bytes)
    one = SYSTEMS[system]
    if one.server == "redis":
        from benchmarks.gateway.clients.streams import RedisClient

        return RedisClient(bodies)
    if one.server == "rabbitmq":
        from benchmarks.gateway.clients.rabbit import RabbitClient

        return RabbitClient(bodies)
    from benchmarks.gateway.clients.endpoint import FairwayClient

    return FairwayClient(bodies, one.protocol)
