"""mrp machines talking to each other, in both layouts."""

from __future__ import annotations

from typing import Any, cast

import pytest

from fairway.core.errors import (
    AlreadyOpen,
    BadMessage,
    CannotConnect,
    DamagedSnapshot,
    NoSuchPeer,
    NotSupported,
    QueueFull,
)
from fairway.core.events import (
    NO_ANSWER,
    Closed,
    CloseReason,
    Connected,
    ConnectRefused,
    ConnectUnknown,
    Delivered,
    DeliveryUnknown,
    MessageReceived,
    PingAnswered,
    Refused,
    Writable,
)
from fairway.core.random_source import Seeded
from fairway.protocols.mrp import wire
from fairway.protocols.mrp.machine import MrpMachine
from fairway.protocols.mrp.options import MrpOptions
from tests.protocols.test_mrp_world import Node, World, cut, pair

SECOND = 1_000_000
LAYOUTS = pytest.mark.parametrize("layout", ["stamped", "piggyback"])


def numbered(count: int, size: int = 8) -> list[bytes]:
    return [f"{number:08d}".encode().ljust(size, b".") for number in range(count)]


def is_data(data: bytes) -> bool:
    return data[3] == wire.TYPE_DATA and len(data) > wire.STAMPED_BYTES


def test_ids_of_both_layouts_on_one_server_never_meet() -> None:
    world = World()
    world.add("s", 5)
    for number in range(40):
        node = world.add(f"c{number}", 100 + number, layout="stamped" if number % 2 else "piggyback")
        node.machine.connect("s", world.now_us)
        world.settle(f"c{number}")
    world.run(SECOND)
    for number in range(40):
        world.send(f"c{number}", *numbered(3))
    world.run(SECOND)
    peers = world.nodes["s"].machine.peers()
    assert len({peer.local for peer in peers}) == 40
    assert len(world.nodes["s"].bodies) == 120
    assert not world.nodes["s"].machine.statistics.dropped


@LAYOUTS
def test_two_connections_between_the_same_two_nodes_are_apart(layout: str) -> None:
    world, client, server = pair(layout=layout)
    first = client.peer
    server.machine.connect("c", world.now_us)
    world.settle("s")
    world.run(SECOND)
    second = server.of(Connected)[-1].peer
    assert len(client.machine.peers()) == len(server.machine.peers()) == 2
    world.send("c", b"one", peer=first)
    world.send("s", b"two", peer=second)
    world.run(SECOND)
    assert server.bodies == [b"one"]
    assert client.bodies == [b"two"]
    assert server.of(MessageReceived)[0].peer.session == first.session == first.session
    assert server.of(MessageReceived)[0].peer.local == first.session


@LAYOUTS
@pytest.mark.parametrize("first", [1, 65_400, 65_535, 3 * 65_536 - 7])
def test_every_counter_wraps_and_goes_on(layout: str, first: int) -> None:
    world, client, server = pair(lose=every(11), layout=layout, first_sequence=first, controller="eager")
    bodies = numbered(700)
    client.machine.send_many(client.peer, bodies, world.now_us)
    world.settle("c")
    world.run(25 * SECOND)
    assert server.bodies == bodies
    assert [event.id for event in server.of(MessageReceived)] == list(range(first, first + 700))
    assert len(client.of(Delivered)) == 700
    world.send("s", *bodies[:200])
    world.run(25 * SECOND)
    assert client.bodies == bodies[:200]


def test_lone_messages_leave_one_after_another_and_a_lost_one_is_repeated_in_time() -> None:
    lost: list[bytes] = []

    def lose_the_third(name: str, data: bytes) -> bool:
        if is_data(data) and data.endswith(b"message 2") and not lost:
            lost.append(data)
            return True
        return False

    world, client, server = pair(lose=lose_the_third, layout="stamped")
    bodies = [b"message %d" % number for number in range(6)]
    for body in bodies:
        world.send("c", body)
        assert client.machine.next_deadline_us() is not None
        assert world.now_us < cast(int, client.machine.next_deadline_us()) <= world.now_us + SECOND // 2
        world.run(SECOND)
    assert lost
    assert server.bodies == bodies
    assert len(client.of(Delivered)) == len(bodies)
    assert client.machine.statistics.retransmissions == 1
    assert client.machine.unfinished() == 0


