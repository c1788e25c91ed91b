"""The model-based controller, over a pipe with a rate, a round trip and a queue that runs over."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

import pytest

from fairway.core.recovery.congestion import INITIAL_PACKETS, MIN_PACKETS, SCALE, Departure, make_controller
from fairway.core.recovery.model import CRUISE, DOWN, DRAIN, LEAST_FOR_US, ROUND_TRIP, STARTUP, UP, Model

SECOND = 1_000_000


class Pipe:
    """A path that carries one packet every `gap_us`; every `loses`-th of what is sent is lost before it, and the peer
    answers each after a time of its own up to `spread_us`."""

    def __init__(
        self, model: Model, gap_us: int, rtt_us: int, *, loses: int = 0, queue: int = 10_000, spread_us: int = 0
    ) -> None:
        self.spread_us = spread_us
        self.model = model
        self.gap_us = gap_us
        self.rtt_us = rtt_us
        self.loses = loses
        self.queue = queue
        self.now_us = 0
        self.sent = self.in_flight = self.arrived = self.overflown = 0
        self.phases: list[int] = [model.phase]
        self.longest_us = 0
        self._free_us = 0
        self._answers: list[tuple[int, int, Departure | None, int]] = []
        self._losses: deque[int] = deque()
        """When the sender notices each loss: a round trip and a queue later."""

    def run(self, until_us: int, offers_us: int = 0) -> None:
        """Send as much as the model allows, or a packet every `offers_us`."""
        next_offer_us = self.now_us
        while self.now_us < until_us:
            while self._losses and self._losses[0] <= self.now_us:
                self._losses.popleft()
                self.in_flight -= 1
                self.model.missed(1)
            while self._answers and self._answers[0][0] <= self.now_us:
                _, order, departure, sent_us = heappop(self._answers)
                self.in_flight -= 1
                self.arrived += 1
                self.longest_us = max(self.longest_us, self.now_us - sent_us)
                self.model.delivered(1, departure, order, self.in_flight, self.now_us - sent_us, self.now_us)
                if self.model.phase != self.phases[-1]:
                    self.phases.append(self.model.phase)
            room = self.model.room(self.in_flight, self.now_us) if self.now_us >= next_offer_us else 0
            for _ in range(min(1, room) if offers_us else room):
                self._send()
                next_offer_us = self.now_us + offers_us
            paced_us = self.model.next_room_us(self.in_flight, self.now_us) if not offers_us else next_offer_us
            due = [self._answers[0][0]] if self._answers else []
            due += [self._losses[0]] if self._losses else []
            self.now_us = min([*due, max(self.now_us + 1, paced_us or until_us), until_us])

    def _send(self) -> None:
        self.sent += 1
        departure = self.model.sent(1, self.in_flight, self.now_us)
        self.in_flight += 1
        begins_us = max(self.now_us, self._free_us)
        full = begins_us - self.now_us > self.queue * self.gap_us
        self.overflown += full
        if full or (self.loses and self.sent % self.loses == 0):
            self._losses.append(begins_us + self.rtt_us + 4 * self.gap_us)
            return
        self._free_us = begins_us + self.gap_us
        late_us = self.sent * 7_919 % (self.spread_us + 1)
        heappush(self._answers, (self._free_us + self.rtt_us + late_us, self.sent, departure, self.now_us))


@pytest.mark.parametrize(
    ("gap_us", "rtt_us", "loses", "queue"),
    [
        (1_000, 20_000, 0, 20),
        (1_000, 100_000, 0, 100),
        (500, 100_000, 100, 200),
        (500, 100_000, 20, 200),
        (500, 100_000, 10, 200),
        (2_000, 30_000, 10, 15),
        (3_000, 250_000, 7, 83),
    ],
)
def test_the_rate_and_the_round_trip_of_a_path_are_found_whatever_it_loses(
    gap_us: int, rtt_us: int, loses: int, queue: int
) -> None:
    pipe = Pipe(Model(10_000), gap_us, rtt_us, loses=loses, queue=queue)
    pipe.run(100 * rtt_us)
    before, at_us = pipe.arrived, pipe.now_us
    pipe.longest_us = 0
    pipe.run(200 * rtt_us)
    assert pipe.arrived - before >= 0.9 * (pipe.now_us - at_us) / gap_us
    assert abs(pipe.model.rate * gap_us - SCALE * SECOND) <= SCALE * SECOND // 8
    assert abs(pipe.model.least_us - rtt_us) <= 2 * gap_us
    assert pipe.longest_us <= 1.7 * rtt_us + 4 * gap_us, "the queue stays short"


def test_the_phases_follow_one_another() -> None:
    pipe = Pipe(Model(10_000), 1_000, 50_000)
    pipe.run(2 * SECOND)
    assert pipe.phases[:8] == [STARTUP, DRAIN, CRUISE, UP, DOWN, CRUISE, UP, DOWN]


def test_startup_opens_the_window_to_its_limit_within_six_round_trips() -> None:
    model = Model(300)
    assert model.room(0, 0) == INITIAL_PACKETS
    pipe = Pipe(model, 10, 100_000)
    pipe.run(150_000)
    assert 2 * INITIAL_PACKETS <= model.window < 100
    pipe.run(650_000)
    assert model.window == 300, "and no further"


def test_loss_with_a_longer_round_trip_cuts_the_rate_to_what_was_delivered_and_loss_alone_does_not() -> None:
    pipe = Pipe(Model(10_000), 1_000, 50_000, queue=50)
    pipe.run(2 * SECOND)
    pipe.loses = 5
    pipe.run(3 * SECOND)
    assert pipe.model.rate >= 0.9 * SCALE * SECOND // 1_000
    pipe.loses = 0
    pipe.gap_us = 4_000  # what is left when others come
    pipe.run(5 * SECOND)
    assert pipe.overflown
    assert pipe.model.rate <= 1.3 * SCALE * SECOND // 4_000


def test_a_path_that_loses_is_sent_as_much_more() -> None:
    pipe = Pipe(Model(10_000), 1_000, 50_000, loses=8)
    pipe.run(10 * SECOND)
    assert abs(pipe.model.loss - SCALE // 8) < SCALE // 32


def test_an_application_that_sends_little_does_not_lower_the_rate() -> None:
    pipe = Pipe(Model(10_000), 1_000, 20_000)
    pipe.run(2 * SECOND)
    rate = pipe.model.rate
    pipe.run(20 * SECOND, offers_us=50_000)
    assert pipe.model.rate >= 0.9 * rate


def test_after_ten_seconds_with_a_longer_round_trip_it_is_looked_for_again() -> None:
    pipe = Pipe(Model(10_000), 1_000, 20_000)
    pipe.run(2 * SECOND)
    pipe.rtt_us = 27_000
    pipe.run(4 * SECOND + LEAST_FOR_US)
    assert ROUND_TRIP in pipe.phases
    assert abs(pipe.model.least_us - 27_000) <= 3_000


def test_a_round_trip_twice_as_long_that_slowing_down_does_not_shorten_is_the_path_s_own_at_once() -> None:
    pipe = Pipe(Model(10_000), 1_000, 20_000)
    pipe.run(2 * SECOND)
    rate, pipe.rtt_us = pipe.model.rate, 40_000
    pipe.run(3 * SECOND)
    assert abs(pipe.model.least_us - 40_000) <= 4_000
    assert pipe.model.rate >= 0.9 * rate


def test_where_nothing_comes_back_only_a_few_packets_leave_until_something_does() -> None:
    pipe = Pipe(Model(10_000), 1_000, 50_000)
    pipe.run(1 * SECOND)
    window = pipe.model.window
    assert window > MIN_PACKETS
    pipe.model.timed_out(pipe.now_us, pipe.now_us)
    assert pipe.model.window == MIN_PACKETS
    pipe.model.delivered(1, None, 0, 0, 0, pipe.now_us)
    assert pipe.model.window == window


def test_one_loss_in_a_round_trip_counts_and_the_others_do_not() -> None:
    model = make_controller("model", 100)
    assert model.lost(sent_us=100, now_us=200)
    assert not model.lost(sent_us=150, now_us=210)
    assert model.lost(sent_us=250, now_us=300)


def test_a_peer_that_answers_in_another_order_is_sent_as_much_as_the_path_takes() -> None:
    """Its answers take a time of their own up to fifty times the round trip: that is no queue, for it has an order."""
    pipe = Pipe(Model(10_000), 500, 1_000, spread_us=50_000)
    pipe.run(2 * SECOND)
    before, pipe.longest_us = pipe.arrived, 0
    pipe.run(4 * SECOND)
    assert pipe.arrived - before >= 0.9 * 4_000
    assert pipe.longest_us < 2 * 51_000


def test_what_was_overtaken_and_took_less_time_all_the_same_does_not_make_the_spread_negative() -> None:
    """Which transmission was answered is sometimes a guess."""
    model = Model(100)
    first, second = model.sent(1, 0, 0), model.sent(1, 1, 0)
    model.delivered(1, second, 1, 1, 9_000, 9_000)
    model.delivered(1, first, 0, 0, 1_000, 9_000)
    assert model.spread_us == 0
