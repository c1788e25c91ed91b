"""What is measured on a link, once for all peers: each is a way to drive a sender's `begin` and `send`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol

from benchmarks.transport.loads import Load
from benchmarks.transport.pattern import message, tail

MESSAGES_MAX = 4_000_000
"""More than any link here carries; a transfer that is stopped by the clock announces so many."""
TRICKLE_PER_S = 100
TRICKLE_ENDS_S = 20.0
"""What is not acknowledged so long after the last message was sent counts as lost."""


class Sender(Protocol):
    """The calling side of a peer, once it is open."""

    async def begin(self, units: int) -> None:
        """Announce a transfer of so many messages."""

    def send(self, body: bytes) -> asyncio.Future[Any]:
        """Send a message; the future is done when it was acknowledged or, where the protocol does not say so, when the
        receiving application has confirmed it."""


async def stream(sender: Sender, load: Load, seconds: float) -> dict[str, Any]:
    """Keep as much unconfirmed as the link can use; what was confirmed when the time is over counts."""
    loop, room = asyncio.get_running_loop(), asyncio.Event()
    await sender.begin(MESSAGES_MAX)
    after, until_s = tail(load.message_bytes), loop.time() + seconds
    sent = confirmed = 0

    def confirm(future: asyncio.Future[Any]) -> None:
        nonlocal confirmed
        future.result()
        confirmed += 1
        room.set()

    while loop.time() < until_s:
        while (sent - confirmed) * load.message_bytes < load.in_flight_bytes:
            sender.send(message(sent, after)).add_done_callback(confirm)
            sent += 1
        room.clear()
        try:
            async with asyncio.timeout_at(until_s):
                await room.wait()
        except TimeoutError:
            break
    counted = confirmed
    # A receiver may acknowledge what it keeps behind a gap: it can only be compared when the gap is filled.
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while confirmed < sent:
                room.clear()
                await room.wait()
    return _result(counted, seconds, counted * load.message_bytes / seconds)


async def once(sender: Sender, load: Load, seconds: float) -> dict[str, Any]:
    """Send `in_flight_bytes` at once, on a connection that is new, and wait for all of it."""
    loop, count = asyncio.get_running_loop(), -(-load.in_flight_bytes // load.message_bytes)
    after = tail(load.message_bytes)
    started_s = loop.time()
    await asyncio.gather(sender.begin(count), *[_begun(sender, message(number, after)) for number in range(count)])
    return _result(count, loop.time() - started_s, (loop.time() - started_s) * 1e3)


async def _begun(sender: Sender, body: bytes) -> None:
    await asyncio.sleep(0)  # behind the announcement
    await sender.send(body)


async def trickle(sender: Sender, load: Load, seconds: float) -> dict[str, Any]:
    """Send small messages at a steady rate, whatever becomes of the earlier ones, and time each."""
    loop = asyncio.get_running_loop()
    count, after = int(TRICKLE_PER_S * seconds), tail(load.message_bytes)
    await sender.begin(count)
    times_s: list[float] = []
    waiting: list[asyncio.Future[None]] = []
    started_s = loop.time()
    for number in range(count):
        await asyncio.sleep(started_s + number / TRICKLE_PER_S - loop.time())
        waiting.append(asyncio.ensure_future(_timed(sender.send(message(number, after)), times_s)))
    await asyncio.wait(waiting, timeout=TRICKLE_ENDS_S)
    return {**_latencies(times_s, seconds), "lost": count - len(times_s)}


async def ask(sender: Sender, load: Load, seconds: float) -> dict[str, Any]:
    """Ask, wait for the application's answer, ask again. Where confirmations are such answers, they are waited for."""
    loop, after, times_s = asyncio.get_running_loop(), tail(load.message_bytes), list[float]()
    await sender.begin(MESSAGES_MAX)
    asked, until_s = getattr(sender, "ask", sender.send), loop.time() + seconds
    while loop.time() < until_s:
        await _timed(asked(message(len(times_s), after)), times_s)
    return _latencies(times_s, seconds)


async def _timed(future: Awaitable[Any], times_s: list[float]) -> None:
    loop = asyncio.get_running_loop()
    sent_s = loop.time()
    await future
    times_s.append(loop.time() - sent_s)


def _latencies(times_s: list[float], seconds: float) -> dict[str, Any]:
    if not times_s:
        raise TimeoutError("not one message was acknowledged")
    times_s.sort()
    p50_s, p99_s = (times_s[len(times_s) * percent // 100] for percent in (50, 99))
    return {**_result(len(times_s), seconds, p50_s * 1e3), "p99": p99_s * 1e3}


def _result(units: int, seconds: float, rate: float) -> dict[str, Any]:
    return {"units": units, "total_units": units, "seconds": seconds, "rate": rate}


DRIVES: dict[str, Callable[[Sender, Load, float], Awaitable[dict[str, Any]]]] = {
    "stream": stream,
    "once": once,
    "trickle": trickle,
    "ask": ask,
}