def every(step: int) -> Any:
    """Return a network that loses every so-many-th data packet."""
    count = 0

    def lose(name: str, data: bytes) -> bool:
        nonlocal count
        count += is_data(data)
        return is_data(data) and count % step == 0

    return lose


@pytest.mark.parametrize(("layout", "deferred"), [("stamped", False), ("stamped", True), ("piggyback", True)])
def test_a_whole_turn_of_messages_under_loss_arrives_once(layout: str, deferred: bool) -> None:
    world, client, server = pair(lose=every(997), layout=layout, deferred=deferred, controller="eager", window=4_000)
    world.batched = True
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
    world.batched = True
    world.delay_us = 500
    count = 0
    while count < 60_000:
        count += len(client.machine.send_many(client.peer, [b"xy"] * 20_000, world.now_us))
        world.settle("c")
        world.run(4_000)
    world.run(SECOND)
    times = [at_us for at_us, data in client.sent if is_data(data)]
    assert len(server.bodies) == count
    assert all(times[place + 32_768] - times[place] >= 100_000 for place in range(len(times) - 32_768))
    assert times[32_767] - times[0] < 100_000


@LAYOUTS
def test_a_strict_ping_pong_peer_is_served(layout: str) -> None:
    world = World(lose=every(7))
    server, client = world.add("s", 2, window=1), world.add("c", 1, layout=layout)
    client.machine.connect("s", world.now_us)
    world.settle("c")
    world.run(100_000)
    world.send("c", *numbered(20))
    world.run(20 * SECOND)
    assert server.bodies == numbered(20)
    assert server.machine.statistics.dropped["beyond_window"] > 0


@LAYOUTS
def test_a_window_of_one_has_one_packet_in_flight(layout: str) -> None:
    world, client, server = pair(layout=layout, window=1)
    start_us = world.now_us
    world.send("c", *numbered(10))
    world.run(SECOND)
    times = [at_us - start_us for at_us, data in client.sent if is_data(data)]
    assert times == [20_000 * number for number in range(10)]
    assert server.bodies == numbered(10)


def lose_body(body: bytes, count: int = 1) -> Any:
    """Return a network that loses a message the first so many times."""
    left = count

    def lose(name: str, data: bytes) -> bool:
        nonlocal left
        lost = left > 0 and data.endswith(body)
        left -= lost
        return lost

    return lose


@LAYOUTS
def test_an_overtaken_packet_is_repaired_after_one_round_trip(layout: str) -> None:
    world, client, server = pair(lose=lose_body(b"00000002"), layout=layout)
    start_us = world.now_us
    world.send("c", *numbered(8))
    world.run(SECOND)
    times = [at_us - start_us for at_us, data in client.sent if data.endswith(b"00000002")]
    assert times == [0, 20_000]
    assert server.bodies == numbered(8)
    assert (client.machine.statistics.repairs, client.machine.statistics.retransmissions) == (1, 1)


def test_a_late_ack_counts_no_loss_and_a_lost_transmission_does() -> None:
    world, client, _ = pair(lose=lose_body(b"lost"))
    world.send("c", b"first")
    world.run(SECOND)
    connection = client.machine._connections[client.peer.local]
    assert connection.sender.timing.loss == 0
    world.delay_us = 100_000
    world.send("c", b"late")
    world.run(SECOND)
    assert client.machine.statistics.retransmissions >= 1
    assert connection.sender.timing.loss == 0
    world.delay_us = 10_000
    world.send("c", b"lost")
    world.run(SECOND)
    assert connection.sender.timing.loss == 3_840


@LAYOUTS
def test_a_connect_that_nobody_answers_is_unknown_after_five_seconds(layout: str) -> None:
    world = World()
    client = world.add("c", layout=layout)
    token = client.machine.connect("nobody", world.now_us)
    world.settle("c")
    world.run(6 * SECOND)
    assert client.of(ConnectUnknown) == [ConnectUnknown(token, "nobody", NO_ANSWER)]
    assert len(client.sent) == 9
    assert client.machine.unfinished() == 0
    assert client.machine.next_deadline_us() is None


