"""The rup machine, clause by clause, with two machines and a wire that loses what a test says."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.core.errors import (
    BadAddress,
    CannotConnect,
    DamagedSnapshot,
)
from fairway.core.events import (
    Address,
    Closed,
    CloseReason,
    Connected,
    Delivered,
    DeliveryUnknown,
    Event,
    MessageReceived,
    PartReceived,
    Peer,
    Receipt,
    Refused,
)
from fairway.core.machine import Transmit, settle, split
from fairway.core.random_source import Seeded
from fairway.protocols.rup import wire
from fairway.protocols.rup.incoming import PART_OVERHEAD_BYTES
from fairway.protocols.rup.machine import RupMachine
from fairway.protocols.rup.options import RupOptions
from fairway.protocols.rup.parts import Parts
from fairway.protocols.rup.sender import UNANSWERED_PARTS

ID = b"0123456789abcdef0123456789abcdef"
SECOND = 1_000_000
A, B = ("a", 1), ("b", 2)


class Wire:
    """Two machines, `a` and `b`, `delay_us` apart. `loses` says what is lost; `b` commits unless told not to."""

    def __init__(self, sender: RupOptions | None = None, receiver: RupOptions | None = None) -> None:
        self.now_us = 0
        self.a = RupMachine(sender or RupOptions(), Seeded(1))
        self.b = RupMachine(receiver or RupOptions(), Seeded(2))
        self.machines: dict[Address, RupMachine] = {A: self.a, B: self.b}
        self.events: dict[Address, list[Event]] = {A: [], B: []}
        self.sent: list[tuple[int, Address, bytes]] = []
        self.loses: Callable[[Address, bytes], bool] = lambda source, data: False
        self.commits = True
        self.delay_us = 5_000
        self._flying: list[tuple[int, int, Address, Address, bytes]] = []
        self.a.connect(B, 0)
        self.settle(A)

    def settle(self, name: Address) -> None:
        """Does what an input has caused."""
        settle(self.machines[name], lambda t: self._transmit(name, t), lambda e: self._report(name, e), lambda _: None)

    def _transmit(self, source: Address, transmits: list[Transmit]) -> None:
        for transmit in transmits:
            self._transmit_one(source, transmit)

    def _transmit_one(self, source: Address, transmit: Transmit) -> None:
        for one in split(transmit.data, transmit.segment_bytes or len(transmit.data)):
            data = bytes(one)
            self.sent.append((self.now_us, source, data))
            if not self.loses(source, data):
                heappush(self._flying, (self.now_us + self.delay_us, len(self.sent), transmit.address, source, data))

    def _report(self, name: Address, event: Event) -> None:
        self.events[name].append(event)
        if isinstance(event, MessageReceived) and self.commits:
            self.machines[name].commit(event.receipt, self.now_us)

    def send(self, *bodies: bytes) -> list[int]:
        """Sends messages from a to b."""
        tokens = [self.a.send(Peer(B), body, self.now_us) for body in bodies]
        self.settle(A)
        return tokens

    def run(self, duration_us: int) -> None:
        """Lets time pass."""
        end_us = self.now_us + duration_us
        for _ in range(200_000):
            times = [due for machine in self.machines.values() if (due := machine.next_deadline_us()) is not None]
            times += [self._flying[0][0]] if self._flying else []
            if not times or min(times) > end_us:
                self.now_us = end_us
                return
            self.now_us = max(self.now_us, min(times))
            for name, machine in self.machines.items():
                if (due := machine.next_deadline_us()) is not None and due <= self.now_us:
                    machine.wake(self.now_us)
                    self.settle(name)
            while self._flying and self._flying[0][0] <= self.now_us:
                _, _, target, source, data = heappop(self._flying)
                self.machines[target].receive(data, source, self.now_us)
                self.settle(target)
        raise AssertionError("the machines keep themselves busy")

    def received(self) -> list[bytes]:
        return [event.body for event in self.events[B] if isinstance(event, MessageReceived)]

    def delivered(self) -> list[int]:
        return [token for event in self.events[A] if isinstance(event, Delivered) for token in event.tokens]

    def unknown(self) -> list[int]:
        return [token for event in self.events[A] if isinstance(event, DeliveryUnknown) for token in event.tokens]

    def datagrams(self, source: Address, letter: bytes) -> list[tuple[int, int]]:
        """Times and positions of the datagrams of one kind from one side."""
        chosen = [(sent_us, data) for sent_us, name, data in self.sent if name == source and data[:1] == letter]
        return [(sent_us, wire.header(data).position) for sent_us, data in chosen]


def body_of(parts: int, rest: int = 0) -> bytes:
    return bytes(place % 253 for place in range(parts * 1_158 + rest))


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
    link = Wire(RupOptions(controller="eager"), RupOptions(requests_open_max=64))
    link.loses = lambda source, data: link.now_us == 0 and 1_158 <= wire.header(data).position < 150 * 1_158
    link.send(body_of(160))
    link.run(5_000)
    positions = [position for _, position in link.datagrams(B, b"r")]
    assert positions == [index * 1_158 for index in range(1, 65)]
    link.run(SECOND)
    assert link.received() == [body_of(160)]


# The sender.


def test_several_messages_share_one_window_and_take_turns() -> None:
    link = Wire(RupOptions(controller="eager", window=100))
    tokens = link.send(body_of(150), body_of(1))
    assert len(link.datagrams(A, b"d")) == UNANSWERED_PARTS + 1
    link.run(SECOND)
    assert link.delivered() == [tokens[1], tokens[0]]
    assert sorted(link.received()) == sorted([body_of(150), body_of(1)])


def test_messages_beyond_those_under_way_wait() -> None:
    link = Wire(RupOptions(messages_under_way_max=2))
    link.send(b"one", b"two", b"three")
    assert len(link.datagrams(A, b"d")) == 2
    link.run(SECOND)
    assert len(link.received()) == 3


def test_a_body_that_changes_after_the_send_is_sent_as_it_was() -> None:
    link = Wire(RupOptions(window=1))
    body = bytearray(body_of(3))
    link.send(body)  # type: ignore[arg-type]
    body[:] = bytes(len(body))
    link.run(SECOND)
    assert link.received() == [body_of(3)]


@pytest.mark.parametrize("parts", [1, 3, 4, 254, 255, 256])
def test_bodies_are_exact_around_the_digits_of_the_wire(parts: int) -> None:
    link = Wire(RupOptions(controller="eager", part_bytes=255))
    bodies = [bytes(range(255)) * parts + bytes(rest) for rest in (0, 1, 254)]
    link.send(*bodies)
    link.run(SECOND)
    assert sorted(link.received()) == sorted(bodies)


def caller_of_b(**options: int) -> RupMachine:
    """A machine that has named B."""
    machine = RupMachine(RupOptions(**options), Seeded(1))  # type: ignore[arg-type]
    machine.connect(B, 0)
    machine.events()
    return machine


# Unproved addresses.


def test_an_answer_larger_than_three_times_the_call_shrinks_its_first_part_and_arrives() -> None:
    link = Wire()
    link.send(b"hello")
    link.run(SECOND)
    answer = body_of(20)
    token = link.b.send(Peer(A), answer, link.now_us)
    link.settle(B)
    before = sum(len(data) for _, source, data in link.sent if source == B)
    assert before <= 3 * (42 + 5)
    link.run(SECOND)
    assert [event.body for event in link.events[A] if isinstance(event, MessageReceived)] == [answer]
    assert Delivered(Peer(A), (token,)) in link.events[B]


def test_what_the_limit_never_lets_out_is_refused_and_what_it_let_out_in_part_is_unknown() -> None:
    link = Wire()
    link.send(b"")
    link.run(SECOND)
    link.loses = lambda source, data: True
    tokens = link.b.send_many(Peer(A), [bytes(500), bytes(600)], link.now_us)
    link.settle(B)
    assert link.b.statistics.amplification_withheld == 1
    link.run(11 * SECOND)
    unknown = [token for event in link.events[B] if isinstance(event, DeliveryUnknown) for token in event.tokens]
    refused = [token for event in link.events[B] if isinstance(event, Refused) for token in event.tokens]
    assert (unknown, refused) == ([tokens[0]], [tokens[1]])
    assert link.b.unfinished() == 0


def test_an_address_is_unproved_again_once_its_conversation_is_closed() -> None:
    machine = caller_of_b()
    machine.close(Peer(B), 0)
    arrive(machine, wire.part(ID, 0, 0, b""), address=B)
    machine.send(Peer(B), bytes(1_000), 1)
    assert sum(len(transmit.data) for transmit in machine.transmits()) <= 3 * 42


# The receiver.


def arrive(machine: RupMachine, *parts: bytes, now_us: int = 0, address: Address = A) -> list[tuple[int, int]]:
    """Feeds datagrams and gives kind and position of what is answered."""
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


def test_without_a_place_the_last_missing_part_leaves_no_mark() -> None:
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


def test_a_part_that_does_not_complete_needs_no_place() -> None:
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
    link = Wire()
    tokens = link.send(b"hello")
    link.a.close(None, link.now_us)
    link.run(SECOND)
    assert link.events[A][-2:] == [Delivered(Peer(B), tuple(tokens)), Closed(Peer(B), CloseReason.SHUT_DOWN)]
    with pytest.raises(CannotConnect):
        link.a.connect(B, link.now_us)
    link.b.close(None, link.now_us)
    assert arrive(link.b, wire.part(ID, 0, 2, b"hi")) == []
    (copy,) = [data for _, source, data in link.sent if source == A]
    assert arrive(link.b, copy, now_us=link.now_us) == [(wire.CONFIRM, 5)]


def test_a_closed_conversation_leaves_uncommitted_messages_unconfirmed_and_undelivered() -> None:
    machine = RupMachine(RupOptions(deferred=True), Seeded(1))
    arrive(machine, wire.part(ID, 0, 2, b"hi"))
    machine.events()
    machine.close(Peer(A), 1)
    machine.commit(Receipt(Peer(A), ID.decode()), 2)
    assert arrive(machine, wire.part(ID, 0, 2, b"hi"), now_us=3) == []
    assert machine.events() == [Closed(Peer(A), CloseReason.LOCAL)]
    assert machine.statistics.duplicates == 1
    restarted = RupMachine(RupOptions(deferred=True), Seeded(1))
    restarted.restore(machine.snapshot(Peer(A)), 4)
    arrive(restarted, wire.part(ID, 0, 2, b"hi"), now_us=5)
    assert bodies(restarted) == [b"hi"]


# Restart.


def test_a_message_half_received_before_a_crash_is_asked_for_from_its_beginning() -> None:
    link = Wire(RupOptions(controller="eager", window=20))
    link.send(body_of(100))
    link.run(12_000)
    assert link.a.statistics.messages_delivered == 0
    link.b = link.machines[B] = RupMachine(RupOptions(), Seeded(3))
    link.run(20 * SECOND)
    assert link.received() == [body_of(100)]
    assert link.delivered() == [2]


def test_a_damaged_snapshot_is_refused_in_a_sentence() -> None:
    machine = RupMachine(RupOptions(), Seeded(1))
    arrive(machine, wire.part(ID, 0, 2, b"hi"))
    snapshot = machine.snapshot(Peer(A))
    for length in range(len(snapshot)):
        with pytest.raises(DamagedSnapshot, match="is damaged"):
            RupMachine(RupOptions(), Seeded(1)).restore(snapshot[:length], 0)
    machine.connect(frozenset(), 0)
    with pytest.raises(BadAddress):
        machine.snapshot(Peer(frozenset()))


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
