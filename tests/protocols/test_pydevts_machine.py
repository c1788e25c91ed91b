"""The pydevts machine: two of them wired together, or one fed with bytes."""

from __future__ import annotations

from zlib import crc32

import pytest

from fairway.core.errors import NoSuchPeer
from fairway.core.events import (
    Closed,
    CloseReason,
    Connected,
    Delivered,
    DeliveryUnknown,
    Event,
    MessageReceived,
    MessagesReceived,
    Peer,
    PingAnswered,
    Receipt,
    Refused,
    Writable,
)
from fairway.core.random_source import Seeded
from fairway.protocols.pydevts import wire
from fairway.protocols.pydevts.machine import PydevtsMachine
from fairway.protocols.pydevts.options import PydevtsOptions
from tests.protocols.world import datagrams, flattened

SECOND = 1_000_000
HERE, THERE = ("here", 1), ("there", 2)


def machine(**options: object) -> PydevtsMachine:
    return PydevtsMachine(PydevtsOptions(**options), Seeded(1))  # type: ignore[arg-type]


def sent(source: PydevtsMachine) -> list[bytes]:
    return datagrams(source.transmits())


def packet(message_id: int, body: bytes, success: int = 0) -> bytes:
    return wire.encode(wire.Packet(success=success, message_id=message_id, crc=crc32(body), body=body))


def ack(message_id: int, body: bytes, success: int = 0) -> bytes:
    return wire.encode(wire.Ack(success=success, message_id=message_id, crc=crc32(body)))


def close(message_id: int, body: bytes) -> bytes:
    return wire.encode(wire.Close(success=0, message_id=message_id, crc=crc32(body)))


def bodies_of(events: list[Event]) -> list[tuple[int | str, bytes]]:
    """List id and body of the messages among events."""
    return [(event.id, event.body) for event in flattened(events) if isinstance(event, MessageReceived)]


def connected(**options: object) -> tuple[PydevtsMachine, Peer]:
    client = machine(**options)
    client.connect(THERE, 0)
    client.events()
    return client, Peer(THERE)


def exchange(client: PydevtsMachine, server: PydevtsMachine, now_us: int) -> list[Event]:
    """Carry datagrams both ways until nothing moves; commit and return what the server reported."""
    reported: list[Event] = []
    for _ in range(1_000):
        moved = False
        for source, target, address in ((client, server, HERE), (server, client, THERE)):
            for data in source.transmits():
                moved = True
                target.receive(data.data, address, now_us, data.segment_bytes)
        for event in server.events():
            reported.append(event)
            if isinstance(event, MessageReceived | MessagesReceived):
                server.commit(event.receipt, now_us)
        if not moved:
            return reported
    raise AssertionError("the two never come to rest")


def answered(client: PydevtsMachine, peer: Peer) -> None:
    """Have the peer answer a message, so that it is not given up as a whole."""
    client.send(peer, b"first", 0)
    client.receive(b"\x01" + sent(client)[0][1:8], THERE, 0)
    sent(client)
    client.events()


def test_messages_that_count_as_lost_still_take_their_place_in_the_window() -> None:
    client, peer = connected(controller="newreno", window=12, first_id=0)
    bodies = [bytes([number]) for number in range(60)]
    client.send_many(peer, bodies, 0)
    waiting: list[int] = []
    for step in range(1, 60):
        waiting += [data[3] for data in sent(client) if data[0] == wire.TYPE_PACKET]
        assert len(waiting) <= 12
        answered = [number for number in waiting if number % 2]
        waiting = [number for number in waiting if not number % 2]
        client.wake(step * 20_000)
        for number in answered:
            client.receive(ack(number, bodies[number]), THERE, step * 20_000)
    assert len(waiting) >= 10
    assert client.statistics.retransmissions == 0


def test_a_full_memory_drops_new_messages_and_forgets_nothing() -> None:
    server = machine(remembered_max=2)
    for message_id in range(4):
        server.receive(packet(message_id, b"x"), HERE, 0)
    assert sent(server) == [ack(0, b"x"), ack(1, b"x")]
    assert server.statistics.dropped == {"remembered_full": 2}
    server.receive(packet(0, b"x"), HERE, 1)
    assert sent(server) == [ack(0, b"x")]
    assert server.statistics.duplicates == 1
    for message_id in range(2):
        server.receive(close(message_id, b"x"), HERE, 1)
    server.wake(40 * SECOND)
    server.receive(packet(2, b"x"), HERE, 41 * SECOND)
    assert sent(server) == [ack(2, b"x")]


