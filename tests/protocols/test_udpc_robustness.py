"""udpc under loss, crashes, and whatever bytes a stranger sends."""

from __future__ import annotations

import json

from fairway.core.events import (
    DeliveryUnknown,
    MessageReceived,
    Peer,
    Receipt,
    RequestReceived,
    ResponseReceived,
)
from fairway.core.random_source import Seeded
from fairway.core.snapshots import unseal
from fairway.protocols.udpc.machine import UdpcMachine
from fairway.protocols.udpc.options import UdpcOptions
from fairway.protocols.udpc.wire import ACK, IMP, REQ, SYN, datagram, fields
from tests.protocols.test_udpc_session import pair
from tests.protocols.world import World, datagrams, flattened, nothing

SECOND = 1_000_000

VERSION = b"UDC2"


def crash(world: World, snapshot: bytes, options: UdpcOptions) -> Peer:
    """Replaces the server by a new process that knows nothing but the snapshot."""
    world.add("server", 77, options)
    return world.machines["server"].restore(snapshot, world.now_us)


def test_a_restored_session_starts_its_index_65536_further() -> None:
    world, _, theirs = pair()
    world.machines["server"].send(theirs, b"x", world.now_us)
    world.run(10_000)
    snapshot = world.machines["server"].snapshot(theirs)
    before = fields(world.sent("server")[-1])[0]
    crash(world, snapshot, UdpcOptions())
    world.machines["server"].send(theirs, b"y", world.now_us)
    world.settle("server")
    assert fields(world.sent("server")[-1])[0] == before + 1 + 65_536


def test_kept_responses_and_open_requests_survive_a_restart() -> None:
    world, ours, theirs = pair()
    world.lose = lambda origin, data: origin == "server" and fields(data)[3] == ACK
    for body in (b"first", b"second"):
        world.machines["client"].send(ours, body, world.now_us, flags=REQ)
    world.run(10_000)
    first, second = (request.id for request in world.of("server", RequestReceived))
    world.machines["server"].send(theirs, b"kept", world.now_us, answers=first)
    world.run(10_000)
    crash(world, world.machines["server"].snapshot(theirs), UdpcOptions())
    world.lose = nothing
    world.machines["server"].send(theirs, b"late", world.now_us, answers=second)
    world.run(SECOND)
    assert sorted(response.body for response in world.of("client", ResponseReceived)) == [b"kept", b"late"]
    assert not world.of("server", RequestReceived)


def test_a_request_that_was_not_committed_is_handed_over_again_after_a_restart() -> None:
    world, ours, theirs = pair(commits=False)
    world.machines["client"].send(ours, b"?", world.now_us, flags=REQ)
    world.run(10_000)
    snapshot = world.machines["server"].snapshot(theirs)
    assert json.loads(unseal(VERSION, snapshot))["waiting"] == []
    crash(world, snapshot, UdpcOptions())
    world.run(SECOND)
    assert [request.body for request in world.of("server", RequestReceived)] == [b"?"]


def test_a_snapshot_leaves_out_only_the_uncommitted_part_of_a_batch() -> None:
    machine = UdpcMachine(UdpcOptions(deferred=True), Seeded(1))
    machine.receive(datagram(100, 5, 0, SYN), "c", 0)
    session_id = fields(datagrams(machine.transmits())[0])[1]
    peer = Peer("c", session_id)
    batch = b"".join(datagram(index, session_id, 0, IMP, b"x") for index in range(101, 131))
    machine.receive(batch[:14], "c", 0)
    machine.receive(batch[14:], "c", 0, 14)
    state = json.loads(unseal(VERSION, machine.snapshot(peer, [Receipt(peer, 101, 5), Receipt(peer, 120)])))
    assert state["seen"] == [[100, 105], [120, 120]]
    machine.commit(Receipt(peer, 101, 30), 0)
    assert json.loads(unseal(VERSION, machine.snapshot(peer)))["seen"] == [[100, 130]]


def test_a_restored_session_keeps_its_widened_ids_and_its_address() -> None:
    options = UdpcOptions(first_index=(1 << 32) - 3)
    world, ours, theirs = pair(options)
    for _ in range(5):
        world.machines["client"].send(ours, b"x", world.now_us)
    world.run(10_000)
    crash(world, world.machines["server"].snapshot(theirs), options)
    world.machines["client"].send(ours, b"y", world.now_us)
    world.run(10_000)
    (message,) = world.of("server", MessageReceived)
    assert int(message.id) > 1 << 32
    machine = UdpcMachine(UdpcOptions(), Seeded(1))
    machine.receive(datagram(1, 5, 0, SYN), ("::1", 9000, 0, 0), 0)
    session_id = fields(datagrams(machine.transmits())[0])[1]
    machine.receive(datagram(2, session_id, 1, ACK), ("::1", 9000, 0, 0), 0)
    (peer,) = machine.peers()
    other = UdpcMachine(UdpcOptions(), Seeded(2))
    assert other.restore(machine.snapshot(peer), 0) == peer
    assert hash(other.peers()[0]) == hash(peer)


# Strangers.


def test_thousands_of_idle_sessions_have_one_deadline_each() -> None:
    machine = UdpcMachine(UdpcOptions(silence_us=3 * SECOND), Seeded(1))
    for number in range(2_000):
        address = ("10.0.0.1", number)
        machine.receive(datagram(1, 5, 0, SYN), address, 0)
        session_id = fields(datagrams(machine.transmits())[0])[1]
        machine.receive(datagram(2, session_id, 1, ACK), address, 0)
        machine.receive(datagram(3, session_id, 0, IMP, b"x"), address, 0)
        for message in flattened(machine.events()):
            if isinstance(message, MessageReceived):
                machine.commit(message.receipt, 0)
        machine.transmits()
    assert machine.next_deadline_us() == SECOND
    machine.wake(SECOND)
    assert len(machine.transmits()) == 2_000
    assert machine.next_deadline_us() == 2 * SECOND
    for now_s in range(2, 4):
        machine.wake(now_s * SECOND)
    assert not machine.peers()
    assert machine.next_deadline_us() is None
    assert not [event for event in machine.events() if isinstance(event, DeliveryUnknown)]
