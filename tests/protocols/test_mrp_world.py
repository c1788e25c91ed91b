"""Two or more mrp machines in one memory: a clock, a delay, and whatever a test wants lost."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, TypeVar

from fairway.core.drive import settle
from fairway.core.events import Connected, Delivered, Event, MessageReceived, MessagesReceived, Peer
from fairway.core.machine import Transmit
from fairway.core.random_source import Seeded
from fairway.protocols.mrp.machine import MrpMachine
from fairway.protocols.mrp.options import MrpOptions

E = TypeVar("E")
Lose = Callable[[str, bytes], bool]
"""Told who sends and what; answers whether the network loses it."""
STEPS_MAX = 500_000
GSO_DATAGRAMS = 64
"""What one system call of a real socket takes at the most."""


def cut(transmit: Transmit) -> list[bytes]:
    """Return the datagrams of a transmit one by one."""
    size = transmit.segment_bytes or len(transmit.data)
    return [bytes(transmit.data[start : start + size]) for start in range(0, len(transmit.data), size)]


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


class Node:
    """A machine in the world, what it reported, and what it sent."""

    def __init__(self, machine: MrpMachine) -> None:
        self.machine = machine
        self.events: list[Event] = []
        self.sent: list[tuple[int, bytes]] = []
        self.commits = True

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in flattened(self.events) if isinstance(event, kind)]

    @property
    def bodies(self) -> list[bytes]:
        return [event.body for event in self.of(MessageReceived)]

    @property
    def peer(self) -> Peer:
        return self.of(Connected)[-1].peer


class World:
    """Machines by name, joined by links of one delay."""

    def __init__(self, delay_us: int = 10_000, lose: Lose = lambda name, data: False) -> None:
        self.now_us = 1_000_000
        self.delay_us = delay_us
        self.lose = lose
        self.nodes: dict[str, Node] = {}
        self.batched = False
        self._flying: list[tuple[int, int, str, str, bytes, int | None]] = []
        self._count = 0

    def add(self, name: str, seed: int = 1, **options: Any) -> Node:
        """Adds a machine, or replaces the one of that name."""
        self.nodes[name] = Node(MrpMachine(MrpOptions(**options), Seeded(seed)))
        return self.nodes[name]

    def settle(self, name: str) -> None:
        """Sends and reports what the machine has, as every driver does."""
        node = self.nodes[name]

        def transmit_one(transmit: Transmit) -> None:
            datagrams = cut(transmit)
            node.sent += [(self.now_us, data) for data in datagrams]
            left = [data for data in datagrams if not self.lose(name, data)]
            step = GSO_DATAGRAMS if self.batched else 1
            for start in range(0, len(left), step):
                self._count += 1
                joined = b"".join(left[start : start + step])
                flying = (self.now_us + self.delay_us, self._count, str(transmit.address), name)
                heappush(self._flying, (*flying, joined, transmit.segment_bytes if self.batched else None))

        def transmit(transmits: list[Transmit]) -> None:
            for one in transmits:
                transmit_one(one)

        def report(event: Event) -> None:
            node.events.append(event)
            if node.commits and isinstance(event, MessageReceived | MessagesReceived):
                node.machine.commit(event.receipt, self.now_us)

        settle(node.machine, transmit, report, lambda deadline_us: None)

    def run(self, for_us: int) -> None:
        """Lets time pass."""
        end_us = self.now_us + for_us
        for _ in range(STEPS_MAX):
            due_us, name = self._next()
            if due_us is None or due_us > end_us:
                self.now_us = end_us
                return
            self.now_us = max(self.now_us, due_us)
            self._step(name)
        raise AssertionError("the world does not come to rest")

    def _next(self) -> tuple[int | None, str]:
        wakes = [(node.machine.next_deadline_us(), name) for name, node in self.nodes.items()]
        found = [(due_us, name) for due_us, name in wakes if due_us is not None]
        if self._flying:
            found.append((self._flying[0][0], ""))
        return min(found, default=(None, ""))

    def _step(self, name: str) -> None:
        if name:
            self.nodes[name].machine.wake(self.now_us)
            self.settle(name)
            deadline_us = self.nodes[name].machine.next_deadline_us()
            assert deadline_us is None or deadline_us > self.now_us
            return
        _, _, target, source, data, segment_bytes = heappop(self._flying)
        if target in self.nodes:
            self.nodes[target].machine.receive(data, source, self.now_us, segment_bytes)
            self.settle(target)

    def send(self, name: str, *bodies: bytes, peer: Peer | None = None) -> list[int]:
        """Sends messages one by one on the node's latest connection."""
        node = self.nodes[name]
        tokens = [node.machine.send(peer or node.peer, body, self.now_us) for body in bodies]
        self.settle(name)
        return tokens


def pair(lose: Lose = lambda name, data: False, **options: Any) -> tuple[World, Node, Node]:
    """Return a world with a client `c` that is connected to a server `s`."""
    world = World(lose=lose)
    server, client = world.add("s", 2, **options), world.add("c", 1, **options)
    client.machine.connect("s", world.now_us)
    world.settle("c")
    world.run(100_000)
    return world, client, server
