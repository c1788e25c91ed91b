"""What udpc sessions do, rule by rule (clauses of docs/wire/udpc.md)."""

from __future__ import annotations

import json

import pytest

from fairway.core.errors import BadMessage
from fairway.core.events import (
    Closed,
    Connected,
    Delivered,
    DeliveryUnknown,
    MessageReceived,
    Peer,
    Receipt,
    RequestReceived,
    ResponseReceived,
)
from fairway.core.machine import split
from fairway.core.random_source import Seeded
from fairway.core.snapshots import unseal
from fairway.protocols.udpc.machine import UdpcMachine
from fairway.protocols.udpc.options import UdpcOptions
from fairway.protocols.udpc.wire import ACK, ASY, FIN, HBT, IMP, REQ, SYN, datagram, fields
from tests.conformance.pair import Datagram, Pump
from tests.protocols.world import World, datagrams, nothing

SECOND = 1_000_000
VERSION = b"UDC2"


def flags(sent: list[bytes]) -> list[int]:
    return [fields(data)[3] for data in sent]


def lone_server(options: UdpcOptions | None = None) -> tuple[UdpcMachine, Peer]:
    """Return a machine that `c` called under index 100, with sessionID 5."""
    machine = UdpcMachine(options or UdpcOptions(), Seeded(9))
    machine.receive(datagram(100, 5, 0, SYN), "c", 0)
    (answer,) = datagrams(machine.transmits())
    session_id = fields(answer)[1]
    machine.receive(datagram(101, session_id, 1, ACK), "c", 0)
    (connected,) = machine.events()
    assert connected == Connected(Peer("c", session_id), None)
    return machine, Peer("c", session_id)


def pair(options: UdpcOptions | None = None, *, commits: bool = True) -> tuple[World, Peer, Peer]:
    """Return a world with `client` and `server` and the session between them, as each knows it."""
    world = World("udpc", commits=commits)
    for name in ("client", "server"):
        world.add(name, options=options)
    return world, *world.connect("client", "server")


def session_of(peer: Peer) -> int:
    assert peer.session is not None
    return peer.session


# Handshake.


def test_a_forged_syn_harms_nobody() -> None:
    world, ours, _ = pair()
    world.machines["server"].receive(datagram(1, 5, 0, SYN), "client", world.now_us)
    world.run(6 * SECOND)
    world.machines["client"].send(ours, b"still here", world.now_us)
    world.run(10_000)
    assert world.bodies("server") == [b"still here"]
    assert not world.of("server", Closed)


def test_two_nodes_that_call_each_other_keep_both_sessions() -> None:
    world = World("udpc")
    world.add("a")
    world.add("b")
    world.machines["a"].connect("b", world.now_us)
    world.machines["b"].connect("a", world.now_us)
    world.run(20 * SECOND)
    assert len(world.machines["a"].peers()) == len(world.machines["b"].peers()) == 2
    assert not world.of("a", Closed)


def test_an_endpoint_that_only_calls_answers_no_syn() -> None:
    machine = UdpcMachine(UdpcOptions(accepts_calls=False), Seeded(1))
    machine.receive(datagram(1, 5, 0, SYN), "c", 0)
    assert not machine.transmits()
    assert machine.statistics.dropped["not_accepting"] == 1


# Deferred acknowledgement.


def test_a_receiver_is_full_by_bytes_too() -> None:
    machine, peer = lone_server(UdpcOptions(open_receipt_bytes_max=10))
    machine.receive(datagram(102, session_of(peer), 0, IMP, b"123456"), "c", 0)
    machine.receive(datagram(103, session_of(peer), 0, 0, b"123456"), "c", 0)
    machine.receive(datagram(104, session_of(peer), 0, REQ, b"123456"), "c", 0)
    machine.receive(datagram(105, session_of(peer), 0, IMP, b"1234"), "c", 0)
    assert [event.id for event in machine.events() if isinstance(event, MessageReceived)] == [102, 105]
    assert machine.statistics.dropped["receipts_full"] == 2


def test_any_part_of_a_batch_may_be_committed_in_any_order() -> None:
    machine, peer = lone_server(UdpcOptions(deferred=True))
    batch = b"".join(datagram(102 + number, session_of(peer), 0, IMP, b"a") for number in range(20))
    machine.receive(batch, "c", 0, 14)
    assert machine.statistics.batches == 1
    machine.commit(Receipt(peer, 110, 3), 0)
    machine.commit(Receipt(peer, 105), 0)
    machine.commit(Receipt(peer, 102, 20), 0)
    machine.commit(Receipt(peer, 102, 20), 0)
    acked = [fields(data)[2] for data in datagrams(machine.transmits())]
    assert acked[:4] == [110, 111, 112, 105]
    assert sorted(acked) == list(range(102, 122))