@LAYOUTS
def test_a_lost_reply_and_a_lost_first_packet_are_repaired(layout: str) -> None:
    lost = {("s", wire.TYPE_CON_REPLY): 2, ("c", wire.TYPE_DATA): 2}

    def lose(name: str, data: bytes) -> bool:
        key = (name, data[3])
        lost[key] = lost.get(key, 0) - 1
        return lost[key] >= 0

    world, client, server = pair(lose=lose, layout=layout)
    world.run(SECOND)
    world.send("c", b"hello")
    world.run(SECOND)
    assert server.bodies == [b"hello"]
    assert len(server.of(Connected)) == len(client.of(Connected)) == 1
    assert server.machine.statistics.conversations_opened == 1


def test_a_server_that_accepts_nothing_refuses() -> None:
    world = World()
    world.add("s", 2, accepts=())
    client = world.add("c")
    token = client.machine.connect("s", world.now_us)
    world.settle("c")
    world.run(SECOND)
    assert client.of(ConnectRefused) == [ConnectRefused(token, "s", "the peer rejected the connection")]


def test_a_server_at_its_bound_rejects_and_lets_in_again() -> None:
    world = World()
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


def test_half_open_connections_are_bounded_and_the_oldest_goes() -> None:
    machine = MrpMachine(MrpOptions(half_open_max=2), Seeded(1))
    for number in (1, 2, 3):
        machine.receive(wire.encode(wire.Connect(ver=0, cl_conid=number)), "c", 0)
    ids = [int.from_bytes(data[9:12], "big") for transmit in machine.transmits() for data in cut(transmit)]
    for number, local in zip((1, 2, 3), ids, strict=True):
        machine.receive(wire.ack_bytes(local, number, 0, 0), "c", 1)
    assert [event.peer.local for event in machine.events() if isinstance(event, Connected)] == ids[1:]
    assert machine.statistics.dropped == {"half_open_evicted": 1, "unknown_connection": 1}


def test_a_half_open_connection_lives_five_seconds_however_often_its_connect_is_repeated() -> None:
    machine = MrpMachine(MrpOptions(half_open_max=2), Seeded(1))
    connect = wire.encode(wire.Connect(ver=0, cl_conid=1))
    for now_us in (0, 4_000_000):
        machine.receive(connect, "c", now_us)
    (first, again) = [bytes(data) for transmit in machine.transmits() for data in cut(transmit)]
    assert first == again
    machine.wake(5_000_000)
    machine.receive(wire.ack_bytes(int.from_bytes(first[9:12], "big"), 1, 0, 0), "c", 5_000_001)
    assert machine.events() == []


def test_repeating_a_connect_does_not_make_its_half_open_connection_younger() -> None:
    machine = MrpMachine(MrpOptions(half_open_max=2), Seeded(1))
    for place, number in enumerate((1, 2, 1, 3)):
        machine.receive(wire.encode(wire.Connect(ver=0, cl_conid=number)), "c", place)
    ids = [int.from_bytes(data[9:12], "big") for transmit in machine.transmits() for data in cut(transmit)]
    for number, local in ((1, ids[0]), (2, ids[1]), (3, ids[3])):
        machine.receive(wire.ack_bytes(local, number, 0, 0), "c", 9)
    assert [event.peer.local for event in machine.events() if isinstance(event, Connected)] == [ids[1], ids[3]]


def test_a_closed_endpoint_completes_no_call_that_was_half_open() -> None:
    machine = MrpMachine(MrpOptions(), Seeded(1))
    connect = wire.encode(wire.Connect(ver=0, cl_conid=1))
    machine.receive(connect, "c", 0)
    (reply,) = [bytes(data) for transmit in machine.transmits() for data in cut(transmit)]
    machine.close(None, 1_000)
    machine.receive(connect, "c", 1_500)
    machine.receive(wire.ack_bytes(int.from_bytes(reply[9:12], "big"), 1, 0, 0), "c", 2_000)
    assert machine.transmits() == []
    assert machine.events() == []


