"""The rup machine, clause by clause: two in a world that loses what a test says, or one that is fed with parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.core.errors import CannotConnect
from fairway.core.events import (
    Address,
    Closed,
    CloseReason,
    Connected,
    Delivered,
    DeliveryUnknown,
    MessageReceived,
    PartReceived,
    Peer,
    Receipt,
    Refused,
)
from fairway.core.machine import Machine, split
from fairway.core.random_source import Seeded
from fairway.protocols.rup import wire
from fairway.protocols.rup.incoming import PART_OVERHEAD_BYTES
from fairway.protocols.rup.machine import RupMachine
from fairway.protocols.rup.options import RupOptions
from fairway.protocols.rup.parts import Parts
from tests.protocols.world import World

ID = b"0123456789abcdef0123456789abcdef"
SECOND = 1_000_000
A, B = "a", "b"


def wired(sender: RupOptions | None = None, receiver: RupOptions | None = None) -> World:
    """Return a world in which `a` has named `b`."""
    world = World("rup", delay_us=5_000)
    world.add(A, 1, sender)
    world.add(B, 2, receiver)
    world.machines[A].connect(B, world.now_us)
    world.settle(A)
    return world


def positions(sent: list[bytes], letter: bytes) -> list[int]:
    """Return the positions of the datagrams of one kind."""
    return [wire.header(data).position for data in sent if data[:1] == letter]


def body_of(parts: int, rest: int = 0) -> bytes:
    return bytes(number % 253 for number in range(parts * 1_158 + rest))


# Repair.


def test_a_confirm_leaves_at_once_when_a_hole_closes() -> None:
    machine = RupMachine(RupOptions(), Seeded(1))
    arrive(machine, *[part(index, of=200) for index in range(100) if index != 90])
    assert arrive(machine, part(90, of=200)) == [(wire.CONFIRM, 1_000)]


def test_what_is_left_of_a_hole_keeps_the_time_at_which_it_was_seen() -> None:
    machine = RupMachine(RupOptions(), Seeded(1))
    arrive(machine, part(0, of=20), part(5, of=20))
    arrive(machine, part(3, of=20), now_us=6_000)
    machine.wake(9_999)
    assert (wire.REQUEST, 10) not in arrive(machine)
    machine.wake(10_000)
    assert arrive(machine) == [(wire.REQUEST, 10), (wire.REQUEST, 20), (wire.REQUEST, 40)]


def test_part_0_is_not_requested_anew_when_another_part_shows_the_grid() -> None:
    machine = RupMachine(RupOptions(), Seeded(1))
    arrive(machine, part(3, size=100))
    machine.wake(10_000)
    assert (wire.REQUEST, 0) in arrive(machine)
    assert arrive(machine, part(1, size=100), now_us=11_000) == [(wire.REQUEST, 200), (wire.CONFIRM, 0)]


def test_requests_are_bounded_and_rise() -> None:
    world = wired(RupOptions(controller="eager"), RupOptions(requests_open_max=64))
    began_us = world.now_us
    world.lose = lambda _, data: world.now_us == began_us and 1_158 <= wire.header(data).position < 150 * 1_158
    world.send(A, body_of(160))
    world.run(5_000)
    assert positions(world.sent(B), b"r") == [index * 1_158 for index in range(1, 65)]
    world.run(SECOND)
    assert world.bodies(B) == [body_of(160)]


# The sender.


def test_several_messages_share_one_window_and_take_turns() -> None:
    world = wired(RupOptions(controller="eager", window=100))
    tokens = world.send(A, body_of(150), body_of(1))
    assert len(world.sent(A)) == 50 + 1, "half of the window before the first answer, then the other message"
    world.run(SECOND)
    assert [list(event.tokens) for event in world.of(A, Delivered)] == [tokens[1:], tokens[:1]]
    assert sorted(world.bodies(B)) == sorted([body_of(150), body_of(1)])


def test_messages_beyond_those_under_way_wait() -> None:
    world = wired(RupOptions(messages_under_way_max=2))
    world.send(A, b"one", b"two", b"three")
    assert len(world.sent(A)) == 2
    world.run(SECOND)
    assert len(world.bodies(B)) == 3


def test_a_body_that_changes_after_the_send_is_sent_as_it_was() -> None:
    world = wired(RupOptions(window=1))
    body = bytearray(body_of(3))
    world.send(A, body)  # type: ignore[arg-type]
    body[:] = bytes(len(body))
    world.run(SECOND)
    assert world.bodies(B) == [body_of(3)]


@pytest.mark.parametrize("parts", [1, 3, 4, 254, 255, 256])
def test_bodies_are_exact_around_the_digits_of_the_wire(parts: int) -> None:
    world = wired(RupOptions(controller="eager", part_bytes=255))
    bodies = [bytes(range(255)) * parts + bytes(rest) for rest in (0, 1, 254)]
    world.send(A, *bodies)
    world.run(SECOND)
    assert sorted(world.bodies(B)) == sorted(bodies)


def caller_of_b(**options: int) -> RupMachine:
    """A machine that has named B."""
    machine = RupMachine(RupOptions(**options), Seeded(1))  # type: ignore[arg-type]
    machine.connect(B, 0)
    machine.events()
    return machine


# Unproved addresses.


def test_an_answer_larger_than_three_times_the_call_shrinks_its_first_part_and_arrives() -> None:
    world = wired()
    world.send(A, b"hello")
    world.run(SECOND)
    tokens = world.send(B, body_of(20))
    assert sum(map(len, world.sent(B))) <= 3 * (42 + 5)
    world.run(SECOND)
    assert world.bodies(A) == [body_of(20)]
    assert world.of(B, Delivered) == [Delivered(Peer(A), tuple(tokens))]


def test_what_the_limit_never_lets_out_is_refused_and_what_it_let_out_in_part_is_unknown() -> None:
    world = wired()
    world.send(A, b"")
    world.run(SECOND)
    world.lose = lambda name, data: True
    machine = world.machines[B]
    first, second = machine.send_many(Peer(A), [bytes(500), bytes(600)], world.now_us)
    world.settle(B)
    assert machine.statistics.amplification_withheld == 1
    world.run(11 * SECOND)
    assert [list(event.tokens) for event in world.of(B, DeliveryUnknown)] == [[first]]
    assert [list(event.tokens) for event in world.of(B, Refused)] == [[second]]
    assert machine.unfinished() == 0


def test_an_address_is_unproved_again_once_its_conversation_is_closed() -> None:
    machine = caller_of_b()
    machine.close(Peer(B), 0)
    arrive(machine, wire.part(ID, 0, 0, b""), address=B)
    machine.send(Peer(B), bytes(1_000), 1)
    assert sum(len(transmit.data) for transmit in machine.transmits()) <= 3 * 42


# The receiver.


def arrive(machine: Machine, *parts: bytes, now_us: int = 0, address: Address = A) -> list[tuple[int, int]]:
    """Feed datagrams and return kind and position of what is answered."""
    for part in parts:
        machine.receive(part, address, now_us)
    answers = [split(transmit.data, 38) for transmit in machine.transmits()]
    headers = [wire.header(datagram) for group in answers for datagram in group]
    return [(header.kind, header.position) for header in headers]


def part(index: int, of: int = 4, size: int = 10, identity: bytes = ID) -> bytes:
    return wire.part(identity, index * size, of * size, bytes([index]) * size)


def bodies(machine: RupMachine) -> list[bytes]:
    return [event.body for event in machine.events() if isinstance(event, MessageReceived)]


WHOLE = b"".join(bytes([index]) * 10 for index in range(4))


@given(st.permutations(range(4)))
def test_any_order_of_parts_makes_the_message_once(order: list[int]) -> None:
    machine = RupMachine(RupOptions(), Seeded(1))
    for index in order:
        arrive(machine, part(index))
    assert bodies(machine) == [WHOLE]
    assert arrive(machine, part(2)) == [(wire.CONFIRM, 40)]
    assert bodies(machine) == []


def test_memory_is_counted_by_what_was_received() -> None:
    cost = 10 + PART_OVERHEAD_BYTES
    machine = RupMachine(RupOptions(incoming_bytes_per_peer_max=4 * cost), Seeded(1))
    total = 60 << 20
    arrive(machine, *[wire.part(ID, index * 100, total, bytes(100)) for index in range(2)])
    arrive(machine, part(0, identity=b"e" * 32))
    assert machine.statistics.dropped == {"memory_full": 1}
    other = b"f" * 32
    arrive(machine, *[part(index, identity=other) for index in range(4)], address=B)
    assert machine.statistics.dropped == {"memory_full": 1}
    assert bodies(machine) == [WHOLE]


def test_memory_comes_back_when_messages_end() -> None:
    cost = 10 + PART_OVERHEAD_BYTES
    machine = RupMachine(RupOptions(incoming_bytes_max=4 * cost), Seeded(1))
    for number in range(5):
        arrive(machine, *[part(index, identity=b"%032x" % number) for index in range(4)])
    arrive(machine, *[part(index, identity=b"a" * 32) for index in range(3)])
    machine.wake(31 * SECOND)
    arrive(machine, *[part(index, identity=b"b" * 32) for index in range(4)], now_us=31 * SECOND)
    assert bodies(machine) == [WHOLE] * 6
    assert not machine.statistics.dropped


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"incoming_messages_per_peer_max": 1}, "incoming_full"),
        ({"incoming_messages_max": 1}, "incoming_full"),
        ({"remembered_max": 1}, "remembered_full"),
    ],
)
def test_a_second_message_is_dropped_at_the_bound_and_taken_later(options: dict[str, int], reason: str) -> None:
    machine = RupMachine(RupOptions(**options), Seeded(1))  # type: ignore[arg-type]
    arrive(machine, part(0))
    assert arrive(machine, part(0, identity=b"e" * 32)) == []
    assert machine.statistics.dropped == {reason: 1}
    machine.wake(31 * SECOND)
    assert arrive(machine, part(0, identity=b"e" * 32), now_us=31 * SECOND) == [(wire.CONFIRM, 10)]


def test_a_remembered_id_is_not_evicted_by_new_messages() -> None:
    machine = RupMachine(RupOptions(remembered_max=2), Seeded(1))
    for number in range(4):
        arrive(machine, wire.part(b"%032x" % number, 0, 2, b"hi"))
    assert bodies(machine) == [b"hi", b"hi"]
    assert machine.statistics.dropped == {"remembered_full": 2}
    assert arrive(machine, wire.part(b"%032x" % 0, 0, 2, b"hi")) == [(wire.CONFIRM, 2)]


def test_without_a_slot_the_last_missing_part_leaves_no_mark() -> None:
    machine = RupMachine(RupOptions(open_receipts_max=1), Seeded(1))
    arrive(machine, wire.part(b"e" * 32, 0, 2, b"hi"))
    (first,) = [event for event in machine.events() if isinstance(event, MessageReceived)]
    arrive(machine, part(0), part(1), part(2))
    assert arrive(machine, part(3)) == [(wire.CONFIRM, 30)]
    assert machine.statistics.dropped == {"receipts_full": 1}
    machine.commit(first.receipt, 1)
    assert arrive(machine, part(3)) == [(wire.CONFIRM, 40)]
    assert bodies(machine) == [WHOLE]


def test_a_message_above_the_bound_of_open_receipts_is_delivered_when_no_other_is_open() -> None:
    machine = RupMachine(RupOptions(open_receipt_bytes_max=10), Seeded(1))
    for index in range(4):
        arrive(machine, part(index))
    assert bodies(machine) == [WHOLE]
    assert arrive(machine, wire.part(b"e" * 32, 0, 2, b"hi")) == []
    assert machine.statistics.dropped == {"receipts_full": 1}
    machine.commit(Receipt(Peer(A), ID.decode()), 1)
    assert arrive(machine, wire.part(b"e" * 32, 0, 2, b"hi")) == [(wire.CONFIRM, 2)]


def test_the_bounds_of_memory_follow_the_largest_message_unless_they_are_set() -> None:
    usual, large = RupOptions(), RupOptions(message_bytes_max=1 << 30)
    assert (usual.incoming_bytes_max, usual.incoming_bytes_per_peer_max) == (256 << 20, 128 << 20)
    assert (large.incoming_bytes_max, large.incoming_bytes_per_peer_max) == (4 << 30, 2 << 30)
    assert RupOptions(message_bytes_max=1 << 30, incoming_bytes_max=1 << 20).incoming_bytes_max == 1 << 20


def test_a_part_that_does_not_complete_needs_no_slot() -> None:
    machine = RupMachine(RupOptions(open_receipts_max=1), Seeded(1))
    arrive(machine, wire.part(b"e" * 32, 0, 2, b"hi"))
    arrive(machine, wire.part(ID, 10, 40, bytes(30)))
    assert arrive(machine, part(0)) == [(wire.CONFIRM, 10)]
    assert machine.statistics.dropped == {"off_grid": 1}


def test_holes_are_bounded() -> None:
    machine = RupMachine(RupOptions(gaps_max=2), Seeded(1))
    arrive(machine, *[part(index, of=20) for index in (0, 2, 4, 6, 8)])
    assert machine.statistics.dropped == {"too_many_gaps": 2}
    arrive(machine, *[part(index, of=20) for index in (5, 1, 3)])
    assert machine.statistics.dropped == {"too_many_gaps": 2}


def test_a_spooled_message_is_handed_over_in_parts_and_ended_by_an_empty_one() -> None:
    machine = RupMachine(RupOptions(spool_above_bytes=39, incoming_bytes_max=200, deferred=True), Seeded(1))
    arrive(machine, part(3), part(1), part(0), part(2))
    events = machine.events()
    parts = {event.offset: event.body for event in events if isinstance(event, PartReceived)}
    assert b"".join(body for _, body in sorted(parts.items())) == WHOLE
    assert events[-1] == MessageReceived(Peer(A), ID.decode(), b"")
    machine.commit(Receipt(Peer(A), ID.decode()), 1)
    assert arrive(machine) == [(wire.CONFIRM, 40)]


def test_a_message_at_the_size_of_the_spool_is_kept() -> None:
    machine = RupMachine(RupOptions(spool_above_bytes=40), Seeded(1))
    arrive(machine, *[part(index) for index in range(4)])
    assert bodies(machine) == [WHOLE]


# Conversations.


def test_a_caller_is_forgotten_when_idle_and_not_while_something_is_open() -> None:
    machine = RupMachine(RupOptions(), Seeded(1))
    arrive(machine, wire.part(ID, 0, 2, b"hi"))
    assert machine.events()[0] == Connected(Peer(A), None)
    machine.wake(60 * SECOND)
    assert machine.events() == []
    machine.commit(Receipt(Peer(A), ID.decode()), 61 * SECOND)
    machine.wake(121 * SECOND)
    assert machine.events() == [Closed(Peer(A), CloseReason.FORGOTTEN)]
    assert machine.next_deadline_us() is None


def test_a_named_peer_stays() -> None:
    machine = caller_of_b()
    machine.wake(10_000 * SECOND)
    assert machine.events() == []
    assert machine.send(Peer(B), b"hello", 10_000 * SECOND)


def test_shutting_down_flushes_then_closes_the_door_and_still_answers_copies() -> None:
    world = wired()
    tokens = world.send(A, b"hello")
    sender, receiver = world.machines[A], world.machines[B]
    sender.close(None, world.now_us)
    world.run(SECOND)
    assert world.nodes[A].events[-2:] == [Delivered(Peer(B), tuple(tokens)), Closed(Peer(B), CloseReason.SHUT_DOWN)]
    with pytest.raises(CannotConnect):
        sender.connect(B, world.now_us)
    receiver.close(None, world.now_us)
    assert arrive(receiver, wire.part(ID, 0, 2, b"hi"), now_us=world.now_us) == []
    assert arrive(receiver, *world.sent(A), now_us=world.now_us) == [(wire.CONFIRM, 5)]


# Restart.


def test_a_message_half_received_before_a_crash_is_asked_for_from_its_beginning() -> None:
    world = wired(RupOptions(controller="eager", window=20))
    tokens = world.send(A, body_of(100))
    world.run(12_000)
    assert world.of(A, Delivered) == []
    world.add(B, 3)
    world.run(20 * SECOND)
    assert world.bodies(B) == [body_of(100)]
    assert world.of(A, Delivered) == [Delivered(Peer(B), tuple(tokens))]


# The map of parts.


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 6)), max_size=30), st.integers(0, 45))
def test_the_map_of_parts_agrees_with_a_plain_set(runs: list[tuple[int, int]], asked: int) -> None:
    parts, known = Parts(), dict.fromkeys(range(0))
    for now_us, (first, count) in enumerate(runs):
        if any(index in known for index in range(first, first + count)):
            continue
        gaps = parts.gaps
        makes = parts.makes_gap(first) if count == 1 else None
        parts.add(first, count, now_us)
        known |= dict.fromkeys(range(first, first + count))
        assert makes is None or makes == (parts.gaps > gaps)
    missing = [index for index in range(60) if index not in known]
    top = max(known, default=-1) + 1
    assert (parts.mark, parts.top, parts.count) == (missing[0], top, len(known))
    assert [index in parts for index in range(60)] == [index in known for index in range(60)]
    gap = parts.gap_from(asked, 3)
    below = [index for index in missing if asked <= index < top]
    if not below:
        assert gap is None
    else:
        assert gap is not None
        assert gap.first == below[0]
        assert all(index in below for index in range(gap.first, gap.end))
        assert gap.end in known
        assert gap.later == min(3, sum(index > gap.first for index in known))