# Requests.


def test_a_response_is_kept_for_thirty_seconds() -> None:
    machine, peer = lone_server(UdpcOptions(silence_us=100 * SECOND))
    machine.receive(datagram(102, session_of(peer), 0, REQ), "c", 0)
    machine.send(peer, b"!", 0, answers=102)
    (response,) = datagrams(machine.transmits())
    machine.receive(datagram(102, session_of(peer), 0, REQ), "c", 30 * SECOND - 1)
    assert datagrams(machine.transmits()) == [response]
    machine.receive(datagram(102, session_of(peer), 0, REQ), "c", 30 * SECOND)
    assert not machine.transmits()
    assert machine.statistics.duplicates == 2


@pytest.mark.parametrize("bound", [UdpcOptions(responses_max=2), UdpcOptions(response_bytes_max=2 * 14)])
def test_of_the_kept_responses_the_oldest_goes_first(bound: UdpcOptions) -> None:
    machine, peer = lone_server(bound)
    for index in (102, 103, 104):
        machine.receive(datagram(index, session_of(peer), 0, REQ), "c", 0)
        machine.send(peer, b"!", 0, answers=index)
    machine.transmits()
    for index in (102, 103, 104):
        machine.receive(datagram(index, session_of(peer), 0, REQ), "c", 0)
    assert [fields(data)[2] for data in datagrams(machine.transmits())] == [103, 104]


@pytest.mark.parametrize("flag", [ACK, ACK | REQ, IMP | ACK, HBT | ACK])
def test_an_ack_that_answers_nothing_is_dropped(flag: int) -> None:
    machine, peer = lone_server()
    machine.receive(datagram(102, session_of(peer), 77, flag), "c", SECOND)
    assert machine.statistics.dropped["answers_nothing"] == 1
    assert not machine.events()
    assert not machine.transmits()
    assert machine.next_deadline_us() == SECOND, "it does not keep the session alive"


def test_requests_that_nobody_answers_are_bounded_and_make_room_with_time() -> None:
    machine, peer = lone_server(UdpcOptions(requests_max=1, silence_us=100 * SECOND))
    machine.receive(datagram(102, session_of(peer), 0, REQ), "c", 0)
    machine.receive(datagram(103, session_of(peer), 0, REQ), "c", 0)
    assert machine.statistics.dropped["requests_full"] == 1
    machine.receive(datagram(103, session_of(peer), 0, REQ), "c", 30 * SECOND)
    assert [event.id for event in machine.events() if isinstance(event, RequestReceived)] == [102, 103]
    with pytest.raises(BadMessage, match="too old to answer"):
        machine.send(peer, b"", 30 * SECOND, answers=102)


# Heartbeat and silence.


class Crowd(Pump):
    """Many addresses between a client and a server: what one sends to an address, the other gets from it."""

    def fly(self, datagram: Datagram, later_us: int = 0) -> None:
        target = "server" if datagram.source == "client" else "client"
        super().fly(datagram._replace(source=datagram.target, target=target), later_us)


def test_hundreds_of_idle_sessions_send_their_heartbeats_at_common_instants_and_from_one_side() -> None:
    world = World("udpc", pump=Crowd)
    client, server = (world.add(name).machine for name in ("client", "server"))
    for number in range(300):
        client.connect(f"address {number}", world.now_us)
        world.run(997)
    world.run(10 * SECOND)
    world.forget()
    world.run(10 * SECOND)
    assert len(client.peers()) == len(server.peers()) == 300
    assert sum(node.wakes for node in world.nodes.values()) <= 200
    assert set(flags(world.sent("server"))) == {HBT}
    assert set(flags(world.sent("client"))) == {HBT | ACK}
    assert 2_400 <= len(world.sent("server")) <= 3_000


def test_a_caller_sends_heartbeats_when_those_of_the_called_side_stop() -> None:
    world, _, _ = pair()
    world.run(2 * SECOND)
    world.forget()
    world.run(3 * SECOND)
    assert set(flags(world.sent("client"))) == {HBT | ACK}
    assert world.machines["server"].statistics.rtt_us == 2_000, "measured by heartbeats"
    world.lose = lambda origin, _data: origin == "server"
    world.run(2 * SECOND)
    assert HBT in flags(world.sent("client"))


# Close.


