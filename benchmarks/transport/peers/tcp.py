"""TCP on asyncio streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from benchmarks.transport.loads import Load
from benchmarks.transport.peers.framed import READ_BYTES, FramedReceiver, FramedSender


def make_sender() -> TcpSender:
    return TcpSender()


def make_receiver() -> TcpReceiver:
    return TcpReceiver()


class TcpSender:
    """Sends over one connection."""

    async def open(self, host: str, port: int, load: Load) -> None:
        reader, writer = await asyncio.open_connection(host, port, limit=READ_BYTES)
        framed = FramedSender(load, reader, writer)
        self.bulk, self.awaited, self.batches = framed.bulk, framed.awaited, framed.batches
        self.ping, self.close = framed.ping, framed.close


class TcpReceiver(FramedReceiver):
    """Receives from one connection after another."""

    async def serve(self, host: str, load: Load, announce: Callable[[str, int], None]) -> None:
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await self.handle(load, reader, writer)
            except asyncio.IncompleteReadError:
                writer.close()
            except Exception as error:
                failed.set_exception(error)

        server = await asyncio.start_server(connected, host, 0, limit=READ_BYTES)
        async with server:
            announce(*server.sockets[0].getsockname())
            await failed
