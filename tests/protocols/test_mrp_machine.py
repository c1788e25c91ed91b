"""mrp machines talking to each other, in both layouts."""

from __future__ import annotations

from typing import Any

import pytest

from fairway.core.errors import NotSupported
from fairway.core.events import (
    Connected,
    ConnectRefused,
    Delivered,
    MessageReceived,
    MessagesReceived,
    PingAnswered,
)
from fairway.core.random_source import Seeded
from fairway.protocols.mrp import wire
from fairway.protocols.mrp.machine import MrpMachine
from fairway.protocols.mrp.options import MrpOptions
from tests.protocols.world import Lose, Node, World, datagrams, nothing

SECOND = 1_000_000
LAYOUTS = pytest.mark.parametrize("layout", ["stamped", "piggyback"])


def numbered(count: int, size: int = 8) -> list[bytes]:
    return [f"{number:08d}".encode().ljust(size, b".") for number in range(count)]


def is_data(data: bytes) -> bool:
    return data[3] == wire.TYPE_DATA and len(data) > wire.STAMPED_BYTES


def pair(lose: Lose = nothing, **options: Any) -> tuple[World, Node, Node]:
    """Return a world with a client `c` that is connected to a server `s`."""
    world = World("mrp", delay_us=10_000, lose=lose)
    server, client = world.add("s", 2, **options), world.add("c", 1, **options)
    world.connect("c", "s")
    return world, client, server


def every(step: int) -> Any:
    """Return a network that loses every so-many-th data packet."""
    count = 0

    def lose(name: str, data: bytes) -> bool:
        nonlocal count
        count += is_data(data)
        return is_data(data) and count % step == 0

    return lose


@pytest.mark.parametrize(("layout", "deferred"), [("stamped", False), ("piggyback", True)])
def test_a_whole_turn_of_messages_under_loss_arrives_once(layout: str, deferred: bool) -> None:
    world, client, server = pair(lose=every(997), layout=layout, deferred=deferred, controller="eager", window=4_000)
    world.pump.batched = True
    total = 67_000
    sent = 0
    while sent < total:
        bodies = [number.to_bytes(4, "big") for number in range(sent, min(sent + 4_000, total))]
        sent += len(client.machine.send_many(client.peer, bodies, world.now_us))
        world.settle("c")
        world.run(150_000)
    world.run(5 * SECOND)
    found = sorted((event.id, event.body) for event in server.of(MessageReceived))
    assert found == [(number + 1, number.to_bytes(4, "big")) for number in range(total)]
    assert len(client.of(Delivered)) == total
    assert client.machine.statistics.repairs > 50


def test_no_more_than_half_a_turn_starts_within_a_hundred_milliseconds() -> None:
    world, client, server = pair(controller="eager", window=32_767)
    world.pump.batched = True
    world.pump.delay_us = 500
    count = 0
    while count < 60_000:
        count += len(client.machine.send_many(client.peer, [b"xy"] * 20_000, world.now_us))
        world.settle("c")
        world.run(4_000)
    world.run(SECOND)
    times = [at_us for at_us, data in client.sent if is_data(data)]
    assert len(server.bodies) == count
    assert all(times[index + 32_768] - times[index] >= 100_000 for index in range(len(times) - 32_768))
    assert times[32_767] - times[0] < 100_000


def lose_body(body: bytes, count: int = 1) -> Any:
    """Return a network that loses a message the first so many times."""
    left = count

    def lose(name: str, data: bytes) -> bool:
        nonlocal left
        lost = left > 0 and data.endswith(body)
        left -= lost
        return lost

    return lose


def test_a_server_at_its_bound_rejects_and_lets_in_again() -> None:
    world = World("mrp", delay_us=10_000)
    world.add("s", 2, peers_max=1)
    for name in ("c", "d"):
        world.add(name, ord(name)).machine.connect("s", world.now_us)
        world.settle(name)
        world.run(SECOND)
    assert len(world.nodes["d"].of(ConnectRefused)) == 1
    server = world.nodes["s"]
    server.machine.close(server.peer, world.now_us)
    world.settle("s")
    world.nodes["d"].machine.connect("s", world.now_us)
    world.settle("d")
    world.run(SECOND)
    assert len(world.nodes["d"].of(Connected)) == 1


def test_repeating_a_connect_does_not_make_its_half_open_connection_younger() -> None:
    machine = MrpMachine(MrpOptions(half_open_max=2), Seeded(1))
    for at_us, number in enumerate((1, 2, 1, 3)):
        machine.receive(wire.encode(wire.Connect(ver=0, cl_conid=number)), "c", at_us)
    ids = [int.from_bytes(data[9:12], "big") for data in datagrams(machine.transmits())]
    for number, local in ((1, ids[0]), (2, ids[1]), (3, ids[3])):
        machine.receive(wire.ack_bytes(local, number, 0, 0), "c", 9)
    assert [event.peer.local for event in machine.events() if isinstance(event, Connected)] == [ids[1], ids[3]]


def test_a_closed_endpoint_completes_no_call_that_was_half_open() -> None:
    machine = MrpMachine(MrpOptions(), Seeded(1))
    connect = wire.encode(wire.Connect(ver=0, cl_conid=1))
    machine.receive(connect, "c", 0)
    (reply,) = [bytes(data) for data in datagrams(machine.transmits())]
    machine.close(None, 1_000)
    machine.receive(connect, "c", 1_500)
    machine.receive(wire.ack_bytes(int.from_bytes(reply[9:12], "big"), 1, 0, 0), "c", 2_000)
    assert machine.transmits() == []
    assert machine.events() == []


