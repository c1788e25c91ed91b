"""The nouns of mrp on their own: ids, receipt slots, receiver, the limit on started sequences."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.core.events import Peer, Receipt
from fairway.core.random_source import Seeded
from fairway.protocols.mrp import wire
from fairway.protocols.mrp.handshake import draw_id
from fairway.protocols.mrp.options import MrpOptions
from fairway.protocols.mrp.receiver import BEYOND, DUPLICATE, FULL, HELD_DUPLICATE, NEVER_SENT, NEW, KeptSlots, Receiver
from fairway.protocols.mrp.sender import Starts


@settings(max_examples=200)
@given(st.integers(0, 2**32), st.integers(1, 0xFFFFFF), st.integers(1, 0xFFFF), st.integers(0, 0xFFFF))
def test_no_datagram_fits_a_stamped_and_a_piggyback_connection(seed: int, theirs: int, short: int, stamp: int) -> None:
    """Make the ids of the peers as awkward as they can be: those that make both readings meet."""
    random = Seeded(seed)
    stamped, piggyback = (draw_id(layout, random, lambda number: False) for layout in ("stamped", "piggyback"))
    assert stamped
    assert piggyback
    remote = (piggyback & 0xFF) << 16 | theirs & 0xFFFF or 1
    data = wire.stamped_prefix(wire.TYPE_DATA, stamped, remote) + wire.pair(short, stamp)
    from_conid, dest_conid = wire.pair_at(data, wire.HEAD_BYTES)
    assert (dest_conid, from_conid) != (piggyback, stamped >> 8)
    assert dest_conid != piggyback


def test_ids_are_not_zero_not_taken_and_end() -> None:
    class Stuck:
        def bits(self, count: int) -> int:
            return 0

        def below(self, bound: int) -> int:
            return 0

    taken = {1, 2, 3}
    assert draw_id("piggyback", Stuck(), taken.__contains__) not in {0, *taken}
    assert draw_id("stamped", Stuck(), lambda number: number == 0x80) not in {0, 0x80}
    assert draw_id("piggyback", Stuck(), lambda number: True) is None


def test_every_free_id_is_found() -> None:
    taken = set(range(1, 32_768)) - {20_000}
    assert draw_id("piggyback", Seeded(4), taken.__contains__) == 20_000


def slots(messages: int, size: int) -> KeptSlots:
    return KeptSlots(MrpOptions(open_receipts_max=messages, open_receipt_bytes_max=size))


def receiver(window: int = 8, *, deferred: bool = False, messages_max: int = 100, first: int = 1) -> Receiver:
    return Receiver(first, window, deferred, slots(messages_max, 1 << 20))


@pytest.mark.parametrize(
    ("next_number", "sequence", "number"),
    [
        (1, 1, 1),
        (1, 0, 0),
        (1, 65_535, 65_535),
        (65_535, 0, 65_536),
        (65_536, 65_535, 65_535),
        (65_540, 32_771, 98_307),
        (65_540, 32_772, 32_772),
    ],
)
def test_a_sequence_is_the_nearest_number(next_number: int, sequence: int, number: int) -> None:
    assert receiver(first=next_number).widen(sequence) == number


def test_messages_ahead_wait_for_the_gap_and_leave_in_order() -> None:
    some = receiver()
    assert some.take(3, b"c") == some.take(2, b"b") == []
    assert [some.judge(number, 1) for number in (0, 1, 2, 3, 4, 8, 9)] == [
        *(NEVER_SENT, NEW, DUPLICATE, DUPLICATE, NEW, NEW, BEYOND)
    ]
    assert some.take(1, b"a") == [(1, b"a"), (2, b"b"), (3, b"c")]
    assert some.next == 4
    assert some.judge(1, 1) == DUPLICATE


def test_kept_messages_leave_the_last_slot_to_the_one_that_fills_the_gap() -> None:
    some = receiver(messages_max=2)
    assert some.judge(3, 1) == NEW
    some.take(3, b"c")
    assert some.judge(2, 1) == FULL
    assert some.judge(1, 1) == NEW
    some.take(1, b"a")
    assert some.judge(2, 1) == FULL
    some.commit(1, 1)
    assert [number for number, _ in some.take(2, b"b")] == [2, 3]


def test_a_peer_that_never_fills_its_gap_leaves_half_of_the_slots_to_others() -> None:
    shared = slots(100, 1 << 20)
    odd, honest = (Receiver(1, 1_000, False, shared) for _ in range(2))
    kept = 0
    while odd.judge(kept + 2, 10) == NEW:
        odd.take(kept + 2, bytes(10))
        kept += 1
    assert kept == 50
    assert honest.fits_run(1, 50, 10)


def test_kept_bytes_leave_room_for_the_largest_message() -> None:
    some = Receiver(1, 8, False, slots(100, 65_507 + 10))
    assert some.judge(2, 11) == FULL
    assert some.judge(2, 10) == NEW
    some.take(2, bytes(10))
    assert some.judge(1, 65_493) == NEW


def test_the_end_of_a_connection_frees_every_slot() -> None:
    for deferred in (False, True):
        shared, unused = slots(100, 1 << 20), slots(100, 1 << 20)
        some = Receiver(1, 8, deferred, shared)
        some.take_run(3, 10, bytes(42) if deferred else b"")
        if deferred:
            some.offer(5, 7, bytes(14))
        else:
            some.take(5, bytes(7))
        assert (shared.messages_left, shared.bytes_left) == (96, (1 << 20) - 37)
        some.release()
        assert (shared.messages_left, shared.bytes_left) == (100, 1 << 20)
        assert shared.fit_kept(1 << 19) == unused.fit_kept(1 << 19) is True


def test_deferred_the_floor_passes_what_is_committed_in_any_order() -> None:
    some = receiver(16, deferred=True)
    some.take_run(4, 1, b"".join(bytes([n]) * 14 for n in range(4)))
    some.offer(5, 1, b"5" * 14)
    assert [piece.note for piece in some.commit(5, 1)] == [b"5" * 14]
    assert some.committed_to == 1
    assert [piece.note for piece in some.commit(2, 2)] == [b"\x01" * 14 + b"\x02" * 14]
    assert [some.judge(number, 1) for number in (1, 2, 3, 4, 5)] == [
        HELD_DUPLICATE,
        DUPLICATE,
        DUPLICATE,
        HELD_DUPLICATE,
        DUPLICATE,
    ]
    some.commit(1, 1)
    assert some.committed_to == 4
    assert [piece.note for piece in some.commit(1, 1_000_000)] == [b"\x03" * 14]
    assert some.committed_to == some.next == 6
    assert some.commit(1, 1_000_000) == []


@given(st.lists(st.tuples(st.integers(1, 24), st.booleans()), max_size=80))
def test_a_snapshot_holds_exactly_what_is_committed(steps: list[tuple[int, bool]]) -> None:
    some, committed, handed_over = receiver(16, deferred=True), set(), set()
    for number, arrives in steps:
        if arrives and some.judge(number, 1) == NEW:
            some.offer(number, 1, bytes(14))
            handed_over.add(number)
        elif not arrives:
            committed |= {number} if some.commit(number, 1) else set()
        assert committed <= handed_over
        floor, beyond = some.survives([])
        assert {*range(1, floor), *beyond} == committed
        assert floor not in committed
    everything = [Receipt(Peer("p"), number) for number in sorted(handed_over)]
    floor, beyond = some.survives(everything)
    assert {*range(1, floor), *beyond} == handed_over


INTERVAL_US = 100_000


def test_a_longer_interval_looks_further_back() -> None:
    starts = Starts(100, 1_000_000)
    starts.started(60, INTERVAL_US, 0)
    starts.started(30, INTERVAL_US, 200_000)
    assert starts.room(INTERVAL_US, 250_000) == 70
    assert starts.room(300_000, 250_000) == 10


def test_a_slot_counts_until_its_last_start_has_left_the_interval() -> None:
    starts = Starts(100, INTERVAL_US)
    starts.started(60, INTERVAL_US, 0)
    starts.started(40, INTERVAL_US, 3_000)
    assert starts.room(INTERVAL_US, 102_999) == 0
    assert starts.next_room_us(INTERVAL_US, 102_999) == 103_000
    assert starts.room(INTERVAL_US, 103_000) == 100


@given(st.lists(st.tuples(st.integers(0, 9_000), st.integers(1, 40)), max_size=120))
def test_whatever_is_asked_any_interval_holds_no_more_than_allowed(asked: list[tuple[int, int]]) -> None:
    starts, now_us, log = Starts(100, INTERVAL_US), 0, []
    for pause_us, wanted in asked:
        now_us += pause_us
        count = min(wanted, max(0, starts.room(INTERVAL_US, now_us)))
        if count:
            starts.started(count, INTERVAL_US, now_us)
            log.append((now_us, count))
        assert sum(started for at_us, started in log if at_us > now_us - INTERVAL_US) <= 100
