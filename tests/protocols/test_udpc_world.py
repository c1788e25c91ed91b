"""Two or more udpc machines in one memory: a clock, a delay, and whatever a test wants lost."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TypeVar

from fairway.core.drive import settle
from fairway.core.events import (
    Connected,
    Delivered,
    Event,
    MessageReceived,
    MessagesReceived,
    Peer,
    RequestReceived,
)
from fairway.core.machine import Transmit, split
from fairway.core.random_source import Seeded
from fairway.protocols.udpc.machine import UdpcMachine
from fairway.protocols.udpc.options import UdpcOptions

E = TypeVar("E")
Lose = Callable[[str, bytes], bool]
"""Told who sends and what; answers whether the network loses it."""


def flattened(events: list[Event]) -> list[Event]:
    """Return events that speak of many things as many events."""
    flat: list[Event] = []
    for event in events:
        if isinstance(event, MessagesReceived):
            flat.extend(event)
        elif isinstance(event, Delivered):
            flat.extend(Delivered(event.peer, (token,)) for token in event.tokens)
        else:
            flat.append(event)
    return flat


def datagrams(transmits: list[Transmit]) -> list[bytes]:
    """Return what leaves, datagram by datagram."""
    return [
        bytes(datagram)
        for transmit in transmits
        for datagram in split(transmit.data, transmit.segment_bytes or max(1, len(transmit.data)))
    ]


class World:
    """Machines by name; the name is the address."""

    def __init__(
        self, *, delay_us: int = 1_000, lose: Lose | None = None, commits: bool = True, whole: bool = False
    ) -> None:
        self.now_us = 1_000_000
        self.delay_us = delay_us
        self.lose = lose
        self.commits = commits
        self.whole = whole
        """Whether batches travel as batches."""
        self.machines: dict[str, UdpcMachine] = {}
        self.events: dict[str, list[Event]] = {}
        self.sent: dict[str, list[bytes]] = {}
        self.wakes = 0
        self._under_way: list[tuple[int, int, str, str, bytes, int | None]] = []
        self._count = 0

    def add(self, name: str, options: UdpcOptions | None = None, seed: int | None = None) -> UdpcMachine:
        machine = UdpcMachine(options or UdpcOptions(), Seeded(len(self.machines) + 1 if seed is None else seed))
        self.machines[name] = machine
        self.events[name] = []
        self.sent.setdefault(name, [])
        return machine

    def settle(self, name: str) -> None:
        machine = self.machines[name]
        settle(
            machine, lambda transmits: self._carry(name, transmits), lambda event: self._report(name, event), _ignore
        )

    def settle_all(self) -> None:
        for name in list(self.machines):
            self.settle(name)

    def _report(self, name: str, event: Event) -> None:
        self.events[name].extend(flattened([event]))
        if self.commits and isinstance(event, MessageReceived | MessagesReceived | RequestReceived):
            self.machines[name].commit(event.receipt, self.now_us)

    def _carry(self, name: str, transmits: list[Transmit]) -> None:
        for transmit in transmits:
            self._carry_one(name, transmit)

    def _carry_one(self, name: str, transmit: Transmit) -> None:
        pieces = datagrams([transmit])
        self.sent[name].extend(pieces)
        if self.whole and self.lose is None:
            self.arrive(str(transmit.address), name, bytes(transmit.data), transmit.segment_bytes)
            return
        for piece in pieces:
            if self.lose is None or not self.lose(name, piece):
                self.arrive(str(transmit.address), name, piece)

    def arrive(self, to: str, origin: str, data: bytes, segment_bytes: int | None = None) -> None:
        self._count += 1
        heappush(self._under_way, (self.now_us + self.delay_us, self._count, to, origin, data, segment_bytes))

    def next_us(self) -> int | None:
        times = [machine.next_deadline_us() for machine in self.machines.values()]
        if self._under_way:
            times.append(self._under_way[0][0])
        return min((time for time in times if time is not None), default=None)

    def run(self, duration_us: int) -> None:
        """Lets time pass."""
        self.settle_all()
        until_us = self.now_us + duration_us
        for _ in range(1_000_000):
            next_us = self.next_us()
            if next_us is None or next_us > until_us:
                self.now_us = until_us
                return
            self.now_us = max(self.now_us, next_us)
            self._step()
        raise AssertionError("the machines never come to rest")

    def _step(self) -> None:
        if self._under_way and self._under_way[0][0] <= self.now_us:
            _, _, to, origin, data, segment_bytes = heappop(self._under_way)
            if to in self.machines:
                self.machines[to].receive(data, origin, self.now_us, segment_bytes)
                self.settle(to)
            return
        for name, machine in list(self.machines.items()):
            due_us = machine.next_deadline_us()
            if due_us is not None and due_us <= self.now_us:
                machine.wake(self.now_us)
                self.wakes += 1
                again_us = machine.next_deadline_us()
                assert again_us is None or again_us > self.now_us
                self.settle(name)

    def connect(self, caller: str, called: str) -> tuple[Peer, Peer]:
        """Opens a session and gives it as each side knows it."""
        self.machines[caller].connect(called, self.now_us)
        self.run(10 * self.delay_us)
        return self.of(caller, Connected)[-1].peer, self.of(called, Connected)[-1].peer

    def of(self, name: str, kind: type[E]) -> list[E]:
        """Return the events of one kind."""
        return [event for event in self.events[name] if isinstance(event, kind)]

    def bodies(self, name: str) -> list[bytes]:
        return [event.body for event in self.of(name, MessageReceived)]


def _ignore(_due_us: int | None) -> None:
    return


def pair(
    options: UdpcOptions | None = None,
    *,
    client: UdpcOptions | None = None,
    delay_us: int = 1_000,
    commits: bool = True,
    whole: bool = False,
) -> tuple[World, Peer, Peer]:
    """Return a world with `client` and `server` and the session between them, as each knows it."""
    world = World(delay_us=delay_us, commits=commits, whole=whole)
    world.add("client", client or options)
    world.add("server", options)
    ours, theirs = world.connect("client", "server")
    return world, ours, theirs
