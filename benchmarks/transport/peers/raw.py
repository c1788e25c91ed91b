"""Raw UDP: the limits. Nothing is repaired; what counts is what arrived.

A transfer sends until the receiver has counted so many bytes. Each begins with a mark that is repeated until it is
answered, so that nothing left over from the one before is counted.
"""

from __future__ import annotations

import asyncio
import socket
import struct

from benchmarks.transport.loads import Announce, Load
from benchmarks.transport.pattern import BLOCK, Corrupt, Reception
from fairway.net.kernel import SOL_UDP, UDP_GRO, UDP_SEGMENT, size_receive_buffer

DATAGRAM_BYTES = 1_200
SEGMENTS = 54
"""What fits 65,507 bytes."""
DATAGRAM = BLOCK[:DATAGRAM_BYTES]
RUN = DATAGRAM * SEGMENTS
BURST = 64
"""Datagrams between two checks of what was counted."""

RECEIVE_BUFFER_BYTES = 2 << 20
REPORT_BYTES = 1 << 20
_MARK = struct.Struct(">I")
_REPORT = struct.Struct(">IQ")
"""The number of the transfer, and what was counted in it."""
MARK_AGAIN_S = 0.002


class RawSender:
    """Sends as fast as the calls return."""

    def __init__(self, host: str, port: int, load: Load, offload: bool) -> None:
        self._offload = offload
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._transfer = 0
        self._answered: asyncio.Future[None] | None = None
        self._sock.connect((host, port))
        if load.kind == "ping":
            self._sock.setblocking(False)
            asyncio.get_running_loop().add_reader(self._sock, self._readable)

    async def bulk(self, size: int) -> None:
        """Send until so many bytes have arrived."""
        self._transfer += 1
        self._begin()
        control = [(SOL_UDP, UDP_SEGMENT, struct.pack("=H", DATAGRAM_BYTES))] if self._offload else []
        counted = 0
        while counted < size:
            self._burst(control)
            counted = self._counted(socket.MSG_DONTWAIT)

    def _begin(self) -> None:
        self._sock.settimeout(MARK_AGAIN_S)
        answered = -1
        while answered < 0:
            self._sock.send(_MARK.pack(self._transfer))
            answered = self._counted(0, nothing=-1)
        self._sock.settimeout(None)

    def _counted(self, flags: int, nothing: int = 0) -> int:
        """Read what the receiver has counted in this transfer, if it said so."""
        try:
            transfer, counted = _REPORT.unpack(self._sock.recv(_REPORT.size, flags))
        except (BlockingIOError, TimeoutError):
            return nothing
        return int(counted) if transfer == self._transfer else nothing

    def _burst(self, control: list[tuple[int, int, bytes]]) -> None:
        sock = self._sock
        if control:
            sock.sendmsg((RUN,), control)
        else:
            for _ in range(BURST):
                sock.send(DATAGRAM)

    async def ping(self, body: bytes) -> None:
        self._answered = asyncio.get_running_loop().create_future()
        self._sock.send(body)
        await self._answered

    def _readable(self) -> None:
        self._sock.recv(2_048)
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(None)


async def open_sender(host: str, port: int, load: Load, offload: str = "no") -> RawSender:
    return RawSender(host, port, load, offload == "yes")


async def serve(host: str, load: Load, announce: Announce, offload: str = "no") -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((host, 0))
        size_receive_buffer(sock, RECEIVE_BUFFER_BYTES)
        reception = Reception(load)
        announce(sock.getsockname(), reception)
        if load.kind == "ping":
            await _answer(sock, reception)
        else:
            await asyncio.to_thread(_count, sock, reception, offload == "yes")


async def _answer(sock: socket.socket, reception: Reception) -> None:
    """Answer each datagram on the loop, as an endpoint does."""
    sock.setblocking(False)

    def readable() -> None:
        data, address = sock.recvfrom(2_048)
        reception.take([data])
        sock.sendto(data, address)

    asyncio.get_running_loop().add_reader(sock, readable)
    await asyncio.Event().wait()


def _count(sock: socket.socket, reception: Reception, offload: bool) -> None:
    """Count for ever, and tell the sender about every megabyte."""
    if offload:
        sock.setsockopt(SOL_UDP, UDP_GRO, 1)
    view = memoryview(bytearray(1 << 16))
    transfer = counted = told = 0
    while True:
        if offload:
            size, _, _, address = sock.recvmsg_into((view,), 64)
        else:
            size, address = sock.recvfrom_into(view)
        if size == _MARK.size:
            (mark,) = _MARK.unpack(view[:size])
            if mark != transfer:
                transfer, counted, told = mark, 0, 0
            sock.sendto(_REPORT.pack(transfer, counted), address)
            continue
        if not RUN.startswith(view[:size]):
            raise Corrupt("a datagram differs from what was sent")
        counted += size
        reception.received += size
        if counted - told >= REPORT_BYTES:
            sock.sendto(_REPORT.pack(transfer, counted), address)
            told = counted
