"""TCP on asyncio streams."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from benchmarks.transport.loads import Load
from benchmarks.transport.peers.framed import READ_BYTES, FramedReceiver, FramedSender

SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
"""Beyond the limits for everybody, where that is permitted."""


def make_sender(congestion: str = "", buffer_bytes: str = "0") -> TcpSender:
    return TcpSender(congestion, int(buffer_bytes))


def make_receiver(congestion: str = "", buffer_bytes: str = "0") -> TcpReceiver:
    return TcpReceiver(congestion, int(buffer_bytes))


def _set_up(sock: socket.socket, congestion: str, buffer_bytes: int) -> None:
    """Choose the kernel's congestion control and the sizes of its buffers; its own choice where none is named."""
    if congestion:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
    for option in (SO_SNDBUFFORCE, SO_RCVBUFFORCE) if buffer_bytes else ():
        sock.setsockopt(socket.SOL_SOCKET, option, buffer_bytes)


class TcpSender:
    """Sends over one connection."""

    def __init__(self, congestion: str, buffer_bytes: int) -> None:
        self._settings = congestion, buffer_bytes

    async def open(self, host: str, port: int, load: Load) -> None:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.setblocking(False)
        _set_up(sock, *self._settings)
        await asyncio.get_running_loop().sock_connect(sock, (host, port))
        reader, writer = await asyncio.open_connection(sock=sock, limit=READ_BYTES)
        framed = FramedSender(load, reader, writer)
        self.begin, self.send = framed.begin, framed.send
        self.bulk, self.awaited, self.batches = framed.bulk, framed.awaited, framed.batches
        self.ping, self.close = framed.ping, framed.close


class TcpReceiver(FramedReceiver):
    """Receives from one connection after another."""

    def __init__(self, congestion: str, buffer_bytes: int) -> None:
        super().__init__()
        self._settings = congestion, buffer_bytes

    async def serve(self, host: str, load: Load, announce: Callable[[str, int], None]) -> None:
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await self.handle(load, reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()  # the sender has what it wanted, or says itself what is wrong
            except Exception as error:
                failed.set_exception(error)

        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        _set_up(sock, *self._settings)
        sock.bind((host, 0))
        server = await asyncio.start_server(connected, sock=sock, limit=READ_BYTES)
        async with server:
            announce(*server.sockets[0].getsockname())
            await failed
