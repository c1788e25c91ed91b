"""What the peers without asyncio share: a sender that is told what has arrived, and a receiver that tells.

The receiving application confirms every so many units, and the sender keeps a bounded number unconfirmed: the queues of
these libraries have no bound of their own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import cycle as endless
from typing import Protocol

from benchmarks.transport.loads import Load
from benchmarks.transport.pattern import BLOCK, BLOCK_BYTES, Reception, StreamCheck, cycle, number_bytes

BLOCKS_IN_FLIGHT = 16
TURN_S = 0.0005
"""How often a line is driven while messages are awaited one by one."""
MESSAGES_IN_FLIGHT, CONFIRM_MESSAGES = 1_024, 128
"""More would not be kind: with 8,192 queued and 5 % loss ENet stands still."""


class Line(Protocol):
    """A reliable conversation of a library that is driven by hand."""

    def send(self, body: bytes) -> None:
        """Queue a message."""

    def turn(self, wait_s: float) -> list[bytes]:
        """Send and receive; wait for something to arrive, at most so long."""


class PushingSender:
    def __init__(self, line: Line, load: Load, piece_bytes: int) -> None:
        self._line = line
        self._pieces = [BLOCK[start : start + piece_bytes] for start in range(0, BLOCK_BYTES, piece_bytes)]
        self._cycle = cycle(load.message_bytes) if load.kind == "batches" else []
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def bulk(self, size: int) -> None:
        self._push(self._pieces, size, BLOCKS_IN_FLIGHT * BLOCK_BYTES, in_bytes=True)

    async def batches(self, count: int) -> None:
        self._push(self._cycle, count, MESSAGES_IN_FLIGHT, in_bytes=False)

    def _push(self, repeated: Sequence[bytes], total: int, in_flight_max: int, *, in_bytes: bool) -> None:
        line, bodies, sent, confirmed = self._line, endless(repeated), 0, 0
        line.send(number_bytes(total))
        while confirmed < total:
            while sent < total and sent - confirmed < in_flight_max:
                body = next(bodies)
                line.send(body)
                sent += len(body) if in_bytes else 1
            answers = line.turn(0.01)
            if answers:
                confirmed = int.from_bytes(answers[-1], "big")

    async def begin(self, units: int) -> None:
        self._line.send(number_bytes(units))
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

    async def ping(self, body: bytes) -> None:
        self._line.send(body)
        while not self._line.turn(0.01):
            pass


def follow(line: Line, reception: Reception) -> None:
    """Receive, compare and confirm for ever; the process ends it."""
    while True:
        confirmed = reception.take(line.turn(0.01))
        if confirmed is not None:
            line.send(number_bytes(confirmed))


def reception_of(load: Load) -> Reception:
    """Return what compares for such a peer: a stream in bulk, messages otherwise."""
    if load.kind == "bulk":
        return Reception(load, StreamCheck, BLOCK_BYTES)
    return Reception(load, confirm_every=1 if load.kind == "awaited" else CONFIRM_MESSAGES)
