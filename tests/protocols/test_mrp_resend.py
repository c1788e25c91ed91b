"""The adaptive resend, number by number, and the limit on started sequences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.protocols.mrp.resend import WHOLE, Resend
from fairway.protocols.mrp.starts import Starts


def fresh() -> Resend:
    return Resend(initial_us=50_000, min_us=10_000, max_us=3_000_000)


def pinged(ping_us: int) -> Resend:
    resend = fresh()
    resend.sample(0, ping_us)
    return resend


def test_before_the_first_ping_the_delay_is_fifty_milliseconds() -> None:
    assert fresh().delay_us == 50_000
    assert [fresh().delay_after_us(count) for count in (1, 2, 3, 6, 7, 8, 100)] == [
        *(50_000, 100_000, 200_000, 1_600_000, 3_000_000, 3_000_000, 3_000_000)
    ]


@pytest.mark.parametrize(
    ("ping_us", "delay_us"),
    [(40_000, 60_000), (33_333, 49_999), (1_000, 10_000), (6_667, 10_000), (2_000_001, 3_000_000)],
)
def test_without_loss_the_delay_is_one_and_a_half_pings_within_its_bounds(ping_us: int, delay_us: int) -> None:
    assert pinged(ping_us).delay_us == delay_us


def test_the_ping_is_smoothed_by_an_eighth() -> None:
    resend = pinged(40_000)
    resend.sample(1, 80_001)
    assert resend.ping_us == 45_000
    resend.sample(2, 2 + 45_009)
    assert resend.ping_us == 45_001


def test_what_left_in_one_instant_gives_one_sample() -> None:
    resend = pinged(40_000)
    resend.sample(100_000, 180_000)
    for later_us in (190_000, 290_000):
        resend.sample(100_000, later_us)
    assert resend.ping_us == 45_000


def test_loss_moves_by_a_sixteenth() -> None:
    resend = fresh()
    found = []
    for lost in (True, True, False, True, False, False):
        if lost:
            resend.lost(1)
        else:
            resend.arrived(1)
        found.append(resend.loss)
    assert found == [4_096, 7_936, 7_440, 11_071, 10_379, 9_730]


def test_the_delay_shrinks_with_loss_down_to_half() -> None:
    resend = pinged(40_000)
    resend.lost(1)
    assert resend.delay_us == 3 * 40_000 * 65_536 // (2 * 69_632) == 56_470
    resend.lost(1_000)
    assert WHOLE - resend.loss < 16
    assert resend.delay_us == 30_003
    resend.arrived(1_000)
    assert resend.loss == 0
    assert resend.delay_us == 60_000


def test_many_arrivals_at_once_count_as_many_single_ones() -> None:
    at_once, singly = fresh(), fresh()
    at_once.lost(7)
    singly.lost(7)
    at_once.arrived(23)
    for _ in range(23):
        singly.arrived(1)
    assert at_once.loss == singly.loss > 0


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