def test_what_a_request_held_back_is_flushed_by_close() -> None:
    machine, peer = lone_server(UdpcOptions(index_run_max=4))
    machine.send(peer, b"?", 0, flags=REQ)
    for _ in range(2):
        machine.send(peer, b"plain", 0, flags=0)
    machine.send(peer, b"held back", 0)
    assert len(datagrams(machine.transmits())) == 3
    machine.close(peer, 0)
    (held_back,) = datagrams(machine.transmits())
    machine.receive(datagram(102, session_of(peer), fields(held_back)[0], IMP | ACK), "c", 0)
    assert flags(datagrams(machine.transmits())) == [FIN]
    assert [type(event) for event in machine.events()] == [DeliveryUnknown, Delivered, Closed]


@pytest.mark.parametrize("batched", [False, True])
def test_the_slots_of_a_session_are_free_again_when_it_ends(batched: bool) -> None:
    machine, peer = lone_server(UdpcOptions(open_receipts_max=10, open_receipt_bytes_max=10))
    messages = b"".join(datagram(102 + number, session_of(peer), 0, IMP, b"x") for number in range(10))
    for data in [messages] if batched else split(messages, 14):
        machine.receive(data, "c", 0, 14)
    machine.receive(datagram(120, session_of(peer), 0, FIN), "c", 0)
    machine.receive(datagram(1, 7, 0, SYN), "d", 0)
    other = fields(datagrams(machine.transmits())[-1])[1]
    machine.receive(datagram(2, other, 0, IMP, b"0123456789"), "d", 0)
    assert [event.body for event in machine.events() if isinstance(event, MessageReceived)][-1] == b"0123456789"


# Migration.


def test_a_new_address_is_unproved_until_it_answers_a_heartbeat() -> None:
    machine, peer = lone_server(UdpcOptions(migration=True))
    machine.receive(datagram(102, session_of(peer), 0, IMP, b"x"), "elsewhere", 0)
    transmits = machine.transmits()
    assert {transmit.address for transmit in transmits} == {"elsewhere"}
    heartbeat, acknowledgement = datagrams(transmits)
    assert (fields(heartbeat)[3], fields(acknowledgement)[3]) == (HBT, IMP | ACK)
    machine.send(peer, bytes(100), 0)
    assert not machine.transmits()
    assert machine.statistics.amplification_withheld == 1
    machine.receive(datagram(103, session_of(peer), fields(heartbeat)[0], HBT | ACK), "elsewhere", 1_000)
    machine.wake(SECOND)
    assert len(datagrams(machine.transmits())[0]) == 113


# Bounds of sending, and the caller's mistakes.


def test_the_index_is_held_by_whatever_is_oldest_a_request_or_an_important_packet() -> None:
    machine, peer = lone_server(UdpcOptions(index_run_max=6))
    machine.send(peer, b"2", 0)
    machine.send(peer, b"3", 0, flags=REQ)
    machine.send(peer, b"4", 0)
    for number in (5, 6, 7):
        machine.send(peer, b"%d" % number, 0, flags=0)
    assert [fields(data)[0] for data in datagrams(machine.transmits())] == [2, 3, 4, 5]
    machine.receive(datagram(102, session_of(peer), 2, IMP | ACK), "c", 0)
    assert [fields(data)[0] for data in datagrams(machine.transmits())] == [6]
    machine.receive(datagram(103, session_of(peer), 4, IMP | ACK), "c", 0)
    assert not machine.transmits()
    machine.receive(datagram(104, session_of(peer), 3, ACK), "c", 0)
    assert [fields(data)[0] for data in datagrams(machine.transmits())] == [7]


def test_two_sides_that_both_wait_for_their_oldest_packet_still_acknowledge_each_other() -> None:
    world, ours, theirs = pair(UdpcOptions(index_run_max=64, window=8, controller="eager"))
    world.lose = lambda origin, data: data.endswith(b"stuck")
    for name, peer in (("client", ours), ("server", theirs)):
        world.machines[name].send(peer, b"stuck", world.now_us)
        world.machines[name].send_many(peer, [b"%d" % number for number in range(200)], world.now_us)
    world.run(SECOND)
    world.lose = nothing
    world.run(4 * SECOND)
    assert [machine.unfinished() for machine in world.machines.values()] == [0, 0]
    assert len(world.of("client", Delivered)) == len(world.of("server", Delivered)) == 201


