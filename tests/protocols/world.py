"""Machines of one protocol in one memory: a clock, a delay, and whatever a test wants lost."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, TypeVar

from fairway.core.events import Connected, Delivered, Event, MessageReceived, MessagesReceived, Peer, RequestReceived
from fairway.core.machine import Machine, Options, Transmit, settle, split
from fairway.core.random_source import Seeded
from fairway.protocols import make_machine, make_options

E = TypeVar("E")
Lose = Callable[[str, bytes], bool]
"""Told who sends and what; returns whether the network loses it."""
STEPS_MAX = 1_000_000
GSO_DATAGRAMS = 64
"""What one system call of a real socket takes at the most."""


def datagrams(transmits: list[Transmit]) -> list[bytes]:
    """Return what leaves, datagram by datagram."""
    return [
        bytes(datagram)
        for transmit in transmits
        for datagram in split(transmit.data, transmit.segment_bytes or max(1, len(transmit.data)))
    ]


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


def nothing(name: str, data: bytes) -> bool:
    return False


class Node:
    """A machine in the world, what it reported, and what it sent."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.events: list[Event] = []
        self.sent: list[tuple[int, bytes]] = []

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def bodies(self) -> list[bytes]:
        return [event.body for event in self.of(MessageReceived)]

    @property
    def peer(self) -> Peer:
        return self.of(Connected)[-1].peer


class World:
    """Machines by name, joined by links of one delay; the name is the address."""

    def __init__(self, protocol: str, *, delay_us: int = 1_000, lose: Lose = nothing, commits: bool = True) -> None:
        self.protocol = protocol
        self.now_us = 1_000_000
        self.delay_us = delay_us
        self.lose = lose
        self.commits = commits
        self.batched = False
        self.nodes: dict[str, Node] = {}
        self.wakes = 0
        self._flying: list[tuple[int, int, str, str, bytes, int | None]] = []
        self._count = 0

    def add(self, name: str, seed: int | None = None, options: Options | None = None, **chosen: Any) -> Node:
        """Add a machine, or replace the one of that name."""
        settings = options or make_options(self.protocol, **chosen)
        random = Seeded(len(self.nodes) + 1 if seed is None else seed)
        self.nodes[name] = Node(make_machine(self.protocol, settings, random))
        return self.nodes[name]

    def settle(self, name: str) -> None:
        """Send and report what the machine has, as every driver does."""
        node = self.nodes[name]

        def transmit(transmits: list[Transmit]) -> None:
            for one in transmits:
                sent = datagrams([one])
                node.sent += [(self.now_us, data) for data in sent]
                left = [data for data in sent if not self.lose(name, data)]
                step = GSO_DATAGRAMS if self.batched else 1
                for start in range(0, len(left), step):
                    joined = b"".join(left[start : start + step])
                    self.arrive(str(one.address), name, joined, one.segment_bytes if self.batched else None)

        def report(event: Event) -> None:
            node.events += flattened([event])
            if self.commits and isinstance(event, MessageReceived | MessagesReceived | RequestReceived):
                node.machine.commit(event.receipt, self.now_us)

        settle(node.machine, transmit, report, lambda deadline_us: None)

    def arrive(self, to: str, origin: str, data: bytes, segment_bytes: int | None = None) -> None:
        """Have a datagram, or several, arrive after the delay."""
        self._count += 1
        heappush(self._flying, (self.now_us + self.delay_us, self._count, to, origin, data, segment_bytes))

    def run(self, for_us: int) -> None:
        """Let time pass."""
        for name in list(self.nodes):
            self.settle(name)
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
            self.wakes += 1
            self.nodes[name].machine.wake(self.now_us)
            deadline_us = self.nodes[name].machine.next_deadline_us()
            assert deadline_us is None or deadline_us > self.now_us
            self.settle(name)
            return
        _, _, target, source, data, segment_bytes = heappop(self._flying)
        if target in self.nodes:
            self.nodes[target].machine.receive(data, source, self.now_us, segment_bytes)
            self.settle(target)

    def connect(self, caller: str, called: str) -> tuple[Peer, Peer]:
        """Open a conversation and return it as each side knows it."""
        self.nodes[caller].machine.connect(called, self.now_us)
        self.run(10 * self.delay_us)
        return self.nodes[caller].peer, self.nodes[called].peer

    def send(self, name: str, *bodies: bytes, peer: Peer | None = None) -> list[int]:
        """Send messages one by one on the node's latest connection."""
        node = self.nodes[name]
        tokens = [node.machine.send(peer or node.peer, body, self.now_us) for body in bodies]
        self.settle(name)
        return tokens

    def forget(self) -> None:
        """Forget what was sent, and how often a machine was woken."""
        self.wakes = 0
        for node in self.nodes.values():
            node.sent.clear()

    # By name.

    @property
    def machines(self) -> dict[str, Machine]:
        return {name: node.machine for name, node in self.nodes.items()}

    def sent(self, name: str) -> list[bytes]:
        return [data for _, data in self.nodes[name].sent]

    def of(self, name: str, kind: type[E]) -> list[E]:
        """Return the events of one kind."""
        return self.nodes[name].of(kind)

    def bodies(self, name: str) -> list[bytes]:
        return self.nodes[name].bodies
