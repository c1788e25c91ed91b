"""udpc under loss, crashes, and whatever bytes a stranger sends."""

from __future__ import annotations

import json

import pytest

from fairway.core.errors import AlreadyOpen, DamagedSnapshot
from fairway.core.events import (
    Closed,
    Connected,
    Delivered,
    DeliveryUnknown,
    MessageReceived,
    MessagesReceived,
    Peer,
    Receipt,
    RequestReceived,
    ResponseReceived,
)
from fairway.core.random_source import Seeded
from fairway.core.snapshots import seal, unseal
from fairway.protocols.udpc.machine import UdpcMachine
from fairway.protocols.udpc.options import UdpcOptions
from fairway.protocols.udpc.wire import ACK, IMP, KIND_OF_FLAG, REQ, SYN, datagram, header
from tests.protocols.test_udpc_world import World, datagrams, flattened, pair

SECOND = 1_000_000
FUZZED_DATAGRAMS = 50_000

VERSION = b"UDC2"


# Loss.


@pytest.mark.parametrize("controller", ["newreno", "eager"])
@pytest.mark.parametrize("seed", range(4))
def test_everything_arrives_once_through_loss_copies_and_reordering(controller: str, seed: int) -> None:
    chance = Seeded(seed)
    options = UdpcOptions(controller=controller, window=64)
    world, ours, theirs = pair(options)

    def lose(origin: str, data: bytes) -> bool:
        if chance.happens(200_000):
            return True
        world.delay_us = 1_000 + chance.below(20_000)
        if chance.happens(100_000):
            world.arrive("server" if origin == "client" else "client", origin, data)
        return False

    world.lose = lose
    sent = {name: [b"%s %d" % (name.encode(), number) for number in range(300)] for name in ("client", "server")}
    world.machines["client"].send_many(ours, sent["client"], world.now_us)
    for body in sent["server"]:
        world.machines["server"].send(theirs, body, world.now_us)
    world.run(25 * SECOND)
    assert sorted(world.bodies("server")) == sorted(sent["client"])
    assert sorted(world.bodies("client")) == sorted(sent["server"])
    assert len(world.of("client", Delivered)) == len(world.of("server", Delivered)) == 300
    assert world.machines["client"].unfinished() == world.machines["server"].unfinished() == 0
    assert world.machines["client"].statistics.repairs > 0
    assert world.machines["client"].statistics.duplicates > 0


def test_one_per_cent_of_loss_costs_an_eager_transfer_at_most_a_fifth_of_its_rate() -> None:
    def duration_us(loss_per_million: int) -> int:
        chance = Seeded(5)
        options = UdpcOptions(controller="eager", window=128)
        world, ours, _ = pair(options, delay_us=25_000)
        world.lose = lambda _origin, _data: chance.happens(loss_per_million)
        start_us = world.now_us
        world.machines["client"].send_many(ours, [b"x"] * 6_000, world.now_us)
        while world.machines["client"].unfinished():
            world.run(10_000)
        return world.now_us - start_us

    assert duration_us(0) > 0.8 * duration_us(10_000)


# Snapshot and restore.


def crash(world: World, snapshot: bytes, options: UdpcOptions) -> Peer:
    """Replaces the server by a new process that knows nothing but the snapshot."""
    world.add("server", options, seed=77)
    return world.machines["server"].restore(snapshot, world.now_us)


def test_a_server_that_restarts_from_its_snapshot_goes_on_without_loss_and_without_a_second_delivery() -> None:
    options = UdpcOptions(deferred=True)
    world, ours, theirs = pair(options, commits=False)
    client = world.machines["client"]
    for number in range(5):
        client.send(ours, b"%d" % number, world.now_us)
    world.run(10_000)
    messages = world.of("server", MessageReceived)
    committed = [message.receipt for message in messages[:3]]
    snapshot = world.machines["server"].snapshot(theirs, committed)
    for receipt in committed[:2]:
        world.machines["server"].commit(receipt, world.now_us)
    world.run(10_000)
    assert len(world.of("client", Delivered)) == 2
    world.commits = True
    assert crash(world, snapshot, options) == theirs
    world.run(SECOND)
    assert world.bodies("server") == [b"3", b"4"], "0 to 2 are on disk and must not come again"
    assert len(world.of("client", Delivered)) == 5
    client.send(ours, b"after", world.now_us)
    world.machines["server"].send(theirs, b"back", world.now_us)
    world.run(SECOND)
    assert world.bodies("server")[2:] == [b"after"]
    assert world.bodies("client") == [b"back"]
    assert not world.of("client", Closed)


