"""Bad links: a UDP relay between one listener and any number of callers, which loses, duplicates and reorders.

Each direction is a `Pipe` of the simulator, so that a link means the same here and there; only the clock is real. What
happens to a datagram depends on the seed, its direction and its position in the order of arrival alone.

python -m fairway.demo.relay '{"listener": ["127.0.0.1", 9000], "faults": {"loss": 10000}, "seed": 1}'
"""

from __future__ import annotations

import heapq
import json
import select
import selectors
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from functools import partial

from fairway.core.random_source import Seeded
from fairway.demo.services import answer, process
from fairway.net.kernel import size_receive_buffer
from fairway.sim.pipe import Faults, Pipe

HOST = "127.0.0.1"
CALLERS_MAX = 4_096
DRAIN_MAX = 256
DATAGRAM_BYTES_MAX = 65_536
TURNS_PER_LOOK, LOOK_S = 16, 0.02
"""Standard input, whose end ends the relay, is polled now and then."""
BUFFER_BYTES = 4 << 20
START_S = 20.0
STOP_S = 5.0
BAD = Faults(loss=30_000, duplicate=20_000, reorder=50_000, reorder_us=5_000, delay_us=0)

Address = tuple[str, int]
Counts = dict[str, dict[str, int]]
"""What happened to the datagrams of each direction, `forth` and `back`, as the simulator counts it."""


class Way:
    """One direction of a link in real time: what the pipe lets through is sent when it is due."""

    def __init__(self, faults: Faults, seed: int) -> None:
        self.happened: Counter[str] = Counter()
        self._carry = Pipe(faults, Seeded(seed), self.happened, None).carry
        self._under_way: list[tuple[int, int, bytes, Callable[[bytes], object]]] = []
        self._number = 0

    def send(self, data: bytes, send: Callable[[bytes], object]) -> None:
        """Have the pipe decide what becomes of a datagram or packet."""
        self.happened["packets"] += 1
        for due_us, arriving in self._carry(data, now_us()):
            self._number += 1  # what is due together keeps its order
            heapq.heappush(self._under_way, (due_us, self._number, arriving, send))

    def deliver(self, at_us: int) -> int:
        """Send what is due; return when the next one is, or a second from now."""
        while self._under_way and self._under_way[0][0] <= at_us:
            due_us, _, data, send = heapq.heappop(self._under_way)
            self.happened["late_us"] += at_us - due_us
            self.happened["delivered"] += 1
            send(data)
        return self._under_way[0][0] if self._under_way else at_us + 1_000_000


def now_us() -> int:
    """Return the time by which datagrams are due."""
    return time.monotonic_ns() // 1_000


class Relay:
    """Forwards between callers and one listener, with a socket of its own for each caller."""

    def __init__(self, listener: Address, faults: Faults, seed: int) -> None:
        self._listener = listener
        self._forth, self._back = Way(faults, 2 * seed), Way(faults, 2 * seed + 1)
        self._next_us = now_us() + 1_000_000
        self._front = _open_socket()
        self._front.bind((HOST, 0))
        self._sockets: dict[Address, socket.socket] = {}
        self._callers: dict[int, Address] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._front, selectors.EVENT_READ)

    @property
    def address(self) -> Address:
        host, port = self._front.getsockname()
        return host, port

    @property
    def counts(self) -> Counts:
        return {"forth": dict(self._forth.happened), "back": dict(self._back.happened)}

    def turn(self, wait_s: float) -> None:
        """Forward what has arrived and what is due; wait for it, at most so long."""
        until_due_s = max(0, self._next_us - now_us()) / 1e6
        for key, _ in self._selector.select(min(wait_s, until_due_s)):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            with suppress(BlockingIOError, ConnectionRefusedError):
                for _ in range(DRAIN_MAX):
                    self._take(sock)
        at_us = now_us()
        self._next_us = min(self._forth.deliver(at_us), self._back.deliver(at_us))

    def _take(self, sock: socket.socket) -> None:
        datagram, caller = sock.recvfrom(DATAGRAM_BYTES_MAX)
        if sock is self._front:
            self._forth.send(datagram, partial(_send, self._towards_listener(caller), None))
        else:
            self._back.send(datagram, partial(_send, self._front, self._callers[sock.fileno()]))

    def _towards_listener(self, caller: Address) -> socket.socket:
        sock = self._sockets.get(caller)
        if sock is None:
            if len(self._sockets) >= CALLERS_MAX:
                raise OverflowError(f"the relay has more than {CALLERS_MAX} callers")
            sock = self._sockets[caller] = _open_socket()
            sock.connect(self._listener)
            self._callers[sock.fileno()] = caller
            self._selector.register(sock, selectors.EVENT_READ)
        return sock

    def close(self) -> None:
        self._selector.close()
        for sock in (self._front, *self._sockets.values()):
            sock.close()


def _open_socket() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    size_receive_buffer(sock, BUFFER_BYTES)
    return sock


def _send(sock: socket.socket, address: Address | None, datagram: bytes) -> None:
    with suppress(BlockingIOError, ConnectionRefusedError):  # a loss like any other
        if address is None:
            sock.send(datagram)
        else:
            sock.sendto(datagram, address)


@contextmanager
def relaying(listener: Address, faults: Faults, seed: int) -> Iterator[tuple[Address, Callable[[], Counts]]]:
    """Run a relay as a process; yield its address, and a call that stops it and returns what happened."""
    job = json.dumps({"listener": listener, "faults": asdict(faults), "seed": seed})
    with process([sys.executable, "-m", "fairway.demo.relay", job]) as child:
        host, port = answer(child, START_S)

        def stop() -> Counts:
            assert child.stdin is not None
            child.stdin.close()
            counts: Counts = answer(child, STOP_S)
            return counts

        yield (host, port), stop


@contextmanager
def bad_links(urls: Mapping[str, str], seed: int) -> Iterator[tuple[dict[str, str], Counter[str]]]:
    """Put a relay in front of each URL; yield the URLs of the relays, and counts that are filled at the end."""
    counts: Counter[str] = Counter()
    with ExitStack() as relays:
        stops, through = [], {}
        for protocol, url in urls.items():
            scheme, _, address = url.partition("://")
            host, port = address.rsplit(":", 1)
            (relay_host, relay_port), stop = relays.enter_context(relaying((host, int(port)), BAD, seed))
            through[protocol] = f"{scheme}://{relay_host}:{relay_port}"
            stops.append(stop)
        yield through, counts
        for stop in stops:
            for happened in stop().values():
                counts += Counter(happened)


def main(argument: str) -> None:
    """Relay until standard input ends; print the address first and the counts last."""
    job = json.loads(argument)
    host, port = job["listener"]
    relay = Relay((host, port), Faults(**job["faults"]), job["seed"])
    print(json.dumps(relay.address), flush=True)
    try:
        while not select.select((sys.stdin,), (), (), 0)[0]:
            for _ in range(TURNS_PER_LOOK):
                relay.turn(LOOK_S)
        print(json.dumps(relay.counts), flush=True)
    finally:
        relay.close()


if __name__ == "__main__":
    main(sys.argv[1])