@LAYOUTS
def test_a_silent_peer_ends_the_connection_after_thirty_seconds(layout: str) -> None:
    world, client, _ = pair(layout=layout, window=1)
    del world.nodes["s"]
    start_us = world.now_us
    tokens = world.send("c", b"one", b"two")
    world.run(29_999_999)
    assert client.of(Closed) == []
    world.run(1)
    assert world.now_us == start_us + 30 * SECOND
    assert [list(event.tokens) for event in client.of(DeliveryUnknown)] == [tokens[:1]]
    assert [list(event.tokens) for event in client.of(Refused)] == [tokens[1:]]
    assert client.of(Closed)[0].reason is CloseReason.TIMED_OUT
    assert (client.machine.unfinished(), client.machine.peers()) == (0, [])
    assert client.machine.next_deadline_us() is None


@LAYOUTS
def test_keep_alive_keeps_both_sides_and_its_loss_ends_nothing(layout: str) -> None:
    world, client, server = pair(layout=layout)
    world.send("c", b"hello")
    world.run(200 * SECOND)
    assert server.bodies == [b"hello"]
    assert server.machine.statistics.duplicates == 19
    world.lose = lambda name, data: True
    world.run(100 * SECOND)
    assert client.of(Closed) == server.of(Closed) == []
    world.run(201 * SECOND)
    assert [event.reason for event in client.of(Closed)] == [CloseReason.FORGOTTEN]
    assert [event.reason for event in server.of(Closed)] == [CloseReason.FORGOTTEN]


@LAYOUTS
def test_a_client_that_never_sent_anything_is_not_forgotten(layout: str) -> None:
    world, client, server = pair(layout=layout)
    world.run(900 * SECOND)
    assert client.of(Closed) == server.of(Closed) == []
    assert server.machine.statistics.conversations_opened == 1
    del world.nodes["s"]
    world.run(320 * SECOND)
    assert [event.reason for event in client.of(Closed)] == [CloseReason.FORGOTTEN]


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
def test_closing_flushes_first(layout: str) -> None:
    world, client, server = pair(layout=layout, lose=every(4))
    tokens = world.send("c", *numbered(50))
    client.machine.close(client.peer, world.now_us)
    with pytest.raises(NoSuchPeer, match="no open conversation"):
        client.machine.send(client.peer, b"more", world.now_us)
    world.settle("c")
    world.run(10 * SECOND)
    assert server.bodies == numbered(50)
    assert [token for event in client.of(Delivered) for token in event.tokens] == sorted(tokens) or layout == "stamped"
    assert client.events[-1] == Closed(client.peer, CloseReason.LOCAL)
    with pytest.raises(NoSuchPeer):
        client.machine.send(client.peer, b"more", world.now_us)


def test_closing_everything_ends_calls_and_refuses_new_ones() -> None:
    world, client, server = pair()
    token = client.machine.connect("nobody", world.now_us)
    client.machine.close(None, world.now_us)
    world.settle("c")
    assert [event.token for event in client.of(ConnectUnknown)] == [token]
    assert client.of(Closed)[0].reason is CloseReason.SHUT_DOWN
    with pytest.raises(CannotConnect, match="closed"):
        client.machine.connect("s", world.now_us)
    server.machine.connect("c", world.now_us)
    world.settle("s")
    world.run(6 * SECOND)
    assert len(server.of(ConnectUnknown)) == 1
    assert client.machine.statistics.dropped["endpoint_closed"] > 0


@LAYOUTS
def test_a_full_queue_says_so_and_says_when_it_is_not(layout: str) -> None:
    world, client, server = pair(layout=layout, send_queue_messages_max=8, window=4)
    tokens = client.machine.send_many(client.peer, numbered(20), world.now_us)
    assert len(tokens) == 8
    assert client.machine.room(client.peer) == 0
    with pytest.raises(QueueFull):
        client.machine.send(client.peer, b"one more", world.now_us)
    world.settle("c")
    world.run(SECOND)
    assert client.of(Writable) == [Writable(client.peer)]
    assert client.machine.room(client.peer) == 8
    assert server.bodies == numbered(8)


