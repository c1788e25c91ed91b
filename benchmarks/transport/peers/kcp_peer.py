"""KCP by its Python binding, in the fast mode that its authors recommend, on a socket drained by hand."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable

from kcp import KCP

from benchmarks.transport.loads import Load
from benchmarks.transport.peers.pushing import PushingReceiver, PushingSender
from benchmarks.transport.peers.raw import roomy

CONVERSATION = 7
DATAGRAM_BYTES = 1_200
WINDOW = 1_024
INTERVAL_MS = 10
PIECE_BYTES = 65_535
"""Below 128 fragments, which is what one message may have."""
DRAIN_MAX = 64
"""Datagrams taken before acknowledgements leave."""


def make_sender(window: str = str(WINDOW)) -> KcpSender:
    return KcpSender(int(window))


def make_receiver(window: str = str(WINDOW)) -> KcpReceiver:
    return KcpReceiver(int(window))


class KcpLine:
    """One KCP conversation on a socket of its own."""

    def __init__(self, sock: socket.socket, window: int) -> None:
        sock.setblocking(False)
        roomy(sock)
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


class KcpSender:
    """Sends over one conversation."""

    def __init__(self, window: int) -> None:
        self._window = window

    async def open(self, host: str, port: int, load: Load) -> None:
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        line = KcpLine(self._sock, self._window)
        line.connect((host, port))
        pushing = PushingSender(line, load, PIECE_BYTES)
        self.begin, self.send = pushing.begin, pushing.send
        self.bulk, self.awaited, self.batches, self.ping = pushing.bulk, pushing.awaited, pushing.batches, pushing.ping

    async def close(self) -> None:
        self._sock.close()


class KcpReceiver(PushingReceiver):
    """Receives from the first that calls."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self._window = window

    async def serve(self, host: str, load: Load, announce: Callable[[str, int], None]) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind((host, 0))
            announce(*sock.getsockname())
            await asyncio.to_thread(self.follow, KcpLine(sock, self._window), load)
