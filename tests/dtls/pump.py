"""A layer on a real socket, in a thread, with a clock: the smallest thing that speaks with other people's programs."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType

from fairway.core.machine import Transmit
from fairway.dtls import DtlsClient, DtlsGateway, Plaintext
from tests.dtls.world import segments

PATIENCE_S = 30.0


class Pump:
    """Carries datagrams between a layer and a bound socket until it is closed."""

    def __init__(
        self, layer: DtlsGateway | DtlsClient, sock: socket.socket, answer: Callable[[bytes], bytes] | None = None
    ) -> None:
        self.layer = layer
        self.sock = sock
        self.received: list[Plaintext] = []
        self._answer = answer
        self._commands: list[list[Transmit]] = []
        self._stopped = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Pump:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopped = True
        self._thread.join()
        self.sock.close()

    def send(self, *transmits: Transmit) -> None:
        """Have the layer send, in its own thread."""
        self._commands.append(list(transmits))

    def wait(self, condition: Callable[[], bool]) -> None:
        """Return when the condition is true; time alone never makes it so."""
        end_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end_s, self.layer.counters.as_dict()
            time.sleep(0.01)

    def _run(self) -> None:
        while not self._stopped:
            if select.select([self.sock], [], [], 0.02)[0]:
                data, address = self.sock.recvfrom(65_536)
                self.layer.receive(data, address, now_us())
            due_us = self.layer.next_deadline_us()
            if due_us is not None and due_us <= now_us():
                self.layer.wake(now_us())
            while self._commands:
                self.layer.send(self._commands.pop(0), now_us())
            self._settle()
        self.layer.close()
        self._settle()

    def _settle(self) -> None:
        for plaintext in self.layer.plaintexts():
            self.received.append(plaintext)
            if self._answer is not None:
                self.layer.send([Transmit(plaintext.address, self._answer(bytes(plaintext.data)))], now_us())
        for address, data, segment_bytes in self.layer.transmits():
            for datagram in segments(data, segment_bytes):
                self.sock.sendto(datagram, address)  # type: ignore[call-overload]  # opaque but to the socket


def now_us() -> int:
    return time.monotonic_ns() // 1_000
