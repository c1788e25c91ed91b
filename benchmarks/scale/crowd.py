"""A crowd: thousands of callers, each with a socket and an address of its own, in one process.

One machine plays them all. To it each caller's way to the listener looks like an address of its own; here that is the
number of the socket that the datagrams leave and arrive through.
"""

from __future__ import annotations

import resource
import selectors
import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from fairway.core import events
from fairway.core.drive import settle
from fairway.core.events import Event, Peer
from fairway.core.machine import Transmit
from fairway.net.randomness import Cryptographic
from fairway.protocols import make_machine, options_class

WAVE = 250
"""Callers that connect or send at the same time: the listener's socket has a bounded buffer."""
DRAIN_MAX = 64
CALM: dict[str, dict[str, Any]] = {"udpc": {"keepalive_us": 5_000_000, "silence_us": 60_000_000}, "mrp": {}}
"""Heartbeats of 10,000 sessions each second would disturb what is measured: both sides wait longer."""
TURN_S = 0.02
FILES_SPARE = 256


class Crowd:
    """Callers of one listener."""

    def __init__(self, protocol: str, listener: tuple[str, int]) -> None:
        options = {"controller": "eager", **CALM[protocol]}
        self._machine = make_machine(protocol, options_class(protocol)(**options), Cryptographic())
        self._listener = listener
        self._sockets: list[socket.socket] = []
        self._selector = selectors.DefaultSelector()
        self._due_us: int | None = None
        self.peers: list[Peer] = []
        self.delivered = 0
        self.failed: list[str] = []
        self.answers: dict[Peer, list[bytes]] = {}

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._selector.close()
        for sock in self._sockets:
            sock.close()

    def connect(self, count: int, limit_s: float) -> None:
        """Opens so many sessions; raises `TimeoutError`."""
        allow_files(count + FILES_SPARE)
        for start in range(0, count, WAVE):
            end = min(start + WAVE, count)
            for number in range(start, end):
                self._sockets.append(self._open(number))
                self._machine.connect(number, _now_us())
            self._settle()
            self.until(lambda end=end: len(self.peers) >= end, limit_s)  # type: ignore[misc]

    def _open(self, number: int) -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.setblocking(False)
        # Not one address for all: to the listener these are as many hosts.
        sock.bind((f"127.1.{number >> 8 & 255}.{number & 255}", 0))
        sock.connect(self._listener)
        self._selector.register(sock, selectors.EVENT_READ, number)
        return sock

    def exchange(self, body: bytes, limit_s: float) -> None:
        """Has every caller send a message and get it back; raises `TimeoutError`, or `AssertionError` for another."""
        delivered = self.delivered
        self.answers.clear()
        for start in range(0, len(self.peers), WAVE):
            wave = self.peers[start : start + WAVE]
            for peer in wave:
                self._machine.send(peer, body, _now_us())
            self._settle()
            done = start + len(wave)
            self.until(lambda done=done: len(self.answers) >= done, limit_s)  # type: ignore[misc]
        self.until(lambda: self.delivered - delivered >= len(self.peers), limit_s)
        assert self.delivered - delivered == len(self.peers)
        assert all(bodies == [body] for bodies in self.answers.values()), "an answer is missing, doubled or changed"

    def until(self, condition: Callable[[], bool], limit_s: float) -> None:
        """Turns until the condition holds."""
        until_s = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > until_s:
                raise TimeoutError(
                    f"{len(self.peers)} sessions, {len(self.answers)} answers; failed: {self.failed[:3]}"
                )
            self.turn()

    def turn(self, wait_s: float = TURN_S) -> None:
        """Receives what has come, and lets timers run."""
        for key, _ in self._selector.select(wait_s):
            self._drain(key.fileobj, key.data)  # type: ignore[arg-type]
        if self._due_us is not None and _now_us() >= self._due_us:
            self._machine.wake(_now_us())
        self._settle()

    def _drain(self, sock: socket.socket, number: int) -> None:
        for _ in range(DRAIN_MAX):
            try:
                data = sock.recv(2_048)
            except (BlockingIOError, ConnectionRefusedError):
                return
            self._machine.receive(data, number, _now_us())

    def _settle(self) -> None:
        settle(self._machine, self._transmit, self._report, self._arm)

    def _transmit(self, transmits: list[Transmit]) -> None:
        for transmit in transmits:
            self._transmit_one(transmit)

    def _transmit_one(self, transmit: Transmit) -> None:
        number, data, segment_bytes = transmit
        assert isinstance(number, int)
        step = segment_bytes or len(data) or 1
        for start in range(0, len(data), step):
            try:
                self._sockets[number].send(data[start : start + step])
            except (BlockingIOError, ConnectionRefusedError):
                return

    def _arm(self, due_us: int | None) -> None:
        self._due_us = due_us

    def _report(self, event: Event) -> None:
        match event:
            case events.Connected(peer=peer):
                self.peers.append(peer)
            case events.Delivered(tokens=tokens):
                self.delivered += len(tokens)
            case events.MessageReceived(peer=peer, body=body):
                self._received(peer, [body])
                self._machine.commit(event.receipt, _now_us())
            case events.MessagesReceived(peer=peer, bodies=bodies):
                self._received(peer, list(bodies))
                self._machine.commit(event.receipt, _now_us())
            case events.Closed() | events.ConnectRefused() | events.ConnectUnknown() | events.DeliveryUnknown():
                self.failed.append(repr(event))
            case events.Refused():
                self.failed.append(repr(event))

    def _received(self, peer: Peer, bodies: list[bytes]) -> None:
        self.answers.setdefault(peer, []).extend(bodies)


def _now_us() -> int:
    return time.monotonic_ns() // 1_000


def allow_files(count: int) -> None:
    """Raises the number of files that this process may have open, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard) if hard >= 0 else count, hard))
