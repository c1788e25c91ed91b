"""TCP on asyncio streams."""

from __future__ import annotations

import asyncio
import socket
from functools import partial

from benchmarks.transport.loads import Announce, Load
from benchmarks.transport.peers.framed import READ_BYTES, FramedSender, receive, reception_of

SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
"""Beyond the limits for everybody, where that is permitted."""


def _socket(congestion: str, buffer_bytes: int) -> socket.socket:
    """Return a socket with that congestion control and buffers; the kernel's own choice where none is named."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if congestion:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
    for option in (SO_SNDBUFFORCE, SO_RCVBUFFORCE) if buffer_bytes else ():
        sock.setsockopt(socket.SOL_SOCKET, option, buffer_bytes)
    return sock


async def open_sender(host: str, port: int, load: Load, congestion: str = "", buffer_bytes: str = "0") -> FramedSender:
    sock = _socket(congestion, int(buffer_bytes))
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (host, port))
    return FramedSender(load, *await asyncio.open_connection(sock=sock, limit=READ_BYTES))


async def serve(host: str, load: Load, announce: Announce, congestion: str = "", buffer_bytes: str = "0") -> None:
    """Receive from one connection after another."""
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    reception = reception_of(load)
    connected = partial(receive, load, reception, failed)
    sock = _socket(congestion, int(buffer_bytes))
    sock.bind((host, 0))
    async with await asyncio.start_server(connected, sock=sock, limit=READ_BYTES) as server:
        announce(server.sockets[0].getsockname(), reception)
        await failed
