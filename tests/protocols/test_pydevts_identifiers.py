"""Ids of a sender, and the numbers that a receiver makes of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairway.protocols.pydevts.identifiers import BLOCK, IDS, Identifiers, RecentUses, Taken
from fairway.protocols.pydevts.receiver import GAPS_MAX, Widener

SECOND = 1_000_000
REST_US = 120 * SECOND


def identifiers(first: int = 0, uses_max: int = 1 << 20) -> Identifiers:
    return Identifiers(first, RecentUses(REST_US, uses_max), 1, REST_US)


def ids(taken: list[Taken]) -> list[int]:
    return [key >> 32 for _, keys in taken for key in keys]


def test_ids_count_up_and_cross_the_end_in_one_run() -> None:
    taken = identifiers(IDS - 3).take([9] * 6, {}, 0)
    assert len(taken) == 1
    assert ids(taken) == [65533, 65534, 65535, 0, 1, 2]
    assert taken[0].number == IDS - 3


def test_open_ids_are_skipped() -> None:
    taken = identifiers(5).take([9] * 4, {6: 0, 7: 0}, 0)
    assert ids(taken) == [5, 8, 9, 10]
    assert [one.number for one in taken] == [5, 8]


def test_the_same_crc_waits_until_its_ids_have_rested() -> None:
    source = identifiers()
    assert len(ids(source.take([7] * IDS, {}, 0))) == IDS
    assert source.take([7], {}, REST_US - 1) == []
    assert ids(source.take([7], {}, REST_US)) == [0]


def test_another_crc_may_use_the_ids_at_once() -> None:
    source = identifiers()
    source.take([7] * IDS, {}, 0)
    assert ids(source.take([8] * 3, {}, 0)) == [0, 1, 2]
    assert source.take([7], {}, 1) == []


def test_only_the_id_that_was_used_with_this_crc_is_skipped() -> None:
    source = identifiers()
    source.take([7], {}, 0)
    source.take(list(range(1000, 1000 + IDS - 1)), {}, 0)
    assert ids(source.take([7], {}, 0)) == [1]
    assert ids(source.take([8], {}, 0)) == [2]


def test_two_peers_do_not_take_ids_from_each_other() -> None:
    recent = RecentUses(REST_US, 1 << 20)
    one, other = Identifiers(0, recent, 1, REST_US), Identifiers(0, recent, 2, REST_US)
    one.take([7] * IDS, {}, 0)
    other.take([8] * IDS, {}, 0)
    assert len(ids(other.take([7] * IDS, {}, 0))) == IDS


def test_without_room_to_remember_a_whole_block_counts_as_used() -> None:
    source = identifiers(uses_max=IDS - BLOCK)
    source.take(list(range(IDS)), {}, 0)
    assert ids(source.take([1_000_000], {}, 0)) == [0]
    source.next = IDS - BLOCK
    assert ids(source.take([1_000_001], {}, 1)) == [BLOCK]
    source.next = IDS - BLOCK
    assert ids(source.take([1_000_002], {}, REST_US)) == [IDS - BLOCK]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 400), st.integers(0, 40 * SECOND)), max_size=12))
def test_no_id_is_used_twice_with_one_crc_within_the_rest(steps: list[tuple[int, int, int]]) -> None:
    source = Identifiers(0, RecentUses(REST_US, 700), 1, REST_US)
    used: dict[int, int] = {}
    now_us = 0
    for crc, count, pause_us in steps:
        now_us += pause_us
        source.next = source.next + IDS - source.next % IDS  # back to id 0, a turn later
        for _, keys in source.take([crc] * count, {}, now_us):
            for key in keys:
                assert key not in used or now_us - used[key] >= REST_US
                used[key] = now_us


def test_numbers_follow_the_ids_across_the_end() -> None:
    widener = Widener()
    assert [widener.take(number & 0xFFFF) for number in range(65_530, 65_545)] == list(range(65_530, 65_545))


def test_a_late_id_fills_its_gap_and_a_used_one_moves_on_by_a_turn() -> None:
    widener = Widener()
    assert [widener.take(number) for number in (100, 105, 103, 99)] == [100, 105, 103, 99]
    assert widener.take(103) == 103 + IDS
    assert widener.take(104) == 104 + IDS
    assert widener.take(105) == 105 + IDS


def test_a_released_number_is_given_again() -> None:
    widener = Widener()
    for number in range(10):
        widener.take(number)
    for number in (3, 4, 9):
        widener.release(number)
    assert [widener.take(number) for number in (4, 9, 3)] == [4, 9, 3]
    assert widener.take(4) == 4 + IDS


@given(st.lists(st.integers(0, 0xFFFF), max_size=300))
def test_no_number_is_given_twice_and_each_ends_in_its_id(wire_ids: list[int]) -> None:
    widener = Widener()
    numbers = [widener.take(wire_id) for wire_id in wire_ids]
    assert len(set(numbers)) == len(numbers)
    assert [number & 0xFFFF for number in numbers] == wire_ids


def test_gaps_are_bounded_and_still_no_number_is_given_twice() -> None:
    widener = Widener()
    wire_ids = [number * 3 % IDS for number in range(3 * GAPS_MAX)] + list(range(2_000))
    numbers = [widener.take(wire_id) for wire_id in wire_ids]
    assert len(widener.gaps) <= GAPS_MAX
    assert len(set(numbers)) == len(numbers)
