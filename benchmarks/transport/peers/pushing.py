"""What the peers without asyncio share: a sender that is told what has arrived, and a receiver that tells.

The receiving application confirms every so many units, and the sender keeps a bounded number unconfirmed: the queues of
these libraries have no bound of their own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from benchmarks.transport.loads import Load
from benchmarks.transport.pattern import (
    BLOCK,
    BLOCK_BYTES,
    NUMBER_BYTES,
    Corrupt,
    MessageCheck,
    StreamCheck,
    cycle,
    message,
    tail,
)

BLOCKS_IN_FLIGHT = 16
TURN_S = 0.0005
"""How often a line is driven while messages are awaited one by one."""
MESSAGES_IN_FLIGHT, CONFIRM_MESSAGES = 1_024, 128
"""More would not be kind: with 8,192 queued and 5 % loss ENet stands still."""


def number(value: int) -> bytes:
    return value.to_bytes(NUMBER_BYTES, "big")


class Line(Protocol):
    """A reliable conversation of a library that is driven by hand."""

    def send(self, body: bytes) -> None:
        """Queues a message."""

    def turn(self, wait_s: float) -> list[bytes]:
        """Sends and receives; waits for something to arrive, at most so long."""


class PushingSender:
    """Sends through a line."""

    def __init__(self, line: Line, load: Load, piece_bytes: int) -> None:
        self._line = line
        self._load = load
        self._pieces = [BLOCK[start : start + piece_bytes] for start in range(0, BLOCK_BYTES, piece_bytes)]
        self._cycle = cycle(load.message_bytes) if load.kind == "batches" else []
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def bulk(self, size: int) -> None:
        def pieces() -> Iterator[bytes]:
            while True:
                yield from self._pieces

        self._push(pieces(), size, BLOCKS_IN_FLIGHT * BLOCK_BYTES, in_bytes=True)

    async def awaited(self, count: int) -> None:
        raise NotImplementedError

    async def begin(self, units: int) -> None:
        self._line.send(number(units))
        self._turning = asyncio.create_task(self._turn())

    async def _turn(self) -> None:
        """Drive the line, and settle the messages that the receiver has confirmed."""
        confirmed = 0
        while True:
            answers = self._line.turn(0)
            if answers:
                newest = int.from_bytes(answers[-1], "big")
                for _ in range(newest - confirmed):
                    self._waiting.popleft().set_result(None)
                confirmed = newest
            await asyncio.sleep(TURN_S)

    def send(self, body: bytes) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._line.send(body)
        return future

    async def batches(self, count: int) -> None:
        def bodies() -> Iterator[bytes]:
            while True:
                yield from self._cycle

        self._push(bodies(), count, MESSAGES_IN_FLIGHT, in_bytes=False)

    def _push(self, bodies: Iterator[bytes], total: int, in_flight_max: int, *, in_bytes: bool) -> None:
        line, sent, confirmed = self._line, 0, 0
        line.send(number(total))
        while confirmed < total:
            while sent < total and sent - confirmed < in_flight_max:
                body = next(bodies)
                line.send(body)
                sent += len(body) if in_bytes else 1
            answers = line.turn(0.01)
            if answers:
                confirmed = int.from_bytes(answers[-1], "big")

    async def ping(self, body: bytes) -> None:
        self._line.send(body)
        while not self._line.turn(0.01):
            pass


class PushingReceiver:
    """Receives from a line, compares and confirms."""

    def __init__(self) -> None:
        self.received = 0

    def follow(self, line: Line, load: Load) -> None:
        """Serves for ever; the process ends it."""
        if load.kind == "ping":
            self._pings(line, load)
        elif load.kind == "bulk":
            self._bulk(line)
        else:
            self._messages(line, load)

    def _pings(self, line: Line, load: Load) -> None:
        expected = message(0, tail(load.message_bytes))
        while True:
            for body in line.turn(0.01):
                if body != expected:
                    raise Corrupt("a ping differs from what was sent")
                self.received += 1
                line.send(number(1))

    def _bulk(self, line: Line) -> None:
        size, told, check = 0, 0, StreamCheck()
        while True:
            for body in line.turn(0.01):
                if check.total == size:
                    size, told, check = int.from_bytes(body, "big"), 0, StreamCheck()
                    continue
                check.take(body)
                self.received += len(body)
                if check.total - told >= BLOCK_BYTES or check.total == size:
                    told = check.total
                    line.send(number(told))

    def _messages(self, line: Line, load: Load) -> None:
        awaited = load.kind == "awaited"
        period, every = (None, 1) if awaited else (len(cycle(load.message_bytes)), CONFIRM_MESSAGES)
        check, told = MessageCheck(load.message_bytes, 0, period), 0
        while True:
            bodies = line.turn(0.01)
            if bodies and check.complete:
                check, told = MessageCheck(load.message_bytes, int.from_bytes(bodies[0], "big"), period), 0
                bodies = bodies[1:]
            if bodies:
                check.take(bodies)
                self.received += len(bodies)
                if check.total - told >= every or check.complete:
                    told = check.total
                    line.send(number(told))
