"""Crowds and floods at one endpoint, with what they cost it."""

from __future__ import annotations

import asyncio
import resource
import socket
import struct
import time
from typing import Any

from benchmarks.scale.host import hosting
from fairway import net
from fairway.protocols.mrp import wire as mrp
from fairway.protocols.udpc import wire as udpc

ESTABLISHED = 100
WAVE = 250
"""Sessions that open or send at the same time: the listener's socket has a bounded buffer."""
POUR = 500
"""Calls between two turns of those who are already there."""
EXCHANGES = 2
FILES_SPARE = 256
BODY = b"a message of sixty-four bytes, so that it is like those of others"[:64]
CALM = {"udpc": "&keepalive=5s&silence=60s", "mrp": ""}
"""Heartbeats of 10,000 sessions each second would disturb what is measured: both sides wait longer."""
IP_PKTINFO = 8
_PACKET_INFO = struct.Struct("=i4s4s")
"""Interface (0: any), source address, unused on the way out."""


async def connect(url: str, protocol: str, count: int) -> list[net.Connection]:
    """Open so many sessions, each on a socket of its own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count + FILES_SPARE:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count + FILES_SPARE, hard), hard))
    opened: list[net.Connection] = []
    for start in range(0, count, WAVE):
        wave = range(min(WAVE, count - start))
        opened += await asyncio.gather(*(net.connect(f"{url}?controller=eager{CALM[protocol]}") for _ in wave))
    return opened


async def exchange(connections: list[net.Connection]) -> None:
    """Have each session send a message and get it back."""
    for start in range(0, len(connections), WAVE):
        wave = connections[start : start + WAVE]
        await asyncio.gather(*(one.send(BODY) for one in wave))
        answers = await asyncio.gather(*(one.receive() for one in wave))
        assert all(answer.body == BODY for answer in answers), "an answer is changed"


def crowd(protocol: str, sessions: int, *, limit_s: float) -> dict[str, Any]:
    """Open so many sessions, have each send a message and get it back, twice; raise when one does not."""
    return asyncio.run(asyncio.wait_for(_crowd(protocol, sessions), limit_s))


async def _crowd(protocol: str, sessions: int) -> dict[str, Any]:
    started = time.monotonic()
    with hosting(f"{protocol}://127.0.0.1:0?peers_max={max(65_536, sessions)}{CALM[protocol]}") as host:
        before = host.report()["resident_bytes"]
        connections = await connect(host.url, protocol, sessions)
        for _ in range(EXCHANGES):
            await exchange(connections)
        after = await asyncio.to_thread(host.report)
        assert after["statistics"]["messages_received"] == sessions * EXCHANGES
        assert after["statistics"]["conversations_opened"] >= sessions
        await _close(connections)
    return {
        "protocol": protocol,
        "sessions": sessions,
        "seconds": round(time.monotonic() - started, 1),
        "bytes_per_session": (after["resident_bytes"] - before) // sessions,
        "resident_mb": round(after["resident_bytes"] / 1e6, 1),
    }


async def _close(connections: list[net.Connection]) -> None:
    await asyncio.gather(*(one.close(1.0) for one in connections))


def flood(protocol: str, calls: int, *, limit_s: float, options: str = "") -> dict[str, Any]:
    """Pour calls from made-up addresses, none of which ever answers, while sessions that are open go on exchanging
    messages; raise when one does not get through, before, during or after."""
    return asyncio.run(asyncio.wait_for(_flood(protocol, calls, options), limit_s))


async def _flood(protocol: str, calls: int, options: str) -> dict[str, Any]:
    started = time.monotonic()
    with (
        hosting(f"{protocol}://127.0.0.1:0{options}") as host,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as pouring,
    ):
        pouring.bind(("0.0.0.0", 0))
        connections = await connect(host.url, protocol, ESTABLISHED)
        await exchange(connections)
        before = await asyncio.to_thread(host.report, entries=True)
        for poured in range(0, calls, POUR):
            for number in range(poured, min(poured + POUR, calls)):
                pour(pouring, protocol, number, host.address)
            await asyncio.sleep(0)
            if poured % (calls // 10 // POUR * POUR or POUR) == 0:
                await exchange(connections)
        during = await asyncio.to_thread(host.report, entries=True)
        await exchange(connections)
        await _close(connections)
    seen = "datagrams_received"
    return {
        "protocol": protocol,
        "calls": calls,
        "seconds": round(time.monotonic() - started, 1),
        "entries_grown": during["entries"] - before["entries"],
        "grown_mb": round((during["resident_bytes"] - before["resident_bytes"]) / 1e6, 1),
        "seen": during["statistics"][seen] - before["statistics"][seen],
    }


def pour(sock: socket.socket, protocol: str, number: int, listener: tuple[str, int]) -> None:
    """Send one call from an address of its own, and forget the answers to earlier ones."""
    if protocol == "udpc":
        call = udpc.encode(udpc.Control(index=number + 1, session_id=number + 1, flag=udpc.SYN))
    else:
        call = mrp.encode(mrp.Connect(ver=0, cl_conid=number % 0xFFFFFF + 1))
    control = [(socket.IPPROTO_IP, IP_PKTINFO, _PACKET_INFO.pack(0, made_up(number), bytes(4)))]
    sock.sendmsg((call,), control, 0, listener)
    try:
        while number % POUR == 0:
            sock.recv(2_048, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return


def made_up(number: int) -> bytes:
    return (0x7F020000 + number).to_bytes(4, "big")
