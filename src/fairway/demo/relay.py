"""A lossy UDP relay: it stands between one listener and any number of callers and drops, copies and delays datagrams.

What happens to a datagram depends on the seed, its direction and its place in the order of arrival alone: the same
seed does the same to the same sequence. A datagram that is held back leaves after a few later ones have passed, or
after a short while if none comes.

python -m fairway.demo.relay '{"listener": ["127.0.0.1", 9000], "faults": {"loss_per_million": 10000, "seed": 1}}'
"""

from __future__ import annotations

import json
import select
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from fairway.core.random_source import Seeded
from fairway.demo.processes import process

HOST = "127.0.0.1"
CALLERS_MAX = 4_096
HELD_MAX = 256
HELD_S = 0.005
"""How long a datagram is held back when no later one overtakes it."""
OVERTAKEN_BY_MAX = 8
DRAIN_MAX = 256
DATAGRAM_BYTES_MAX = 65_536
TURNS_PER_LOOK, LOOK_S = 16, 0.02
"""Standard input, whose end ends the relay, is looked at now and then."""
BUFFER_BYTES = 4 << 20
START_S = 20.0
STOP_S = 5.0
SO_RCVBUFFORCE = 33

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Faults:
    """What the relay does, in parts of a million of the datagrams of each direction."""

    loss_per_million: int = 0
    copies_per_million: int = 0
    reordered_per_million: int = 0
    seed: int = 0


@dataclass(slots=True)
class Counts:
    """What the relay did."""

    passed: int = 0
    lost: int = 0
    copied: int = 0
    reordered: int = 0


class Parcel(NamedTuple):
    """A datagram with the way that it takes."""

    datagram: bytes
    way: socket.socket | None = None
    address: Address | None = None
    """Where it goes, on a socket that is not connected."""


class _Held(NamedTuple):
    """A parcel that later ones may overtake."""

    until_place: int
    until_s: float
    parcel: Parcel


class Fate:
    """Decides what happens to each datagram of one direction, in turn."""

    def __init__(self, faults: Faults, direction: int) -> None:
        self._faults = faults
        self._chance = Seeded(faults.seed).fork(direction + 1)
        self.counts = Counts()
        self._place = 0
        self._held: list[_Held] = []

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def take(self, parcel: Parcel, now_s: float) -> list[Parcel]:
        """Return what leaves now that this one has come, in order."""
        faults, chance, counts = self._faults, self._chance, self.counts
        self._place += 1
        leaving: list[Parcel] = []
        if chance.happens(faults.loss_per_million):
            counts.lost += 1
        elif chance.happens(faults.reordered_per_million) and len(self._held) < HELD_MAX:
            counts.reordered += 1
            until_place = self._place + 1 + chance.below(OVERTAKEN_BY_MAX)
            self._held.append(_Held(until_place, now_s + HELD_S, parcel))
        else:
            leaving.append(parcel)
            if chance.happens(faults.copies_per_million):
                counts.copied += 1
                leaving.append(parcel)
        if self._held:
            leaving += self.overdue(now_s)
        counts.passed += len(leaving)
        return leaving

    def overdue(self, now_s: float) -> list[Parcel]:
        """Return what was overtaken or held back for long enough."""
        due = [held for held in self._held if held.until_place <= self._place or held.until_s <= now_s]
        if due:
            self._held = [held for held in self._held if held not in due]
        return [held.parcel for held in due]


class Relay:
    """Forwards between callers and one listener, with a socket of its own for each caller."""

    def __init__(self, listener: Address, faults: Faults) -> None:
        self._listener = listener
        self._forth = Fate(faults, 0)
        self._back = Fate(faults, 1)
        self._front = _open_socket()
        self._front.bind((HOST, 0))
        self._ways: dict[Address, socket.socket] = {}
        self._callers: dict[int, Address] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._front, selectors.EVENT_READ)

    @property
    def address(self) -> Address:
        host, port = self._front.getsockname()
        return host, port

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        return {"forth": asdict(self._forth.counts), "back": asdict(self._back.counts)}

    def turn(self, wait_s: float) -> None:
        """Forwards what has arrived; waits for it, at most so long."""
        holding = self._forth.holds or self._back.holds
        for key, _ in self._selector.select(min(wait_s, HELD_S) if holding else wait_s):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            if sock is self._front:
                self._forward()
            else:
                self._return(sock)
        if holding:
            now_s = time.monotonic()
            _send([*self._forth.overdue(now_s), *self._back.overdue(now_s)])

    def _forward(self) -> None:
        for _ in range(DRAIN_MAX):
            try:
                datagram, caller = self._front.recvfrom(DATAGRAM_BYTES_MAX)
            except BlockingIOError:
                return
            _send(self._forth.take(Parcel(datagram, self._way(caller)), time.monotonic()))

    def _way(self, caller: Address) -> socket.socket:
        way = self._ways.get(caller)
        if way is None:
            if len(self._ways) >= CALLERS_MAX:
                raise OverflowError(f"the relay has more than {CALLERS_MAX} callers")
            way = self._ways[caller] = _open_socket()
            way.connect(self._listener)
            self._callers[way.fileno()] = caller
            self._selector.register(way, selectors.EVENT_READ)
        return way

    def _return(self, way: socket.socket) -> None:
        caller = self._callers[way.fileno()]
        for _ in range(DRAIN_MAX):
            try:
                datagram = way.recv(DATAGRAM_BYTES_MAX)
            except (BlockingIOError, ConnectionRefusedError):
                return
            _send(self._back.take(Parcel(datagram, self._front, caller), time.monotonic()))

    def close(self) -> None:
        """Closes every socket."""
        self._selector.close()
        for sock in (self._front, *self._ways.values()):
            sock.close()


def _open_socket() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    for option in (SO_RCVBUFFORCE, socket.SO_RCVBUF):
        try:
            sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        except OSError:
            continue
        break
    return sock


def _send(parcels: list[Parcel]) -> None:
    for datagram, way, address in parcels:
        assert way is not None
        try:
            if address is None:
                way.send(datagram)
            else:
                way.sendto(datagram, address)
        except (BlockingIOError, ConnectionRefusedError):
            continue  # a loss like any other


@contextmanager
def relaying(listener: Address, faults: Faults) -> Iterator[tuple[Address, Callable[[], dict[str, dict[str, int]]]]]:
    """Runs a relay as a process; gives its address, and a call that stops it and tells what it did."""
    job = json.dumps({"listener": listener, "faults": asdict(faults)})
    with process([sys.executable, "-m", "fairway.demo.relay", job]) as child:
        host, port = _answer(child, START_S)

        def stop() -> dict[str, dict[str, int]]:
            assert child.stdin is not None
            child.stdin.close()
            counts: dict[str, dict[str, int]] = _answer(child, STOP_S)
            return counts

        yield (host, port), stop


def _answer(child: subprocess.Popen[bytes], timeout_s: float) -> Any:
    assert child.stdout is not None
    ready, _, _ = select.select((child.stdout,), (), (), timeout_s)
    line = child.stdout.readline() if ready else b""
    if not line:
        raise TimeoutError("the relay does not answer")
    return json.loads(line)


def main(argument: str) -> None:
    """Relays until standard input ends; prints the address first and the counts last."""
    job = json.loads(argument)
    host, port = job["listener"]
    relay = Relay((host, port), Faults(**job["faults"]))
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
