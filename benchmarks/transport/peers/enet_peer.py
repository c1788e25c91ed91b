"""ENet by pyenet: reliable packets on one channel."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Any

import enet

from benchmarks.transport.loads import Load
from benchmarks.transport.peers.pushing import PushingReceiver, PushingSender

PACKET_BYTES = 32_768
CONNECT_S = 10.0
EVENTS_MAX = 1_024
"""Taken in one turn before the application looks at them."""


def make_sender() -> EnetSender:
    return EnetSender()


def make_receiver() -> EnetReceiver:
    return EnetReceiver()


class EnetLine:
    """One ENet conversation."""

    def __init__(self, host: Any, peer: Any) -> None:
        self._host = host
        self.peer = peer

    def send(self, body: bytes) -> None:
        self.peer.send(0, enet.Packet(body, enet.PACKET_FLAG_RELIABLE))

    def turn(self, wait_s: float) -> list[bytes]:
        bodies: list[bytes] = []
        event = self._host.service(int(wait_s * 1_000))
        while event is not None and event.type != enet.EVENT_TYPE_NONE and len(bodies) < EVENTS_MAX:
            if event.type == enet.EVENT_TYPE_RECEIVE:
                bodies.append(event.packet.data)
            elif event.type == enet.EVENT_TYPE_CONNECT:
                self.peer = event.peer
            elif event.type == enet.EVENT_TYPE_DISCONNECT:
                raise ConnectionError("ENet gave the connection up")
            event = self._host.check_events()
        return bodies


class EnetSender:
    """Sends over one connection."""

    async def open(self, host: str, port: int, load: Load) -> None:
        self._host = enet.Host(None, 1, 1, 0, 0)
        peer = self._host.connect(enet.Address(host.encode(), port), 1)
        until = time.monotonic() + CONNECT_S
        while self._host.service(50).type != enet.EVENT_TYPE_CONNECT:
            if time.monotonic() > until:
                raise TimeoutError("pyenet got no connection")
        pushing = PushingSender(EnetLine(self._host, peer), load, PACKET_BYTES)
        self.begin, self.send = pushing.begin, pushing.send
        self.bulk, self.awaited, self.batches, self.ping = pushing.bulk, pushing.awaited, pushing.batches, pushing.ping

    async def close(self) -> None:
        self._host.flush()


class EnetReceiver(PushingReceiver):
    """Receives from one connection."""

    async def serve(self, host: str, load: Load, announce: Callable[[str, int], None]) -> None:
        # ENet does not tell which free port it got.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
            port = probe.getsockname()[1]
        server = enet.Host(enet.Address(host.encode(), port), 4, 1, 0, 0)
        announce(host, port)
        await asyncio.to_thread(self.follow, EnetLine(server, None), load)
