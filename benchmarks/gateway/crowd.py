"""Many peers of all four protocols that together send at a constant rate, and what became of every message.

A body is its peer and its number in it, then the pattern's tail, so that the table can be compared with what was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter

from benchmarks.gateway.landed import PEER_SHIFT
from benchmarks.gateway.systems import MESSAGE_BYTES
from benchmarks.transport.pattern import message, tail
from fairway import net
from fairway.core.errors import CallerError, FairwayError

TICK_S = 0.01
RECONNECT_S = 0.5
OPEN_S = 60.0
BEHIND_S = 5.0
"""Who is further behind the rate than this catches up no more: it was held back."""
UNDER_WAY_S = 20.0
"""At most what is sent in this time waits for its outcome."""
LATENCY_EVERY = 16

OPEN, ACKNOWLEDGED, UNKNOWN = 0, 1, 2


@dataclass(slots=True)
class Ledger:
    """The outcome of every message, by peer and number, and the latencies of some since they were last taken."""

    outcomes: list[bytearray]
    sent: int = 0
    acknowledged: int = 0
    unknown: int = 0
    held_back: int = 0
    """Messages that were due and not sent, because too many waited for their outcome."""
    reconnects: int = 0
    latencies_s: list[float] = field(default_factory=list)

    @property
    def under_way(self) -> int:
        return self.sent - self.acknowledged - self.unknown


class Crowd:
    """Opens the conversations, sends in turn, and keeps the ledger."""

    def __init__(self, urls: Sequence[str], peers: int, rate: float) -> None:
        self._urls = [urls[number % len(urls)] for number in range(peers)]
        self._rate = rate
        self._connections: list[net.Connection | None] = [None] * peers
        self._opening: set[asyncio.Task[None]] = set()
        self._tail = tail(MESSAGE_BYTES)
        self.ledger = Ledger([bytearray() for _ in range(peers)])

    async def open(self) -> None:
        """Open all conversations, one after the other: nobody is measured yet."""
        for peer in range(len(self._urls)):
            await self._connect(peer)

    async def _connect(self, peer: int) -> None:
        until_s = perf_counter() + OPEN_S
        while True:
            try:
                self._connections[peer] = await net.connect(self._urls[peer])
                return
            except FairwayError:
                if perf_counter() > until_s:
                    raise
                await asyncio.sleep(RECONNECT_S)

    async def send_for(self, seconds: float) -> None:
        """Send at the rate for so long."""
        began_s, due_before = perf_counter(), 0
        peer = 0
        while (elapsed_s := perf_counter() - began_s) < seconds:
            due = int(elapsed_s * self._rate) - due_before
            count = min(due, int(BEHIND_S * self._rate), int(UNDER_WAY_S * self._rate) - self.ledger.under_way)
            for _ in range(max(0, count)):
                peer = (peer + 1) % len(self._urls)
                self._send(peer)
            self.ledger.held_back += due - max(0, count)
            due_before += due
            await asyncio.sleep(TICK_S)

    def _send(self, peer: int) -> None:
        connection, ledger = self._connections[peer], self.ledger
        if connection is None:
            ledger.held_back += 1
            return
        numbers = ledger.outcomes[peer]
        number = len(numbers)
        try:
            future = connection.send_nowait(message(peer << PEER_SHIFT | number, self._tail))
        except (FairwayError, CallerError):
            ledger.held_back += 1
            self._lost(peer, connection)
            return
        numbers.append(OPEN)
        ledger.sent += 1
        began_s = perf_counter() if ledger.sent % LATENCY_EVERY == 0 else 0.0
        future.add_done_callback(partial(self._settled, peer, number, connection, began_s))

    def _settled(
        self, peer: int, number: int, connection: net.Connection, began_s: float, future: asyncio.Future[None]
    ) -> None:
        ledger = self.ledger
        if future.cancelled() or future.exception() is not None:
            ledger.outcomes[peer][number] = UNKNOWN
            ledger.unknown += 1
            self._lost(peer, connection)
            return
        ledger.outcomes[peer][number] = ACKNOWLEDGED
        ledger.acknowledged += 1
        if began_s:
            ledger.latencies_s.append(perf_counter() - began_s)

    def _lost(self, peer: int, connection: net.Connection) -> None:
        """Open a new conversation instead of one in which something went wrong."""
        if self._connections[peer] is connection:
            self._connections[peer] = None
            self.ledger.reconnects += 1
            task = asyncio.get_running_loop().create_task(self._reopen(peer, connection))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _reopen(self, peer: int, connection: net.Connection) -> None:
        await connection.close(1.0)
        await self._connect(peer)

    async def settle(self, seconds: float) -> None:
        """Wait for every outcome, at most so long; what is open then counts as unknown. Then close everything."""
        until_s = perf_counter() + seconds
        while self.ledger.under_way and perf_counter() < until_s:
            await asyncio.sleep(TICK_S)
        for task in self._opening:
            task.cancel()
        for connection in self._connections:
            if connection is not None:
                await connection.close(1.0)
