"""KCP by its Python binding, in the fast mode that its authors recommend, on a socket drained by hand."""

from __future__ import annotations

import asyncio
import select
import socket

from kcp import KCP

from benchmarks.transport.loads import Announce, Load
from benchmarks.transport.peers.pushing import PushingSender, follow, reception_of
from benchmarks.transport.peers.raw import RECEIVE_BUFFER_BYTES
from fairway.net.kernel import size_receive_buffer

CONVERSATION = 7
DATAGRAM_BYTES = 1_200
WINDOW = "1024"
INTERVAL_MS = 10
PIECE_BYTES = 65_535
"""Below 128 fragments, which is what one message may have."""
DRAIN_MAX = 64
"""Datagrams taken before acknowledgements leave."""


class KcpLine:
    """One KCP conversation on a socket of its own."""

    def __init__(self, sock: socket.socket, window: int) -> None:
        sock.setblocking(False)
        size_receive_buffer(sock, RECEIVE_BUFFER_BYTES)
        self._sock = sock
        self._connected = False
        self._kcp = KCP(
            CONVERSATION,
            max_transmission=DATAGRAM_BYTES,
            no_delay=True,
            update_interval=INTERVAL_MS,
            resend_count=2,
            no_congestion_control=True,
            send_window_size=window,
            receive_window_size=window,
        )
        self._kcp.include_outbound_handler(self._leave)
        self._kcp.update()

    def connect(self, address: tuple[str, int]) -> None:
        self._sock.connect(address)
        self._connected = True

    def _leave(self, _: KCP, data: bytes) -> None:
        try:
            self._sock.send(data)
        except (BlockingIOError, ConnectionError):
            return  # lost, and repaired like any loss

    def send(self, body: bytes) -> None:
        self._kcp.enqueue(body)

    def turn(self, wait_s: float) -> list[bytes]:
        kcp, sock = self._kcp, self._sock
        kcp.update()
        if self._connected:
            kcp.flush()
        select.select((sock,), (), (), wait_s)
        try:
            for _ in range(DRAIN_MAX):
                data, address = sock.recvfrom(2_048)
                if not self._connected:
                    self.connect(address)
                kcp.receive(data)
        except (BlockingIOError, ConnectionError):
            pass
        bodies = [bytes(body) for body in kcp.get_all_received()]
        if self._connected:
            kcp.update()
            kcp.flush()
        return bodies


async def open_sender(host: str, port: int, load: Load, window: str = WINDOW) -> PushingSender:
    line = KcpLine(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), int(window))
    line.connect((host, port))
    return PushingSender(line, load, PIECE_BYTES)


async def serve(host: str, load: Load, announce: Announce, window: str = WINDOW) -> None:
    """Receive from the first that calls."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((host, 0))
        reception = reception_of(load)
        announce(sock.getsockname(), reception)
        await asyncio.to_thread(follow, KcpLine(sock, int(window)), reception)
