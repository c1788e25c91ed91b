"""The machines of the four protocols over the layer with the fake engine, on a bad link, in virtual time."""

from __future__ import annotations

import pytest

from fairway.core.addresses import device_of
from fairway.core.chance import Seeded
from fairway.core.drive import settle
from fairway.core.events import Connected, Delivered, Event, MessageReceived, MessagesReceived
from fairway.core.machine import Machine
from fairway.dtls import OVERHEAD_BYTES, DtlsClient, DtlsGateway
from fairway.protocols import NAMES, make_machine, make_options
from tests.dtls.test_associations import A
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

    def settle(self) -> None:
        for machine, layer in ((self.called, self.gateway), (self.caller, self.clients[A])):
            self._drive(machine, layer)
        super().settle()

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
