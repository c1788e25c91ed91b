"""Nothing that arrives raises out of a rup machine, fills it, or disturbs a healthy conversation."""

from __future__ import annotations

from fairway.core.events import Delivered, MessageReceived, Peer
from fairway.core.machine import Transmit
from fairway.core.random_source import Seeded
from fairway.protocols.rup import wire
from fairway.protocols.rup.incoming import cost
from fairway.protocols.rup.machine import RupMachine
from fairway.protocols.rup.options import RupOptions

DATAGRAMS = 50_000
EVERY = 500
"""Hostile datagrams between two healthy messages."""
TIGHT = RupOptions(
    controller="eager",
    incoming_messages_max=200,
    incoming_messages_per_peer_max=20,
    incoming_bytes_max=500_000,
    gaps_max=8,
    peers_max=64,
    unproved_max=64,
    forget_us=500_000,
    remember_us=500_000,
    unfinished_us=500_000,
)


class Hostile:
    """Makes datagrams that are random, mutated from real ones, or well-formed and absurd."""

    def __init__(self, seed: int) -> None:
        self.chance = Seeded(seed)
        self.seen: list[bytes] = [wire.control(wire.CONFIRM, b"0" * 32, 0)]

    def watch(self, transmit: Transmit) -> None:
        """Keeps a few real datagrams to mutate."""
        self.seen = [bytes(transmit.data[: transmit.segment_bytes or len(transmit.data)]), *self.seen[:20]]

    def datagram(self) -> bytes:
        kind = self.chance.below(4)
        if kind == 0:
            size = self.chance.below(90)
            return self.chance.bits(8 * size).to_bytes(size, "big") if size else b""
        if kind == 1:
            return self._mutated()
        identity = b"%032x" % self.chance.below(50)
        if kind == 2:
            position = self.chance.choose([0, 7, 22, 1_000, wire.UINT_MAX])
            return wire.control(self.chance.choose([wire.REQUEST, wire.CONFIRM]), identity, position)
        position = self.chance.below(40) * self.chance.choose([1, 7, 10])
        total = self.chance.choose([0, 10, 100, 400, 60_000_000, wire.UINT_MAX])
        return wire.part(identity, position, total, bytes(self.chance.choose([0, 1, 7, 10, 10, 10])))

    def _mutated(self) -> bytes:
        data = bytearray(self.chance.choose(self.seen))
        for _ in range(self.chance.below(4)):
            data[self.chance.below(len(data))] ^= 1 << self.chance.below(8)
        return bytes(data[: 1 + self.chance.below(len(data))]) if self.chance.happens(300_000) else bytes(data)


def test_a_healthy_conversation_goes_on_among_fifty_thousand_hostile_datagrams() -> None:
    client, server = RupMachine(TIGHT, Seeded(1)), RupMachine(TIGHT, Seeded(2))
    hostile = Hostile(3)
    client.connect("server", 0)
    delivered: list[int] = []
    received: list[bytes] = []
    expected: list[bytes] = []
    machines = {"client": client, "server": server}

    def carry(now_us: int) -> None:
        """Carries what is healthy until nothing more is said at this instant."""
        for _ in range(100):
            moved = False
            for name, machine in machines.items():
                for transmit in machine.transmits():
                    hostile.watch(transmit)
                    if transmit.address in machines:
                        machines[transmit.address].receive(transmit.data, name, now_us, transmit.segment_bytes)
                        moved = True
                for event in machine.events():
                    if isinstance(event, MessageReceived):
                        machine.commit(event.receipt, now_us)
                        if name == "server" and event.peer == Peer("client") and event.body in expected:
                            received.append(event.body)
                    elif isinstance(event, Delivered) and name == "client":
                        delivered.extend(event.tokens)
            if not moved:
                return
        raise AssertionError("two machines keep each other busy")

    tokens: list[int] = []
    for number in range(DATAGRAMS):
        now_us = 100 * number
        data = hostile.datagram()
        target = server if number % 3 else client
        source = hostile.chance.choose([("stranger", hostile.chance.below(200)), "forged"])
        if hostile.chance.happens(100_000):
            target.receive(data * 6, source, now_us, max(1, len(data)))
        else:
            target.receive(data, source, now_us)
        if number % EVERY == 0:
            body = b"healthy %d " % number * (1 + number // EVERY)
            expected.append(body)
            tokens.append(client.send(Peer("server"), body, now_us))
        for machine in machines.values():
            due_us = machine.next_deadline_us()
            if due_us is not None and due_us <= now_us:
                machine.wake(now_us)
        carry(now_us)
        assert len(server._receiver.remembered) < 50_000
    for _ in range(10):
        now_us += 100_000
        for machine in machines.values():
            machine.wake(now_us)
        carry(now_us)
    assert sorted(delivered) == tokens
    assert sorted(received) == sorted(expected)
    assert len(server._conversations) <= 64
    assert server._receiver.memory.held_bytes <= 500_000 + cost(400, 400)
    assert len(server.statistics.dropped) >= 8


def test_bounds_come_back_to_nothing_once_the_hostile_are_gone() -> None:
    server, hostile = RupMachine(TIGHT, Seeded(2)), Hostile(4)
    for number in range(5_000):
        server.receive(hostile.datagram(), ("stranger", number % 90), 10 * number)
        for event in server.events():
            if isinstance(event, MessageReceived):
                server.commit(event.receipt, 10 * number)
        server.transmits()
    now_us = 50_000
    server.wake(now_us)
    for _ in range(2_000):
        due_us = server.next_deadline_us()
        if due_us is None:
            break
        assert due_us > now_us
        now_us = due_us
        server.wake(now_us)
        server.transmits()
    assert server.next_deadline_us() is None
    assert (len(server._conversations), len(server._receiver.remembered)) == (0, 0)
    assert (server._receiver.incoming_count, server._receiver.memory.held_bytes) == (0, 0)
    assert server._receiver._slots.messages_left == server._options.open_receipts_max