def test_a_message_kept_from_its_commit_does_not_hide_a_later_one_when_it_was_acknowledged() -> None:
    server = machine()
    server.receive(packet(1, b"x"), HERE, 0)
    server.receive(close(1, b"x"), HERE, 0)
    server.wake(40 * SECOND)
    server.receive(packet(1, b"x"), HERE, 120 * SECOND)
    assert len(bodies_of(server.events())) == 2


def test_idle_callers_make_room_for_new_ones_and_busy_ones_do_not() -> None:
    server = machine(peers_max=2)
    for host in ("a", "b", "c"):
        server.receive(packet(1, b"x"), host, 0)
        server.commit(Receipt(Peer(host), 1), 0)
    assert server.statistics.dropped == {"peers_full": 1}
    for host in ("a", "b"):
        server.receive(close(1, b"x"), host, 1)
    server.wake(40 * SECOND)
    server.events()
    server.receive(packet(1, b"x"), "c", 41 * SECOND)
    assert server.events() == [
        Closed(Peer("a"), CloseReason.FORGOTTEN),
        Connected(Peer("c"), None),
        MessageReceived(Peer("c"), 1, b"x"),
    ]


def test_a_caller_whose_message_is_remembered_is_not_idle_because_our_answer_was_acknowledged() -> None:
    server = machine(peers_max=1, first_id=9)
    server.receive(packet(1, b"question"), HERE, 0)
    server.commit(Receipt(Peer(HERE), 1), 0)
    server.receive(close(1, b"question"), HERE, 0)
    server.send(Peer(HERE), b"answer", 0)
    sent(server)
    server.receive(ack(9, b"answer"), HERE, 1)
    server.receive(packet(1, b"x"), THERE, 2)
    assert server.statistics.dropped == {"peers_full": 1}


def test_a_caller_with_a_message_that_is_not_committed_is_not_idle() -> None:
    server = machine(peers_max=1)
    server.receive(packet(1, b"x"), HERE, 0)
    server.receive(close(1, b"x"), HERE, 0)
    server.wake(40 * SECOND)
    server.receive(packet(1, b"x"), THERE, 41 * SECOND)
    assert server.statistics.dropped == {"peers_full": 1}
    server.commit(Receipt(Peer(HERE), 1), 42 * SECOND)
    server.receive(packet(1, b"x"), THERE, 43 * SECOND)
    assert [body for _, body in bodies_of(server.events())] == [b"x", b"x"]


def heard_of(server: PydevtsMachine, now_us: int, message_id: int = 1) -> None:
    """Have a message arrive, committed and closed, so that only its key is remembered."""
    server.receive(packet(message_id, b"x"), HERE, now_us)
    server.commit(Receipt(Peer(HERE), message_id), now_us)
    server.receive(close(message_id, b"x"), HERE, now_us)


def wake_when_due(server: PydevtsMachine, until_us: int) -> None:
    while (due_us := server.next_deadline_us()) is not None and due_us <= until_us:
        server.wake(due_us)


def test_an_address_is_forgotten_when_nothing_of_it_is_remembered_any_more() -> None:
    server = machine()
    heard_of(server, 0)
    wake_when_due(server, 160 * SECOND - 1)
    assert server.peers() == [Peer(HERE)]
    server.events()
    wake_when_due(server, 160 * SECOND)
    assert server.peers() == []
    assert server.events() == [Closed(Peer(HERE), CloseReason.FORGOTTEN)]
    assert server.next_deadline_us() is None


def test_an_address_that_is_heard_of_again_is_remembered_as_long_again() -> None:
    server = machine()
    heard_of(server, 0)
    wake_when_due(server, 100 * SECOND)
    heard_of(server, 100 * SECOND, 2)
    wake_when_due(server, 260 * SECOND - 1)
    assert server.peers() == [Peer(HERE)]


def test_an_address_that_was_written_to_is_kept_until_the_ids_have_rested() -> None:
    server = machine(first_id=9)
    heard_of(server, 0)
    wake_when_due(server, 50 * SECOND)
    server.send(Peer(HERE), b"answer", 50 * SECOND)
    sent(server)
    server.receive(ack(9, b"answer"), HERE, 50 * SECOND)
    wake_when_due(server, 170 * SECOND - 1)
    assert server.peers() == [Peer(HERE)]
    wake_when_due(server, 170 * SECOND)
    assert server.peers() == []


def test_an_address_that_our_application_named_is_not_forgotten() -> None:
    client = machine()
    client.connect(HERE, 0)
    client.events()
    assert client.next_deadline_us() is None
    client.wake(1_000 * SECOND)
    assert client.events() == []
    assert client.room(Peer(HERE)) > 0


