"""The loads: what is measured, and how a sender is driven to measure it.

A load is run in transfers that grow until one takes about as long as was asked for; that one counts, the others
warm up. A transfer ends when the receiving application has confirmed that all of it arrived and was right.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.transport.clocks import cpu_s
from benchmarks.transport.pattern import BLOCK_BYTES, Reception, message, tail

IN_FLIGHT = 256
"""Messages awaited at the same time."""
BULK_MESSAGE_BYTES = 1_149
"""What carries a bulk load where a message is one datagram: within 1,200 bytes with every header."""
PINGS_WARM_UP = 200
ENOUGH_SHARE = 0.6
"""A transfer counts when it took this share of the time that was asked for."""
TOO_LONG_SHARE = 4.0
"""A first transfer that takes this long is not repeated; otherwise the first one always warms up."""
GROWTH_MAX = 8.0


@dataclass(frozen=True, slots=True)
class Load:
    name: str
    kind: str
    """`bulk`, `awaited` (each message with an awaitable of its own), `batches`, or `ping`."""
    message_bytes: int
    title: str
    drive: str = ""
    """The name of a way of its own to measure it, with `begin` and `send`: see `benchmarks.links.loads`."""
    in_flight_bytes: int = 0
    """What such a way keeps unconfirmed."""

    @property
    def quantum(self) -> int:
        """Transfers are a multiple of this many units: bytes in bulk, messages otherwise."""
        return BLOCK_BYTES if self.kind == "bulk" else IN_FLIGHT


LOADS = {
    load.name: load
    for load in (
        Load("bulk", "bulk", BULK_MESSAGE_BYTES, "bulk"),
        Load("awaited-64", "awaited", 64, "64 B awaited"),
        Load("batches-64", "batches", 64, "64 B in batches"),
        Load("awaited-1024", "awaited", 1_024, "1 KB awaited"),
        Load("batches-1024", "batches", 1_024, "1 KB in batches"),
        Load("ping-pong", "ping", 64, "ping-pong p50"),
    )
}


Announce = Callable[[tuple[str, int], Reception], None]
"""How a receiver says where it listens and where it counts."""


async def measure(
    sender: Any, load: Load, seconds: float, receiver_pid: int, units: int | None = None
) -> dict[str, Any]:
    """Run a load for about so many seconds, or, with `units`, once and exactly that much; return what was measured.

    A sender has a method for each kind of load. `bulk`, `awaited` and `batches` send so many bytes or messages and
    return when the receiving application has confirmed all; `ping` sends one and waits until it is acknowledged.
    """
    if load.kind == "ping":
        return await _measure_pings(sender, load, seconds)
    run: Callable[[int], Awaitable[None]] = getattr(sender, load.kind)
    if units is not None:
        taken, total = await _timed(run, units, receiver_pid), units
    else:
        taken, units, total = await _grow(run, load, seconds, receiver_pid)
    size = units if load.kind == "bulk" else units * load.message_bytes
    return {
        "units": units,
        "total_units": total,
        **taken,
        "rate": units / taken["seconds"] / (1e6 if load.kind == "bulk" else 1),
        "cpu_s_per_gb": (taken["sender_cpu_s"] + taken["receiver_cpu_s"]) / size * 1e9,
    }


async def _grow(
    run: Callable[[int], Awaitable[None]], load: Load, seconds: float, receiver_pid: int
) -> tuple[dict[str, float], int, int]:
    """Run growing transfers until one is long enough; return what it took, its units, and the units of all."""
    units, total = load.quantum, 0
    for turn in itertools.count():
        taken = await _timed(run, units, receiver_pid)
        total += units
        share = taken["seconds"] / seconds
        if share >= TOO_LONG_SHARE or (turn and share >= ENOUGH_SHARE):
            break
        growth = min(GROWTH_MAX, max(1.0 if share >= ENOUGH_SHARE else 2.0, 1 / share))
        units = round(units * growth / load.quantum) * load.quantum
    return taken, units, total


async def _timed(run: Callable[[int], Awaitable[None]], units: int, receiver_pid: int) -> dict[str, float]:
    pids = (os.getpid(), receiver_pid)
    before = [cpu_s(pid) for pid in pids]
    started = time.perf_counter()
    await run(units)
    elapsed = time.perf_counter() - started
    own, other = (cpu_s(pid) - earlier for pid, earlier in zip(pids, before, strict=True))
    return {"seconds": elapsed, "sender_cpu_s": own, "receiver_cpu_s": other}


async def _measure_pings(sender: Any, load: Load, seconds: float) -> dict[str, Any]:
    body = message(0, tail(load.message_bytes))
    until = time.perf_counter() + seconds
    warm = 0
    while warm < PINGS_WARM_UP and time.perf_counter() < until:
        await sender.ping(body)
        warm += 1
    times: list[float] = []
    until = time.perf_counter() + seconds
    started = 0.0
    while started < until:
        started = time.perf_counter()
        await sender.ping(body)
        times.append(time.perf_counter() - started)
    times.sort()
    return {
        "units": len(times),
        "total_units": len(times) + warm,
        "seconds": seconds,
        "rate": times[len(times) // 2] * 1e6,
        "p99": times[len(times) * 99 // 100] * 1e6,
    }


async def send_each(sends: Sequence[Callable[[bytes], Awaitable[None]]], count: int, size: int) -> None:
    """Send messages through one or more conversations, each awaited by itself, 256 at a time."""
    numbers, after = iter(range(count)), tail(size)

    async def worker(send: Callable[[bytes], Awaitable[None]]) -> None:
        for number in numbers:
            await send(message(number, after))

    workers = itertools.islice(itertools.cycle(sends), min(IN_FLIGHT, count))
    async with asyncio.TaskGroup() as group:
        for send in workers:
            group.create_task(worker(send))
