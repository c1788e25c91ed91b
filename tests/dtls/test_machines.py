"""The machines of the four protocols over the layer with the fake engine, on a bad link, in virtual time."""

from __future__ import annotations

import pytest

from fairway.core.addresses import device_of, with_device
from fairway.core.drive import settle
from fairway.core.events import Address, Connected, Delivered, Event, MessageReceived, MessagesReceived
from fairway.core.machine import Machine
from fairway.core.random_source import Seeded
from fairway.dtls import OVERHEAD_BYTES, DtlsClient, DtlsGateway
from fairway.protocols import NAMES, make_machine, make_options
from fairway.protocols.udpc import wire
from tests.dtls.test_associations import A, B
from tests.dtls.world import GATEWAY, SECOND_US, FakeFleet, Faults, World, segments

BODIES = [b"%3d" % number * 50 for number in range(200)]


class Pair(World):
    """A world in which machines speak instead of a test: a called one behind the gateway, a caller at A."""

    def prepare(self, protocol: str, seed: int) -> None:
        options = make_options(protocol, datagram_bytes_max=1_200 - OVERHEAD_BYTES)
        self.called = make_machine(protocol, options, Seeded(seed))
        self.caller = make_machine(protocol, options, Seeded(seed + 1))
        self.got: list[tuple[str | None, bytes]] = []
        self.delivered = 0
        self.add(FakeFleet().client("sensor-1", seed=seed), A)
        self.caller.connect(self.clients[A].inner, self.now_us)

    def settle(self, only: Address | None = None) -> None:
        for machine, layer in ((self.called, self.gateway), (self.caller, self.clients[A])):
            self._drive(machine, layer)
        super().settle(only)

    def _drive(self, machine: Machine, layer: DtlsGateway | DtlsClient) -> None:
        for plaintext in layer.plaintexts():
            machine.receive(plaintext.data, plaintext.address, self.now_us, plaintext.segment_bytes)
        due_us = machine.next_deadline_us()
        if due_us is not None and due_us <= self.now_us:
            machine.wake(self.now_us)
        settle(machine, lambda sent: layer.send(sent, self.now_us), lambda event: self._take(machine, event), _no_timer)

    def _take(self, machine: Machine, event: Event) -> None:
        match event:
            case Connected() if event.token is not None:
                for body in BODIES:
                    machine.send(event.peer, body, self.now_us)
            case MessageReceived() | MessagesReceived():
                bodies = event.bodies if isinstance(event, MessagesReceived) else [event.body]
                self.got += [(device_of(event.peer.address), body) for body in bodies]
                machine.commit(event.receipt, self.now_us)
            case Delivered():
                self.delivered += len(event.tokens)

    def tick(self) -> None:
        """Let ten milliseconds pass: the machines have timers, too."""
        self.run(10_000)
        self.settle()


def _no_timer(due_us: int | None) -> None:
    """`tick` looks at the clock often enough."""


@pytest.mark.parametrize("protocol", NAMES)
def test_every_message_arrives_once_with_its_device(protocol: str) -> None:
    world = Pair(FakeFleet().gateway(), 3, Faults(loss=100_000, duplicate=100_000, reorder=100_000), echo=False)
    world.prepare(protocol, 3)
    end_us = world.now_us + 300 * SECOND_US
    while world.delivered < len(BODIES) and world.now_us < end_us:
        world.tick()
    assert world.delivered == len(BODIES)
    assert sorted(world.got) == [("sensor-1", body) for body in sorted(BODIES)]
    assert all(len(one) <= 1_200 for _, _, datagram in world.carried for one in segments(datagram, None))
    assert any(destination == GATEWAY for _, destination, _ in world.carried)


def test_a_udpc_session_moves_with_its_own_device_only() -> None:
    """As a device of another maker needs it, whose handshakes do not say that it is the same client."""
    machine = make_machine("udpc", make_options("udpc", migration=True), Seeded(1))
    mine = with_device(A, "one")
    machine.receive(wire.encode(wire.Syn(index=1, session_id=5, ack_index=0)), mine, 0)
    session = wire.decode(machine.transmits()[0].data).session_id

    def say(index: int, body: bytes, device: str) -> list[bytes]:
        packet = wire.Important(index=index, session_id=session, ack_index=0, body=body)
        machine.receive(wire.encode(packet), with_device(A if index == 2 else B, device), index)
        return [event.body for event in machine.events() if isinstance(event, MessageReceived)]

    assert say(2, b"here", "one") == [b"here"]
    assert say(3, b"stolen", "two") == []
    assert say(4, b"moved", "one") == [b"moved"]
