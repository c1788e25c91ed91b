"""Machines of one protocol by name, in the pump of the common suite, and whatever a test wants lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fairway.core.events import Connected, Delivered, Event, MessagesReceived, Peer
from fairway.core.machine import Machine, Options, Transmit, split
from fairway.core.random_source import Seeded
from fairway.protocols import make_machine, make_options
from tests.conformance import pair

E = TypeVar("E")
Lose = Callable[[str, bytes], bool]
"""Told who sends and what; returns whether the network loses it."""


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


class Node(pair.Node):
    """A machine in the world, what it reported, one thing an event, and what it sent."""

    def __init__(self, machine: Machine, name: str, pump: pair.Pump, *, commits: bool) -> None:
        super().__init__(machine, name, commits=commits)
        self._pump = pump

    def report(self, event: Event) -> None:
        for one in flattened([event]):
            super().report(one)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def sent(self) -> list[tuple[int, bytes]]:
        return [(datagram.sent_us, datagram.data) for datagram in self._pump.sent_by(self)]

    @property
    def peer(self) -> Peer:
        return self.of(Connected)[-1].peer


class World:
    """Machines by name, joined by links of one delay; the name is the address."""

    def __init__(
        self,
        protocol: str,
        *,
        delay_us: int = 1_000,
        lose: Lose = nothing,
        commits: bool = True,
        pump: type[pair.Pump] = pair.Pump,
    ) -> None:
        self.protocol = protocol
        self.lose = lose
        self.commits = commits
        self.pump = pump(delay_us=delay_us)
        self.pump.lose(lambda datagram: self.lose(str(datagram.source), datagram.data))
        self.nodes: dict[str, Node] = {}

    @property
    def now_us(self) -> int:
        return self.pump.now_us

    def add(self, name: str, seed: int | None = None, options: Options | None = None, **chosen: Any) -> Node:
        """Add a machine, or replace the one of that name."""
        settings = options or make_options(self.protocol, **chosen)
        random = Seeded(len(self.nodes) + 1 if seed is None else seed)
        machine = make_machine(self.protocol, settings, random)
        self.nodes[name] = Node(machine, name, self.pump, commits=self.commits)
        self.pump.nodes[name] = self.nodes[name]
        return self.nodes[name]

    def settle(self, name: str) -> None:
        """Send and report what the machine has, as every driver does."""
        self.pump.settle(self.nodes[name])

    def run(self, for_us: int) -> None:
        """Let time pass."""
        for name in list(self.nodes):
            self.settle(name)
        self.pump.run(for_us)

    def connect(self, caller: str, called: str) -> tuple[Peer, Peer]:
        """Open a conversation and return it as each side knows it."""
        self.nodes[caller].machine.connect(called, self.now_us)
        self.run(10 * self.pump.delay_us)
        return self.nodes[caller].peer, self.nodes[called].peer

    def send(self, name: str, *bodies: bytes, peer: Peer | None = None) -> list[int]:
        """Send messages one by one on the node's latest connection."""
        node = self.nodes[name]
        tokens = [node.machine.send(peer or node.peer, body, self.now_us) for body in bodies]
        self.settle(name)
        return tokens

    def forget(self) -> None:
        """Forget what was sent, and how often a machine was woken."""
        self.pump.log.clear()
        for node in self.nodes.values():
            node.wakes = 0

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
