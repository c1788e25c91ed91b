"""ENet by pyenet: reliable packets on one channel."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import enet

from benchmarks.transport.loads import Announce, Load
from benchmarks.transport.pattern import Reception
from benchmarks.transport.peers.pushing import PushingSender, follow, reception_of

PACKET_BYTES = 32_768
CONNECT_S = 10.0
EVENTS_MAX = 1_024
"""Taken in one turn before the application reads them."""


class EnetLine:
    def __init__(self, host: Any, peer: Any) -> None:
        self._host = host
        self._peer = peer

    def send(self, body: bytes) -> None:
        self._peer.send(0, enet.Packet(body, enet.PACKET_FLAG_RELIABLE))

    def turn(self, wait_s: float) -> list[bytes]:
        bodies: list[bytes] = []
        event = self._host.service(int(wait_s * 1_000))
        while event is not None and event.type != enet.EVENT_TYPE_NONE and len(bodies) < EVENTS_MAX:
            if event.type == enet.EVENT_TYPE_RECEIVE:
                bodies.append(event.packet.data)
            elif event.type == enet.EVENT_TYPE_CONNECT:
                self._peer = event.peer
            elif event.type == enet.EVENT_TYPE_DISCONNECT:
                raise ConnectionError("ENet gave the connection up")
            event = self._host.check_events()
        return bodies


async def open_sender(host: str, port: int, load: Load) -> PushingSender:
    here = enet.Host(None, 1, 1, 0, 0)
    peer = here.connect(enet.Address(host.encode(), port), 1)
    until = time.monotonic() + CONNECT_S
    while here.service(50).type != enet.EVENT_TYPE_CONNECT:
        if time.monotonic() > until:
            raise TimeoutError("pyenet got no connection")
    return PushingSender(EnetLine(here, peer), load, PACKET_BYTES)


async def serve(host: str, load: Load, announce: Announce) -> None:
    # ENet does not tell which free port it got.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((host, 0))
        port = probe.getsockname()[1]
    server = enet.Host(enet.Address(host.encode(), port), 4, 1, 0, 0)
    reception: Reception = reception_of(load)
    announce((host, port), reception)
    await asyncio.to_thread(follow, EnetLine(server, None), reception)