def test_a_restored_session_starts_its_index_65536_further() -> None:
    world, _, theirs = pair()
    world.machines["server"].send(theirs, b"x", world.now_us)
    world.run(10_000)
    snapshot = world.machines["server"].snapshot(theirs)
    before = header(world.sent["server"][-1])[0]
    crash(world, snapshot, UdpcOptions())
    world.machines["server"].send(theirs, b"y", world.now_us)
    world.settle("server")
    assert header(world.sent["server"][-1])[0] == before + 1 + 65_536


def test_kept_responses_and_open_requests_survive_a_restart() -> None:
    world, ours, theirs = pair()
    world.lose = lambda origin, data: origin == "server" and header(data)[3] == ACK
    for body in (b"first", b"second"):
        world.machines["client"].send(ours, body, world.now_us, flags=REQ)
    world.run(10_000)
    first, second = (request.id for request in world.of("server", RequestReceived))
    world.machines["server"].send(theirs, b"kept", world.now_us, answers=first)
    world.run(10_000)
    crash(world, world.machines["server"].snapshot(theirs), UdpcOptions())
    world.lose = None
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
    session_id = header(datagrams(machine.transmits())[0])[1]
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
    session_id = header(datagrams(machine.transmits())[0])[1]
    machine.receive(datagram(2, session_id, 1, ACK), ("::1", 9000, 0, 0), 0)
    (peer,) = machine.peers()
    other = UdpcMachine(UdpcOptions(), Seeded(2))
    assert other.restore(machine.snapshot(peer), 0) == peer
    assert hash(other.peers()[0]) == hash(peer)


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\xff",
        b"{}",
        seal(b"UDC1", b"{}"),
        seal(b"UDC2", b"[]"),
        seal(b"UDC2", b"null"),
        seal(b"UDC2", b'{"handshake":[true,1,1,1],"peer_address":"c","session_id":0}'),
    ],
)
def test_a_damaged_snapshot_is_refused(damaged: bytes) -> None:
    with pytest.raises(DamagedSnapshot):
        UdpcMachine(UdpcOptions(), Seeded(1)).restore(damaged, 0)


def test_a_snapshot_with_any_field_damaged_is_refused_or_read_but_never_raises_anything_else() -> None:
    world, _, theirs = pair()
    snapshot = json.loads(unseal(VERSION, world.machines["server"].snapshot(theirs)))
    for field in snapshot:
        wrongs: list[object] = [None, "x", -1, [["a", 1]], [[1]], {}, True, 1.5]
        for wrong in wrongs:
            machine = UdpcMachine(UdpcOptions(), Seeded(1))
            try:
                machine.restore(seal(VERSION, json.dumps({**snapshot, field: wrong}).encode()), 0)
            except DamagedSnapshot:
                continue
            machine.wake(20 * SECOND)


def test_a_session_is_not_restored_over_itself() -> None:
    world, _, theirs = pair()
    snapshot = world.machines["server"].snapshot(theirs)
    with pytest.raises(AlreadyOpen):
        world.machines["server"].restore(snapshot, world.now_us)


# Strangers.


def mutated(chance: Seeded, known: list[bytes]) -> bytes:
    """Return random bytes, a header with likely fields, or a damaged copy of something that was sent."""
    way = chance.below(4)
    if way == 0:
        return chance.bits(8 * 20).to_bytes(20, "big")[: chance.below(21)]
    if way == 1:
        flag = chance.choose(sorted(KIND_OF_FLAG))
        origin = header(chance.choose(known))
        return datagram(
            chance.choose([1, origin[0], (origin[0] + chance.below(70_000)) & 0xFFFFFFFF]),
            chance.choose([origin[1], 1 + chance.below(5)]),
            chance.choose([0, origin[2], chance.below(100)]),
            flag,
            bytes(chance.below(3)),
        )
    data = bytearray(chance.choose(known))
    data[chance.below(len(data))] ^= 1 << chance.below(8)
    return bytes(data[: chance.below(len(data) + 1)] if way == 2 else data)