def test_a_sender_held_back_by_its_index_sleeps_until_something_happens() -> None:
    world, ours, _ = pair(UdpcOptions(index_run_max=8))
    client = world.machines["client"]
    world.lose = lambda origin, data: origin == "client" and data.endswith(b"stuck")
    client.send(ours, b"stuck", world.now_us)
    client.send_many(ours, [b"x"] * 30, world.now_us)
    world.run(SECOND)
    wakes = 0
    until_us = world.now_us + SECOND
    while (next_us := client.next_deadline_us()) is not None and next_us <= until_us:
        world.pump.now_us = next_us
        client.wake(next_us)
        world.settle("client")
        wakes += 1
    assert wakes < 20


def test_sequenced_mode_is_kept_over_a_restart() -> None:
    machine, peer = lone_server(UdpcOptions(sequenced=True))
    machine.receive(datagram(110, session_of(peer), 0, 0, b"newest"), "c", 0)
    snapshot = machine.snapshot(peer, [Receipt(peer, 110)])
    again = UdpcMachine(UdpcOptions(sequenced=True), Seeded(9))
    again.restore(snapshot, 0)
    again.receive(datagram(105, session_of(peer), 0, 0, b"overtaken"), "c", 0)
    assert not again.events()
    again.receive(datagram(111, session_of(peer), 0, 0, b"newer"), "c", 0)
    assert [type(event) for event in again.events()] == [MessageReceived]


def test_an_index_before_the_first_is_too_old_and_not_a_turn_ahead() -> None:
    world, ours, theirs = pair()
    client = world.machines["client"]
    for number in range(4):
        world.machines["server"].send(theirs, b"%d" % number, world.now_us)
    world.run(10_000)
    client.receive(datagram(0xFFFFFFFF, session_of(ours), 0, IMP, b"before"), "server", world.now_us)
    client.receive(datagram(3, session_of(ours), 0, IMP, b"1"), "server", world.now_us)
    world.run(10_000)
    assert world.bodies("client") == [b"0", b"1", b"2", b"3"]
    assert client.statistics.dropped["too_old"] == 1


def test_a_copy_of_the_syn_makes_no_second_session_while_the_first_lingers() -> None:
    world, _, theirs = pair()
    syn = world.sent("client")[0]
    server = world.machines["server"]
    server.close(theirs, world.now_us)
    world.settle("server")
    first = world.sent("server")[0]
    server.receive(syn, "client", world.now_us)
    assert datagrams(server.transmits()) == [first]


def test_an_address_stays_unproved_over_a_restart() -> None:
    machine, peer = lone_server(UdpcOptions(migration=True))
    machine.receive(datagram(102, session_of(peer), 0, 0, b"moved"), "elsewhere", 0)
    again = UdpcMachine(UdpcOptions(migration=True), Seeded(9))
    again.restore(machine.snapshot(peer), 0)
    for _ in range(40):
        again.send(peer, bytes(1_000), 0)
    assert not again.transmits()


@pytest.mark.parametrize(
    ("flag", "answers", "rule"),
    [
        (REQ | IMP, None, "REQ and IMP exclude each other"),
        (IMP | ACK, None, "IMP\\+ACK is the protocol's own"),
        (SYN, None, "belong to the protocol"),
        (FIN, None, "belong to the protocol"),
        (HBT, None, "belong to the protocol"),
        (0x80, None, "belong to the protocol"),
        (0x100, None, "belong to the protocol"),
        (ASY, None, "ASY goes with REQ only"),
        (ACK, None, "say which request it answers"),
        (REQ, 5, "carries ACK"),
        (ACK, 5, "request 5 is unknown"),
    ],
)
def test_a_message_that_breaks_a_rule_is_refused_with_the_rule_and_sends_nothing(
    flag: int, answers: int | None, rule: str
) -> None:
    machine, peer = lone_server()
    with pytest.raises(BadMessage, match=rule):
        machine.send(peer, b"x", 0, flags=flag, answers=answers)
    assert not machine.transmits()
    assert machine.unfinished() == 0


def test_a_request_is_answered_once() -> None:
    machine, peer = lone_server()
    machine.receive(datagram(102, session_of(peer), 0, REQ), "c", 0)
    machine.send(peer, b"", 0, answers=102)
    with pytest.raises(BadMessage, match="answered before"):
        machine.send(peer, b"", 0, answers=102)


# Wrap-around.


def test_a_batch_that_starts_at_index_0_has_one_malformed_datagram() -> None:
    machine, peer = lone_server()
    machine.receive(b"".join(datagram(index, session_of(peer), 0, IMP, b"x") for index in range(20)), "c", 0, 14)
    assert machine.statistics.dropped["zero_index"] == 1


# Restart.


def crash(world: World, snapshot: bytes, options: UdpcOptions) -> Peer:
    """Replace the server by a new process that knows nothing but the snapshot."""
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
