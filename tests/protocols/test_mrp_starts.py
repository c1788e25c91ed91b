"""The limit on started sequences."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairway.protocols.mrp.sender import Starts

INTERVAL_US = 100_000


def test_no_more_than_half_a_turn_starts_within_an_interval() -> None:
    starts = Starts(32_768, INTERVAL_US)
    starts.started(32_768, INTERVAL_US, 0)
    assert starts.room(INTERVAL_US, 99_999) == 0
    assert starts.next_room_us(INTERVAL_US, 99_999) == INTERVAL_US
    assert starts.room(INTERVAL_US, INTERVAL_US) == 32_768


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