def test_no_bytes_raise_out_of_a_machine_and_a_healthy_conversation_goes_on() -> None:
    chance = Seeded(20)
    options = UdpcOptions(half_open_max=8, peers_max=20, open_receipts_max=64, migration=False)
    world, ours, theirs = pair(options)
    server, client = world.machines["server"], world.machines["client"]
    for number in range(FUZZED_DATAGRAMS):
        known = [*world.sent["client"][-20:], *world.sent["server"][-20:]]
        # Strangers know what was said, but not from where: only the address is not theirs.
        origin = ("stranger", chance.below(50))
        data = mutated(chance, known)
        segment_bytes = 1 + chance.below(20) if chance.happens(100_000) else None
        world.now_us += chance.below(200)
        server.receive(data * (1 + chance.below(12)) if segment_bytes else data, origin, world.now_us, segment_bytes)
        if number % 500 == 0:
            client.send(ours, b"%d" % number, world.now_us)
        if number % 100 == 0:
            world.run(100)
    world.run(SECOND)
    healthy = [event.body for event in world.of("server", MessageReceived) if event.peer == theirs]
    assert healthy == [b"%d" % number for number in range(0, FUZZED_DATAGRAMS, 500)]
    assert len(world.of("client", Delivered)) == FUZZED_DATAGRAMS // 500
    assert len(server.peers()) <= 20
    assert sum(server.statistics.dropped.values()) > FUZZED_DATAGRAMS // 2
    assert set(server.statistics.dropped) >= {"too_short", "bad_flag", "unknown_session", "unexpected_syn_ack"}


def test_no_bytes_from_the_peer_itself_raise_either_and_tables_stay_bounded() -> None:
    chance = Seeded(21)
    options = UdpcOptions(open_receipts_max=64, requests_max=16, responses_max=8, half_open_max=8, migration=True)
    machine = UdpcMachine(options, Seeded(1))
    known: list[bytes] = [datagram(1, 5, 0, SYN)]
    now_us, delivered = 0, 0
    for number in range(FUZZED_DATAGRAMS):
        now_us += chance.below(5_000)
        data = known[0] if number % 1_000 == 0 else mutated(chance, known)
        batch = chance.happens(50_000)
        machine.receive(
            data * 10 if batch else data, chance.choose(["c", "c", "c", "d"]), now_us, len(data) if batch else None
        )
        machine.wake(now_us)
        sent = datagrams(machine.transmits())
        known = [known[0], *(known[1:] + [data for data in sent if len(data) >= 13])[-30:]]
        for event in flattened(machine.events()):
            if isinstance(event, Connected) and event.peer in machine.peers():
                machine.send_many(event.peer, [b"x"] * 20, now_us)
                machine.send(event.peer, b"?", now_us, flags=REQ)
            if isinstance(event, MessageReceived | MessagesReceived | RequestReceived):
                delivered += 1
                if chance.happens(500_000):
                    machine.commit(event.receipt, now_us)
        if machine.peers() and chance.happens(1_000):
            machine.close(machine.peers()[0], now_us)
        deadline_us = machine.next_deadline_us()
        assert deadline_us is None or deadline_us > now_us
    assert delivered > 100
    machine.close(None, now_us)
    for _ in range(100):
        deadline_us = machine.next_deadline_us()
        if deadline_us is None:
            break
        machine.wake(deadline_us)
    assert machine.unfinished() == 0
    assert machine.next_deadline_us() is None


def test_ten_thousand_idle_sessions_are_cheap_in_memory_and_have_one_deadline_each() -> None:
    machine = UdpcMachine(UdpcOptions(silence_us=3 * SECOND), Seeded(1))
    for number in range(10_000):
        address = ("10.0.0.1", number)
        machine.receive(datagram(1, 5, 0, SYN), address, 0)
        session_id = header(datagrams(machine.transmits())[0])[1]
        machine.receive(datagram(2, session_id, 1, ACK), address, 0)
        machine.receive(datagram(3, session_id, 0, IMP, b"x"), address, 0)
        for message in flattened(machine.events()):
            if isinstance(message, MessageReceived):
                machine.commit(message.receipt, 0)
        machine.transmits()
    assert machine.next_deadline_us() == SECOND
    machine.wake(SECOND)
    assert len(machine.transmits()) == 10_000
    assert machine.next_deadline_us() == 2 * SECOND
    for now_s in range(2, 4):
        machine.wake(now_s * SECOND)
    assert not machine.peers()
    assert machine.next_deadline_us() is None
    assert not [event for event in machine.events() if isinstance(event, DeliveryUnknown)]
