"""The two controllers, driven by a plain pipe with a round-trip time and a bottleneck."""

from __future__ import annotations

from fairway.core.recovery.congestion import INITIAL_PACKETS, MIN_PACKETS, Controller, NewReno, make_controller


def test_eager_keeps_its_window_whatever_is_lost() -> None:
    eager = make_controller("eager", 32)
    assert type(eager) is Controller
    assert not eager.lost(0, 1)
    eager.timed_out(0, 1)
    eager.undo()
    assert eager.room(10, 0) == 22
    assert eager.room(40, 0) == 0
    assert eager.next_room_us(10, 0) is None


def test_fair_starts_small_doubles_and_never_passes_its_window() -> None:
    newreno = NewReno(100)
    assert newreno.room(0, 0) == INITIAL_PACKETS
    for trip in range(1, 10):
        newreno.acknowledged(newreno.window, newreno.window, 1_000, trip * 1_000)
    assert newreno.window == 100


def test_fair_halves_once_per_round_trip_however_many_were_lost() -> None:
    newreno = NewReno(1_000)
    for trip in range(1, 8):
        newreno.acknowledged(newreno.window, newreno.window, 1_000, trip * 1_000)
    before = newreno.window
    newreno.lost(sent_us=7_500, now_us=8_000)
    newreno.lost(sent_us=7_900, now_us=8_100)
    assert newreno.window == before // 2
    newreno.lost(sent_us=8_500, now_us=9_500)
    assert newreno.window == before // 4


def test_fair_says_which_loss_cut_the_window_and_takes_that_cut_back() -> None:
    newreno = NewReno(10_000)
    for trip in range(1, 8):
        newreno.acknowledged(newreno.window, newreno.window, 1_000, trip * 1_000)
    before = newreno.window
    assert newreno.lost(sent_us=7_500, now_us=8_000)
    assert not newreno.lost(sent_us=7_900, now_us=8_100)
    newreno.undo()
    assert newreno.window == before
    newreno.acknowledged(10, newreno.window, 1_000, 9_000)
    assert newreno.window == before + 10, "the threshold is back too"


def test_a_time_out_judges_the_path_anew_but_not_by_what_left_before_the_first_sample() -> None:
    newreno = NewReno(1_000)
    newreno.acknowledged(10, 10, 1_000, 1_000)
    newreno.timed_out(sent_us=500, now_us=5_000)
    assert newreno.window == 2 * INITIAL_PACKETS
    newreno.timed_out(sent_us=1_500, now_us=5_000)
    assert newreno.window == MIN_PACKETS
    newreno.acknowledged(8, 2, 1_000, 6_000)
    assert newreno.window == INITIAL_PACKETS, "it doubles up to half of what it was"


def test_fair_adds_about_one_packet_per_round_trip_after_a_loss() -> None:
    newreno = NewReno(1_000)
    for trip in range(1, 5):
        newreno.acknowledged(newreno.window, newreno.window, 1_000, trip * 1_000)
    newreno.lost(sent_us=5_000, now_us=6_000)
    before = newreno.window
    for trip in range(10):
        for _ in range(newreno.window):
            newreno.acknowledged(1, newreno.window, 1_000, 7_000 + trip * 1_000)
    assert before + 8 <= newreno.window <= before + 11


def test_fair_does_not_grow_while_the_window_is_not_used() -> None:
    newreno = NewReno(1_000)
    for trip in range(50):
        newreno.acknowledged(1, 1, 1_000, trip * 1_000)
    assert newreno.window == INITIAL_PACKETS


def test_pacing_spreads_a_window_over_the_round_trip() -> None:
    newreno = NewReno(100)
    for trip in range(1, 8):
        newreno.acknowledged(newreno.window, newreno.window, 100_000, trip * 100_000)
    now_us, in_flight, largest = 1_000_000, 0, 0
    sent_at_us: list[int] = []
    while in_flight < 100:
        room = newreno.room(in_flight, now_us)
        largest = max(largest, room)
        newreno.sent(room, in_flight, now_us)
        in_flight += room
        sent_at_us += [now_us] * room
        next_us = newreno.next_room_us(in_flight, now_us)
        if next_us is None:
            break
        assert next_us > now_us
        now_us = next_us
    assert in_flight == 100
    assert largest <= 12
    assert 60_000 < sent_at_us[-1] - sent_at_us[0] < 100_000


def test_seed_213694_repairs_that_could_not_wait_do_not_stop_a_small_window_for_minutes() -> None:
    newreno = NewReno(1)
    newreno.acknowledged(1, 1, 480_000, 480_000)
    newreno.sent(100, 1, 500_000)
    next_us = newreno.next_room_us(0, 500_000)
    assert next_us is not None
    assert next_us - 500_000 <= 2 * 480_000