def test_the_bytes_of_the_queue_are_bounded() -> None:
    world, client, _ = pair(send_queue_bytes_max=100)
    assert len(client.machine.send_many(client.peer, [bytes(40)] * 5, world.now_us)) == 2
    with pytest.raises(QueueFull):
        client.machine.send(client.peer, bytes(40), world.now_us)
    world.settle("c")
    world.run(SECOND)
    assert len(client.machine.send_many(client.peer, [bytes(400)] * 5, world.now_us)) == 1


@LAYOUTS
def test_messages_of_any_size_arrive_whole(layout: str) -> None:
    world, client, server = pair(layout=layout)
    size_max = 65_493 if layout == "stamped" else 65_495
    bodies = [bytes([size % 251]) * size for size in (1, 2, 3, 700, 700, 700, 9, size_max)]
    client.machine.send_many(client.peer, bodies, world.now_us)
    world.settle("c")
    world.run(SECOND)
    assert server.bodies == bodies
    with pytest.raises(BadMessage, match=str(size_max)):
        client.machine.send(client.peer, bytes(size_max + 1), world.now_us)


def test_only_the_stamped_layout_carries_an_empty_message() -> None:
    world, client, server = pair()
    world.send("c", b"")
    world.run(SECOND)
    assert server.bodies == [b""]
    world, client, server = pair(layout="piggyback")
    with pytest.raises(BadMessage, match="no empty message"):
        client.machine.send_many(client.peer, [b"a", b""], world.now_us)
    assert client.machine.unfinished() == 0


def test_flags_and_answers_belong_to_another_protocol() -> None:
    world, client, _ = pair()
    with pytest.raises(NotSupported, match="udpc"):
        client.machine.send(client.peer, b"a", world.now_us, flags=1)


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


def test_an_unanswered_ping_is_unknown() -> None:
    world, client, _ = pair()
    del world.nodes["s"]
    tokens = [client.machine.ping(client.peer, world.now_us) for _ in range(64)]
    with pytest.raises(QueueFull, match="pings_max"):
        client.machine.ping(client.peer, world.now_us)
    world.settle("c")
    world.run(6 * SECOND)
    assert [event.tokens for event in client.of(DeliveryUnknown)] == [(token,) for token in tokens]


def restarted(world: World, name: str, snapshot: bytes, **options: Any) -> Node:
    """Replaces a node by one that has nothing but a snapshot."""
    node = world.add(name, 77, **options)
    node.machine.restore(snapshot, world.now_us)
    return node


@LAYOUTS
def test_a_server_that_crashes_before_the_commit_goes_on_without_loss_or_doubles(layout: str) -> None:
    options: dict[str, Any] = {"layout": layout, "deferred": True, "first_sequence": 65_530}
    world, client, server = pair(lose=every(5), **options)
    server.commits = False
    world.send("c", *numbered(10))
    world.run(30_000)
    stored = server.of(MessageReceived)[:4]
    snapshot = server.machine.snapshot(server.peer, [event.receipt for event in stored])
    again = restarted(world, "s", snapshot, **options)
    world.run(20 * SECOND)
    found = sorted((event.id, event.body) for event in [*stored, *again.of(MessageReceived)])
    assert found == list(enumerate(numbered(10), 65_530))
    assert len(client.of(Delivered)) == 10


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


def test_a_damaged_snapshot_is_refused() -> None:
    _, client, server = pair()
    snapshot = server.machine.snapshot(server.peer)
    fresh = MrpMachine(MrpOptions(), Seeded(1))
    other = snapshot.replace(b'"next":1', b'"next":2')
    assert other != snapshot
    for damaged in (b"", snapshot[:-1], other, b"\0\0\0\0{}"):
        with pytest.raises(DamagedSnapshot):
            fresh.restore(damaged, 0)
    assert fresh.restore(snapshot, 0) == server.peer
    with pytest.raises(AlreadyOpen):
        fresh.restore(snapshot, 0)
    with pytest.raises(NoSuchPeer):
        fresh.snapshot(client.peer)