def test_no_packet_leaves_beyond_the_window_while_the_oldest_is_missing() -> None:
    world, client, server = pair(lose=lose_body(b"00000000", 4), window=8)
    world.send("c", *numbered(40))
    world.run(5 * SECOND)
    assert server.bodies == numbered(40)
    assert server.machine.statistics.dropped["beyond_window"] == 0
    until_repaired = [data for _, data in client.sent[: client.sent.index(last_of(client, b"00000000"))]]
    assert not any(data.endswith(b"00000008") for data in until_repaired)


def last_of(node: Node, body: bytes) -> tuple[int, bytes]:
    """Return the last transmission of a message."""
    return [sent for sent in node.sent if sent[1].endswith(body)][-1]


@LAYOUTS
def test_a_ping_measures_the_round_trip(layout: str) -> None:
    world, client, server = pair(layout=layout)
    token = client.machine.ping(client.peer, world.now_us)
    world.settle("c")
    world.run(SECOND)
    assert client.of(PingAnswered) == [PingAnswered(client.peer, token, 20_000)]
    with pytest.raises(NotSupported, match="server can ping only after"):
        server.machine.ping(server.peer, world.now_us)
    world.send("s", b"hello")
    world.send("c", b"hello")
    world.run(SECOND)
    for name, node in (("c", client), ("s", server)):
        token = node.machine.ping(node.peer, world.now_us)
        world.settle(name)
        world.run(SECOND)
        assert node.of(PingAnswered)[-1] == PingAnswered(node.peer, token, 20_000)
    assert server.bodies == client.bodies == [b"hello"]


def restarted(world: World, name: str, snapshot: bytes, **options: Any) -> Node:
    """Replace a node by one that has nothing but a snapshot."""
    node = world.add(name, 77, **options)
    node.machine.restore(snapshot, world.now_us)
    return node


@LAYOUTS
def test_a_restored_server_sends_what_was_outstanding_and_goes_on_counting(layout: str) -> None:
    world, client, server = pair(layout=layout)
    world.send("c", b"hello")
    world.run(SECOND)
    world.lose = lambda name, data: True
    world.send("s", *numbered(3))
    snapshot = server.machine.snapshot(server.peer)
    peer = server.peer
    world.lose = lambda name, data: False
    again = restarted(world, "s", snapshot, layout=layout)
    assert again.machine.peers() == [peer]
    token = again.machine.send(peer, b"after", world.now_us)
    world.settle("s")
    world.run(SECOND)
    assert client.bodies == [*numbered(3), b"after"]
    assert again.of(Delivered) == [Delivered(peer, (token,))]
    assert again.machine.unfinished() == 0


def test_what_is_kept_ahead_of_a_gap_survives_with_its_body() -> None:
    world, _, server = pair(lose=lose_body(b"00000000", 3))
    world.send("c", *numbered(4))
    world.run(12_000)
    assert server.bodies == []
    again = restarted(world, "s", server.machine.snapshot(server.peer))
    world.run(SECOND)
    assert again.bodies == numbered(4)


@pytest.mark.parametrize("now_us", [65_536_000, 131_072_000])
@pytest.mark.parametrize("count", [1, 3, 20], ids=["alone", "a-few", "a-batch"])
def test_a_client_that_says_it_is_there_acknowledges_nothing(count: int, now_us: int) -> None:
    """It does so by an ack of sequence 0 with stamp 0: no packet may have both."""
    world, client, server = pair(first_sequence=65_536)
    ids = server.peer.local, client.peer.local
    world.pump.now_us, world.lose = now_us, lambda name, data: True
    server.machine.send_many(server.peer, numbered(count), now_us)
    world.settle("s")
    server.machine.receive(wire.ack_bytes(*ids, 0, 0), "c", now_us + 1_000)
    world.settle("s")
    assert server.of(Delivered) == []
    data = [data for at_us, data in server.sent if at_us == now_us and is_data(data)]
    fields = [wire.pair_at(datagram, wire.STAMPED_HEAD_BYTES) for datagram in data]
    acks = [wire.ack_bytes(*ids, sequence, stamp) for sequence, stamp in fields]
    server.machine.receive(b"".join(acks), "c", now_us + 2_000, 14)
    world.settle("s")
    assert len(server.of(Delivered)) == len(data) > 0


def test_what_several_connections_send_together_is_taken_run_by_run() -> None:
    server, client = MrpMachine(MrpOptions(), Seeded(1)), MrpMachine(MrpOptions(controller="eager"), Seeded(2))
    for _ in range(3):
        client.connect("s", 0)
    _exchange(client, server)
    client.wake(1_000)
    _exchange(client, server)
    for peer in client.peers():
        client.send_many(peer, numbered(6), 1_000)
    _exchange(client, server)
    assert [type(event) for event in server.events()] == [*[Connected] * 3, *[MessagesReceived] * 3]
    assert sum(len(event.tokens) for event in client.events() if isinstance(event, Delivered)) == 18
    assert (server.statistics.batches, client.statistics.batches) == (3, 3)


def _exchange(client: MrpMachine, server: MrpMachine) -> None:
    """Carry what both send to the other side until they are silent."""
    while sent := [(server, "c", one) for one in client.transmits()] + [
        (client, "s", one) for one in server.transmits()
    ]:
        for target, source, transmit in sent:
            target.receive(transmit.data, source, 1_000, transmit.segment_bytes)
