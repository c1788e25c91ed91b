"""The three laws of how long to wait for an acknowledgement."""

from __future__ import annotations

from fairway.core.recovery.timing import WHOLE, Fixed, PingLoss, RoundTrip

MOST_US = 3_000_000


def round_trip() -> RoundTrip:
    return RoundTrip(initial_us=200_000, min_us=20_000, max_us=MOST_US)


def ping_loss() -> PingLoss:
    return PingLoss(initial_us=200_000, min_us=20_000, max_us=MOST_US)


def test_the_time_out_follows_rfc_6298() -> None:
    trip = round_trip()
    assert trip.delay_us == 200_000
    assert trip.backed_off_us(2, MOST_US) == 800_000
    trip.sample(100_000)
    assert (trip.smoothed_us, trip.variation_us, trip.delay_us) == (100_000, 50_000, 300_000)
    trip.sample(60_000)
    assert (trip.smoothed_us, trip.variation_us) == (95_000, 47_500)
    for _ in range(200):
        trip.sample(1_000)
    assert trip.delay_us == 20_000
    for _ in range(200):
        trip.sample(50_000)
    assert 59_900 < trip.delay_us <= 60_000, "a steady path still leaves the clock's granularity as a margin"
    assert trip.backed_off_us(50, MOST_US) == MOST_US


def test_the_bound_of_the_back_off_is_never_below_the_delay_itself() -> None:
    trip = round_trip()
    trip.sample(500_000)
    assert trip.delay_us == 1_500_000
    assert trip.backed_off_us(3, 1_000_000) == 1_500_000


def test_the_shortest_round_trip_is_remembered() -> None:
    trip = round_trip()
    assert trip.least_us == 0
    for rtt_us in (50_000, 30_000, 90_000):
        trip.sample(rtt_us)
    assert trip.least_us == 30_000


def test_a_path_slower_than_the_time_out_gets_its_time_from_a_retransmitted_packet() -> None:
    trip = round_trip()
    trip.ambiguous(400_000, 3_000_000)
    assert trip.delay_us == 400_000
    trip.ambiguous(300_000, 3_000_000)
    assert trip.delay_us == 400_000
    trip.ambiguous(9_000_000, 3_000_000)
    assert trip.delay_us == 800_000
    trip.sample(390_000)
    assert trip.delay_us == 390_000 + 4 * 195_000


def test_mrp_waits_one_and_a_half_pings_and_less_where_much_is_lost() -> None:
    timing = ping_loss()
    timing.sample(100_000)
    assert timing.delay_us == 150_000
    timing.settled(lost=1_000, arrived=0)
    assert timing.loss > WHOLE * 99 // 100
    assert 75_000 <= timing.delay_us < 76_000
    timing.settled(lost=0, arrived=1_000)
    assert (timing.loss, timing.delay_us) == (0, 150_000)


def test_the_loss_is_a_moving_average_of_a_sixteenth() -> None:
    timing = ping_loss()
    timing.settled(lost=0, arrived=5)
    assert timing.loss == 0
    timing.settled(lost=1, arrived=0)
    assert timing.loss == WHOLE // 16
    timing.settled(lost=0, arrived=1)
    assert timing.loss == WHOLE // 16 - WHOLE // 256
    assert timing.delay_us == 200_000, "without a ping there is nothing to divide"


def test_mrp_keeps_a_delay_grown_by_a_doubtful_packet_until_there_is_a_sample() -> None:
    timing = ping_loss()
    timing.sample(10_000)
    timing.ambiguous(35_000, 3_000_000)
    timing.settled(lost=1, arrived=1)
    assert timing.delay_us == 35_000
    timing.sample(10_000)
    assert timing.delay_us == 20_000


def test_a_fixed_delay_stays_whatever_is_measured() -> None:
    timing = Fixed(3_000_000)
    timing.sample(10_000)
    timing.ambiguous(20_000_000, 3_000_000)
    assert timing.delay_us == timing.backed_off_us(7, 60_000_000) == 3_000_000
    assert timing.smoothed_us == timing.least_us == 10_000