def test_the_numbers_of_a_forgotten_address_go_on_where_they_were() -> None:
    server = machine()
    heard_of(server, 0, 7)
    wake_when_due(server, 160 * SECOND)
    server.events()
    server.receive(packet(7, b"x"), HERE, 200 * SECOND)
    assert [number for number, _ in bodies_of(server.events())] == [65_536 + 7]


def test_closing_refuses_what_was_never_sent_after_the_flush_and_gives_up_the_rest() -> None:
    client, peer = connected(controller="eager", window=1, first_id=0)
    answered(client, peer)
    tokens = client.send_many(peer, [b"a", b"b"], 0)
    sent(client)
    client.close(peer, 5 * SECOND)
    with pytest.raises(NoSuchPeer):
        client.send(peer, b"c", 5 * SECOND)
    assert client.events() == []
    for second in range(6, 39, 3):
        client.wake(second * SECOND)
        sent(client)
    events = client.events()
    assert isinstance(events[0], DeliveryUnknown)
    assert list(events[0].tokens) == [tokens[0]]
    client.wake(38 * SECOND)
    events = client.events()
    assert [type(event) for event in events] == [DeliveryUnknown, Closed]
    assert client.unfinished() == 0


def give_up_the_first_of_two(client: PydevtsMachine, peer: Peer) -> list[Event]:
    """Send two messages through a window of one and let time pass until the first has its outcome."""
    client.send_many(peer, [b"a", b"b"], 0)
    for _ in range(11):
        sent(client)
        deadline_us = client.next_deadline_us()
        assert deadline_us is not None
        client.wake(deadline_us)
    return client.events()


def test_a_peer_that_never_answered_is_given_up_as_a_whole_and_takes_new_messages() -> None:
    client, peer = connected(controller="eager", window=1, first_id=0, send_queue_messages_max=2)
    client.send_many(peer, [b"a", b"b", b"c"], 0)
    for second in range(3, 33, 3):
        assert [data[0] for data in sent(client)] == [wire.TYPE_PACKET]
        client.wake(second * SECOND)
        assert client.events() == []
    sent(client)
    client.wake(33 * SECOND)
    assert [type(event) for event in client.events()] == [Refused, Writable, DeliveryUnknown]
    assert (client.unfinished(), client.room(peer)) == (0, 2)
    client.send(peer, b"d", 33 * SECOND)
    assert len(sent(client)) == 1


@pytest.mark.parametrize("answer", ["ack", "close", "pong", "message"])
def test_a_peer_that_was_heard_of_is_not_given_up_as_a_whole(answer: str) -> None:
    client, peer = connected(controller="eager", window=1, first_id=0)
    if answer == "pong":
        client.ping(peer, 0)
        client.receive(b"\x03" + sent(client)[0][1:], THERE, 0)
    elif answer == "close":
        client.receive(close(9, b"x"), THERE, 0)
    elif answer == "message":
        client.receive(packet(9, b"x"), THERE, 0)
    else:
        answered(client, peer)
    sent(client)
    client.events()
    (event,) = give_up_the_first_of_two(client, peer)
    assert isinstance(event, DeliveryUnknown)
    assert client.unfinished() == 1


def test_what_is_malformed_does_not_keep_a_mute_peer() -> None:
    client, peer = connected(controller="eager", window=1, first_id=0)
    client.receive(b"\x02" + bytes(7), THERE, 0)
    assert [type(event) for event in give_up_the_first_of_two(client, peer)] == [Refused, DeliveryUnknown]


def test_a_ping_that_waits_when_the_conversation_is_closed_has_its_outcome_before() -> None:
    client, peer = connected()
    token = client.ping(peer, 0)
    client.close(peer, 1)
    events = client.events()
    assert [type(event) for event in events] == [DeliveryUnknown, Closed]
    assert isinstance(events[0], DeliveryUnknown)
    assert list(events[0].tokens) == [token]


def test_the_answer_to_a_ping_is_found_among_other_closes() -> None:
    client, peer = connected()
    client.receive(packet(1, b"x"), THERE, 0)
    sent(client)
    client.events()
    client.ping(peer, 0)
    answer = b"\x03" + sent(client)[0][1:]
    client.receive(close(1, b"x") + answer, THERE, 5, 8)
    assert [type(event) for event in client.events()] == [PingAnswered]
    client.wake(3 * SECOND)
    assert sent(client) == []


