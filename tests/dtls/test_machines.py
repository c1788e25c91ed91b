"""A session of a machine belongs to a device."""

from __future__ import annotations

from fairway.core.addresses import with_device
from fairway.core.events import MessageReceived
from fairway.core.random_source import Seeded
from fairway.protocols import make_machine, make_options
from fairway.protocols.udpc import wire
from tests.dtls.test_associations import A, B


def test_a_udpc_session_moves_with_its_own_device_only() -> None:
    """As a device of another maker needs it, whose handshakes do not say that it is the same client."""
    machine = make_machine("udpc", make_options("udpc", migration=True), Seeded(1))
    mine = with_device(A, "one")
    machine.receive(wire.encode(wire.Control(index=1, session_id=5, flag=wire.SYN)), mine, 0)
    session = wire.decode(machine.transmits()[0].data).session_id

    def say(index: int, body: bytes, device: str) -> list[bytes]:
        packet = wire.Message(index=index, session_id=session, flag=wire.IMP, body=body)
        machine.receive(wire.encode(packet), with_device(A if index == 2 else B, device), index)
        return [event.body for event in machine.events() if isinstance(event, MessageReceived)]

    assert say(2, b"here", "one") == [b"here"]
    assert say(3, b"stolen", "two") == []
    assert say(4, b"moved", "one") == [b"moved"]