def test_a_restored_memory_lasts_as_long_as_the_first_would_have() -> None:
    server = machine()
    server.receive(packet(1, b"x"), HERE, 10 * SECOND)
    server.receive(close(1, b"x"), HERE, 20 * SECOND)
    again = machine()
    again.restore(server.snapshot(Peer(HERE)), 30 * SECOND)
    again.wake(50 * SECOND - 1)
    again.receive(packet(1, b"x"), HERE, 50 * SECOND - 1)
    assert bodies_of(again.events()) == []
    again.wake(50 * SECOND)
    again.receive(packet(1, b"x"), HERE, 50 * SECOND)
    assert bodies_of(again.events()) == [(1 + 65_536, b"x")]


def test_a_restored_memory_does_not_last_longer_because_the_clock_started_again() -> None:
    server = machine()
    server.receive(packet(1, b"x"), HERE, 3_600 * SECOND)
    server.receive(close(1, b"x"), HERE, 3_600 * SECOND)
    again = machine()
    again.restore(server.snapshot(Peer(HERE)), SECOND)
    again.wake(41 * SECOND)
    again.receive(packet(1, b"x"), HERE, 41 * SECOND)
    assert len(bodies_of(again.events())) == 1


def test_numbers_go_on_after_a_restore() -> None:
    server = machine()
    server.receive(packet(65_535, b"a"), HERE, 0)
    server.receive(packet(0, b"b"), HERE, 0)
    again = machine()
    again.restore(server.snapshot(Peer(HERE)), 0)
    again.receive(packet(1, b"c"), HERE, 0)
    again.receive(packet(65_534, b"d"), HERE, 0)
    again.receive(packet(65_535, b"e"), HERE, 0)
    assert [number for number, _ in bodies_of(again.events())] == [65_537, 65_534, 65_535 + 65_536]


def test_own_ids_go_on_half_a_turn_ahead_after_a_restore() -> None:
    server = machine(first_id=100)
    server.receive(packet(1, bytes(100)), HERE, 0)
    server.send(Peer(HERE), b"x", 0)
    sent(server)
    again = machine(first_id=100)
    again.restore(server.snapshot(Peer(HERE)), 0)
    again.receive(packet(2, bytes(100)), HERE, 0)
    sent(again)
    again.send(Peer(HERE), b"x", 0)
    assert sent(again) == [packet(101 + 32_768, b"x")]


def test_a_fast_sender_uses_no_recent_id_again_after_a_restore() -> None:
    client, peer = connected(first_id=0, window=32_768, controller="eager")
    server = machine()
    for start in range(0, 40_960, 4_096):
        client.send_many(peer, [b"tick"] * 4_096, start * 100)
        assert len(bodies_of(exchange(client, server, start * 100))) == 4_096
    again = machine()
    again.restore(client.snapshot(peer), 5 * SECOND)
    token = again.send(peer, b"tick", 5 * SECOND)
    assert bodies_of(exchange(again, server, 5 * SECOND)) == []
    assert again.unfinished() == 1
    rested_us = 125 * SECOND + 1
    again.wake(rested_us)
    server.wake(rested_us)
    assert len(bodies_of(exchange(again, server, rested_us))) == 1
    assert [list(event.tokens) for event in again.events() if isinstance(event, Delivered)] == [[token]]


def test_an_address_that_our_application_named_stays_named_after_a_restore() -> None:
    client, peer = connected()
    client.receive(packet(1, b"x"), THERE, 0)
    again = machine()
    again.restore(client.snapshot(peer), 0)
    again.send(peer, bytes(1_000), 0)
    assert len(sent(again)) == 1


def test_an_ack_that_was_closed_leaves_no_timer_behind() -> None:
    server = machine()
    options = PydevtsOptions()
    for number in (1, 2, 3):
        server.receive(packet(number, b"body"), THERE, number * 1_000)
    sent(server)
    for number in (2, 1):
        server.receive(close(number, b"body"), THERE, 10_000)
    assert server.next_deadline_us() == 3_000 + options.repeat_after_us, "the third ack waits for its close"
    server.receive(close(3, b"body"), THERE, 10_000)
    left_us = server.next_deadline_us()
    assert left_us is not None
    assert left_us > 3_000 + options.repeat_after_us, "only what is remembered has a time"


def test_a_batch_of_copies_from_half_a_turn_ago_is_recognised() -> None:
    server = machine()
    run = b"".join(packet(number, b"%d" % number) for number in range(5))
    for data in (run, packet(30_000, b"x"), packet(60_000, b"y"), run):
        server.receive(data, HERE, 0, 9)
    assert (server.statistics.duplicates, server.statistics.messages_received) == (5, 7)
