"""The loss recovery alone: a table of loss patterns, and what must follow from each, in round trips."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from fairway.core.recovery.congestion import Controller, Departure
from fairway.core.recovery.parts import PartRecovery
from fairway.core.recovery.recovery import SECOND_PROBE_US, Kind, Recovery
from fairway.core.recovery.runs import ATTEMPTS_MAX, NEVER, Stream
from fairway.core.recovery.timing import RoundTrip
from fairway.core.statistics import Statistics
from tests.core.driver import (
    RTT_US,
    Answers,
    Link,
    Sent,
    World,
    parts,
    piggyback,
    pydevts,
    requests,
    stamped,
    udpc,
)

Make = Callable[[], tuple[type[Recovery], Kind, RoundTrip]]
KINDS: dict[str, tuple[Make, Answers]] = {
    "udpc": (udpc, "each"),
    "stamped": (stamped, "stamped"),
    "piggyback": (piggyback, "mark"),
    "parts": (parts, "parts"),
}
NAMED, CUMULATIVE, ALL = ("udpc", "stamped"), ("piggyback", "parts"), tuple(KINDS)


def world(kind: str, link: Link, packets: int = 300) -> World:
    make, link.answers = KINDS[kind]
    return World(*make(), link, [packets])


def first_of(*numbers: int) -> Callable[[Sent], bool]:
    """The first transmissions of these packets."""
    return lambda sent: sent.nth == 0 and sent.number in numbers


def only(number: int, transmissions: int) -> Callable[[Sent], bool]:
    return lambda sent: sent.number == number and sent.nth < transmissions


def settles_clean(run: World) -> None:
    """Nothing is left behind once everything has its outcome."""
    recovery = run.recovery
    assert len(run.acknowledged) + len(run.given_up) == sum(run.sizes)
    assert (recovery.left, recovery.in_flight, recovery._flight.settled) == (0, 0, 0)
    assert not recovery.streams
    assert not (isinstance(recovery, PartRecovery) and recovery._ignored)
    assert recovery._flight.head.following is recovery._flight.head
    assert recovery.next_retransmission(run.now_us) is None
    assert not recovery.has_lost
    assert not any(stream.left or stream.runs() for stream in run.streams)


@dataclass(frozen=True)
class Row:
    """A loss pattern of one conversation of 300 packets, and what follows."""

    pattern: str
    kinds: tuple[str, ...]
    loses: Callable[[Sent], bool]
    again: dict[int, list[float]] = field(default_factory=dict)
    """When some packets leave again, in round trips after their first transmission, within a quarter of one."""
    retransmissions: int = 0
    """At the most, of all packets together."""
    most: int = 2
    """Transmissions of any one packet."""
    cuts: int = 0
    within: float = 0
    """Round trips to the last acknowledgement."""


BURST = range(50, 70)
TABLE = [
    Row("nothing is lost", ALL, lambda sent: False, most=1, within=6),
    Row("one in the middle", ALL, only(100, 1), {100: [1.0]}, 1, cuts=1, within=8),
    Row("the very first", ALL, only(0, 1), {0: [1.0]}, 1, cuts=1, within=23),
    Row("a burst", NAMED, first_of(*BURST), {50: [1.8], 69: [1.8]}, 20, cuts=1, within=12),
    Row("a burst", ("piggyback",), first_of(*BURST), {50: [1.8], 51: [3.0]}, 30, cuts=1, within=16),
    Row("a burst", ("parts",), first_of(*BURST), {50: [1.8], 51: [2.35]}, 30, cuts=1, within=16),
    Row("the last packet", ALL, only(299, 1), {299: [2.5]}, 1, within=9),
    Row("the last three", ("udpc",), first_of(297, 298, 299), {297: [2.5], 299: [3.75]}, 3, cuts=1, within=10),
    Row("the last three", ("stamped",), first_of(297, 298, 299), {297: [2.5], 299: [3.5]}, 3, cuts=1, within=10),
    Row("the last three", CUMULATIVE, first_of(297, 298, 299), {297: [2.5], 298: [3.75]}, 3, within=14),
    Row("a retransmission", NAMED, only(100, 2), {100: [1.0, 2.75]}, 2, most=3, cuts=1, within=8),
    Row("a retransmission", CUMULATIVE, only(100, 2), {100: [1.0, 2.5]}, 2, most=3, cuts=1, within=10),
    Row("every tenth", NAMED, first_of(*range(5, 300, 10)), {5: [1.0]}, 30, cuts=30, within=100),
    Row("every tenth", CUMULATIVE, first_of(*range(5, 300, 10)), {5: [1.0]}, 30, cuts=30, within=120),
]  # fmt: skip


@pytest.mark.parametrize(
    ("row", "kind"), [pytest.param(row, kind, id=f"{row.pattern}-{kind}") for row in TABLE for kind in row.kinds]
)
def test_a_loss_pattern_is_repaired_in_time_and_with_no_more_than_needed(row: Row, kind: str) -> None:
    run = world(kind, Link(loses=row.loses)).run()
    settles_clean(run)
    again = run.again()
    for number, times in row.again.items():
        assert again[number] == pytest.approx(times, abs=0.25)
    assert run.statistics.retransmissions <= row.retransmissions
    assert max(run.times.values()) <= row.most
    assert run.controller.cuts <= row.cuts
    assert (run.controller.cuts > 0) == (row.cuts > 0)
    # What is lost twice while others arrive says nothing about the path.
    assert run.controller.undone <= (row.most > 2)
    assert run.controller.time_outs == 0
    assert run.now_us <= row.within * RTT_US


@pytest.mark.parametrize("kind", CUMULATIVE)
def test_lost_acknowledgements_cost_nothing_where_the_next_one_repeats_them(kind: str) -> None:
    run = world(kind, Link(loses_answer=lambda sent: sent.order % 3 > 0 and sent.number < 299)).run()
    settles_clean(run)
    assert (run.statistics.retransmissions, run.controller.cuts) == (0, 0)
    assert run.now_us <= 7 * RTT_US


@pytest.mark.parametrize("kind", NAMED)
def test_a_packet_whose_acknowledgement_was_lost_leaves_once_more(kind: str) -> None:
    run = world(kind, Link(loses_answer=lambda sent: sent.nth == 0 and sent.number in BURST)).run()
    settles_clean(run)
    assert sorted(run.again()) == list(BURST)
    assert (run.statistics.retransmissions, run.controller.cuts, run.controller.undone) == (20, 1, 0)


@pytest.mark.parametrize("kind", ALL)
def test_acknowledgements_reversed_within_batches_are_no_losses(kind: str) -> None:
    plain = world(kind, Link(), 5_000).run()
    run = world(kind, Link(batch_us=5_000), 5_000).run()
    settles_clean(run)
    assert run.statistics.retransmissions <= 12, "a few before the lateness is known, none later"
    assert run.controller.cuts == run.controller.undone
    assert run.controller.window == plain.controller.window
    assert run.now_us <= 1.5 * plain.now_us


def outage(sent: Sent) -> bool:
    return 100_000 <= sent.at_us < 4_000_000


@pytest.mark.parametrize("kind", ALL)
def test_an_outage_is_probed_with_doubled_pauses_and_repaired_as_fast_as_slow_start(kind: str) -> None:
    run = world(kind, Link(loses=outage), 2_000).run()
    settles_clean(run)
    again_us = [sent.at_us for sent in run.sent if sent.nth and outage(sent)]
    probes_us = [at_us for at_us in again_us if at_us - SECOND_PROBE_US not in again_us]
    pauses = [later - earlier for earlier, later in pairwise(probes_us)]
    assert all(later == 2 * earlier for earlier, later in pairwise(pauses))
    assert 5 <= len(probes_us) <= 8
    assert (run.controller.cuts, run.controller.time_outs) == (0, 1)
    lost = sum(sent.nth == 0 and outage(sent) for sent in run.sent)
    assert lost > 300
    assert run.statistics.retransmissions <= 1.05 * lost + len(again_us)
    back_us = next(sent.at_us for sent in run.sent if sent.at_us >= 4_000_000)
    assert run.now_us - back_us <= 30 * RTT_US


@pytest.mark.parametrize(("grown_us", "time_outs"), [(100_000, 0), (400_000, 1)])
@pytest.mark.parametrize("kind", ALL)
def test_a_round_trip_that_grew_is_learned_from_the_first_answer(kind: str, grown_us: int, time_outs: int) -> None:
    link = Link(rtt_us=lambda now_us: RTT_US if now_us < 300_000 else grown_us)
    run = world(kind, link, 13_000).run()
    settles_clean(run)
    assert run.statistics.retransmissions <= 5
    assert run.controller.cuts == 0
    assert run.controller.time_outs == time_outs
    assert run.recovery.timing.smoothed_us > grown_us * 3 // 4


@pytest.mark.parametrize("kind", ALL)
def test_a_conversation_of_one_packet_at_a_time_learns_a_grown_round_trip(kind: str) -> None:
    make, answers = KINDS[kind]
    link = Link(answers=answers, rtt_us=lambda now_us: RTT_US if now_us < 300_000 else 5 * RTT_US)
    run = World(*make(), link, [100], window=1).run()
    settles_clean(run)
    assert run.statistics.retransmissions <= 16, "an average with a gain of an eighth needs eight samples"
    assert run.now_us <= 300_000 + 90 * 5 * RTT_US


@pytest.mark.parametrize("kind", ALL)
def test_a_path_slower_than_the_first_time_out_does_not_send_everything_twice(kind: str) -> None:
    make, answers = KINDS[kind]
    run = World(*make(), Link(answers=answers, rtt_us=lambda now_us: 900_000), [100], window=1).run()
    settles_clean(run)
    assert run.statistics.retransmissions <= 8
    assert run.recovery.timing.smoothed_us == 900_000


@pytest.mark.parametrize("kind", ["udpc", "piggyback", "parts"])
def test_the_acknowledgement_of_a_retransmission_is_no_sample_of_the_first_transmission(kind: str) -> None:
    make, answers = KINDS[kind]
    run = World(*make(), Link(answers=answers, loses=only(0, 1)), [1]).run()
    settles_clean(run)
    assert run.again() == {0: [10.0]}
    assert run.recovery.timing.smoothed_us == 0
    assert run.controller.undone == 0


def test_one_packet_that_is_never_answered_costs_the_others_nothing() -> None:
    plain = world("udpc", Link(loses=only(500, 1)), 5_000).run()
    run = world("udpc", Link(ignores=lambda sent: sent.number == 500), 5_000).run()
    settles_clean(run)
    assert list(run.given_up) == [(0, 500)]
    assert run.given_up[0, 500] - next(s.at_us for s in run.sent if s.number == 500) == 30_000_000
    assert max(run.acknowledged.values()) <= 1.1 * plain.now_us
    assert run.statistics.retransmissions == run.times[0, 500] - 1 <= 24
    assert run.controller.cuts == 1
    assert run.controller.undone == 1
    assert run.in_flight_most >= plain.in_flight_most


@pytest.mark.parametrize("kind", CUMULATIVE)
def test_a_peer_that_drops_everything_after_a_hole_is_served_as_fast_as_slow_start(kind: str) -> None:
    run = World(*KINDS[kind][0](), Link(answers="strict", loses=only(100, 1)), [300]).run()
    settles_clean(run)
    assert max(run.times.values()) == 2
    assert run.controller.cuts == 1
    assert run.now_us <= 20 * RTT_US


def test_a_polling_peer_is_answered_once_a_round_trip() -> None:
    link = Link(answers="parts", poll_us=4_000, loses=lambda sent: sent.number % 97 == 50 and sent.nth < 2)
    run = World(*parts(), link, [1_000]).run()
    settles_clean(run)
    assert max(run.times.values()) == 3
    assert run.statistics.retransmissions <= 2 * 10 + 10


def test_a_path_that_gets_shorter_is_not_taken_for_a_polling_peer() -> None:
    """Its first round trips were measured through a queue, so a request soon comes earlier than one of them takes."""
    shorter = Link(
        answers="parts",
        rtt_us=lambda now_us: RTT_US if now_us > 20 * RTT_US else 3 * RTT_US // 2,
        loses=lambda sent: sent.number % 97 == 50 and sent.nth < 2,
    )
    run = World(*parts(), shorter, [20_000], window=200)
    seemed: list[bool] = []
    transmit = run._transmit

    def watch() -> None:
        seemed.append(run.recovery._polls)  # type: ignore[attr-defined]
        transmit()

    run._transmit = watch  # type: ignore[method-assign]
    settles_clean(run.run())
    assert any(seemed)
    assert not seemed[-1]
    assert seemed.count(True) < len(seemed) // 10


# Several streams.


@pytest.mark.parametrize("at_once", [1, 2, 8])
def test_a_peer_that_takes_few_streams_at_a_time_gets_all_of_them(at_once: int) -> None:
    run = World(*parts(), Link(answers="parts", streams_at_once=at_once, commit_us=1_000), [20] * 50).run()
    settles_clean(run)
    assert not run.given_up
    assert run.gave_up_us < 0


@pytest.mark.parametrize("size", [4, 40])
def test_an_ignored_stream_is_withheld_and_leaves_whole_only_a_few_times(size: int) -> None:
    """Then one packet probes for it."""
    run = World(*parts(), Link(answers="parts", ignores=lambda sent: sent.serial == 3), [size] * 50)
    withheld: set[int] = set()
    transmit = run._transmit

    def watch() -> None:
        withheld.update(stream.serial for stream in run.streams if stream.ignored)
        transmit()

    run._transmit = watch  # type: ignore[method-assign]
    run.run(until_us=5_000_000)
    assert withheld == {3}
    assert len(run.acknowledged) == 49 * size
    assert (run.controller.cuts, run.controller.time_outs) == (0, 0)
    assert max(run.times[3, number] for number in range(1, size)) <= 1 + ATTEMPTS_MAX
    assert run.times[3, 0] <= 15
    assert run.recovery.in_flight <= 1


def test_an_ignored_stream_is_retried_when_another_ends_and_not_only_after_its_back_off() -> None:
    taken_us = 200_000
    link = Link(answers="parts", ignores=lambda sent: sent.serial == 3 and sent.at_us < taken_us)
    run = World(*parts(), link, [20] * 500).run()
    settles_clean(run)
    assert not run.given_up
    first_us = min(us for (serial, _), us in run.acknowledged.items() if serial == 3)
    assert first_us - taken_us <= 4 * RTT_US


def test_a_stream_that_others_have_left_behind_is_given_up_alone() -> None:
    recovery, kind, timing = parts()
    kind = kind._replace(stall_us=2_000_000)
    run = World(
        recovery, kind, timing, Link(answers="parts", ignores=lambda sent: sent.serial == 3), [20] * 500, 60
    ).run()
    settles_clean(run)
    assert {serial for serial, _ in run.given_up} == {3}
    assert run.gave_up_us < 0
    begun_us = next(sent.at_us for sent in run.sent if sent.serial == 3)
    ended_us = run.given_up[3, 0]
    assert 2_000_000 <= ended_us - begun_us <= 5_000_000
    assert max(us for us in run.acknowledged.values()) <= 200 * RTT_US


def test_the_first_request_for_a_lost_packet_is_progress_and_ends_its_pause() -> None:
    recovery = PartRecovery(*parts()[1:], None, Statistics())
    ignored = Stream(0, 9)
    recovery.slots.begin(ignored)
    recovery.sent(ignored, 0, 10, 0)
    for serial in range(1, 4):
        recovery.sent(Stream(serial, 0), 0, 1, 0)
    for stream in list(recovery.streams.values())[1:]:
        recovery.acknowledge_to(stream, 1, RTT_US)
    for now_us in (300_000, 301_000):
        recovery.wake(now_us)
        while recovery.next_retransmission(now_us) is not None:
            pass
    later = Stream(4, 0)
    recovery.sent(later, 0, 1, 301_000)
    recovery.acknowledge_to(later, 1, 340_000)
    recovery.wake(420_000)
    assert ignored.ignored
    while recovery.next_retransmission(420_000) is not None:
        pass
    assert recovery.in_flight == 0
    assert recovery.requested(ignored, 0, 421_000) == ""
    assert ignored.answered
    assert recovery.progress_us == 421_000
    again = recovery.next_retransmission(421_000)
    assert again is not None
    assert (again.stream, again.first) == (ignored, 0)
    assert recovery.requested(ignored, 0, 422_000) == "request_too_soon"
    assert recovery.progress_us == 421_000


@pytest.mark.parametrize(("probes", "answered"), [(1, 0), (5, 4), (5, 1)])
def test_streams_of_one_packet_that_an_outage_swallowed_leave_again_when_a_later_probe_is_answered(
    probes: int, answered: int
) -> None:
    """A peer that repeated itself while they were under way had them taken out of the flight, and each then waited for
    a probe of its own: one in each time-out."""
    recovery = PartRecovery(*parts()[1:], None, Statistics())
    streams = [Stream(serial, 0) for serial in range(31)]
    recovery.sent(streams[0], 0, 1, 0)
    recovery.acknowledge_to(streams[0], 1, RTT_US)
    for stream in streams[1:]:
        recovery.sent(stream, 0, 1, 100_000)
    recovery.heard(streams[1], 120_000)
    recovery.heard(streams[1], 140_000)
    probed: list[Stream] = []
    while len(probed) < probes:
        now_us = recovery.next_us()
        recovery.wake(now_us)
        while (run := recovery.next_retransmission(now_us)) is not None:
            probed.append(run.stream)
            recovery.heard(streams[1], now_us + RTT_US)
    assert len(probed) == probes
    assert recovery.in_flight <= 2, "the others are no longer in the network"
    now_us += RTT_US
    recovery.acknowledge_to(probed[answered], 1, now_us)
    recovery.wake(now_us + RTT_US)
    again = [run.stream for run in iter(lambda: recovery.next_retransmission(now_us + RTT_US), None)]
    assert set(again) >= set(streams[1:]) - set(probed)
    assert len(again) == len(set(again))


# Packets with a timer each.


@pytest.mark.parametrize(
    ("make", "controlled", "again", "cuts"), [(pydevts, True, [150.0], 1), (requests, False, [10.0], 0)]
)
def test_a_packet_repaired_by_timer_only_waits_for_its_own(
    make: Make, controlled: bool, again: list[float], cuts: int
) -> None:
    run = World(*make(), Link(loses=only(100, 1)), [300], controlled=controlled).run()
    settles_clean(run)
    assert run.again() == {100: again}
    assert run.controller.cuts == cuts


def test_a_packet_of_a_mute_peer_is_given_up_after_its_last_transmission() -> None:
    run = World(*pydevts(), Link(loses=lambda sent: True), [10]).run()
    settles_clean(run)
    assert set(run.times.values()) == {11}
    assert set(run.given_up.values()) == {11 * 3_000_000}


def test_a_request_backs_off_until_its_life_ends() -> None:
    run = World(*requests(), Link(loses=lambda sent: True), [3], controlled=False).run()
    settles_clean(run)
    assert run.again() == {number: [10.0, 30.0, 70.0, 150.0] for number in range(3)}
    assert set(run.given_up.values()) == {5_000_000}


def test_what_later_packets_have_overtaken_leaves_the_flight_before_its_timer() -> None:
    run = World(*pydevts(), Link(loses=only(100, 1)), [300]).run(until_us=2_000_000)
    assert (run.recovery.left, run.recovery.in_flight) == (1, 0)
    assert run.recovery.next_us() == next(sent.at_us for sent in run.sent if sent.number == 100) + 3_000_000


# Limits.


@pytest.mark.parametrize(
    ("kind", "after_us"), [("stamped", 30_000_000), ("piggyback", 30_000_000), ("parts", 10_000_000)]
)
@pytest.mark.parametrize("mute_from_us", [0, 110_000])
def test_a_mute_peer_is_given_up_after_its_limit(kind: str, after_us: int, mute_from_us: int) -> None:
    run = world(kind, Link(loses=lambda sent: sent.at_us >= mute_from_us), 100_000).run()
    heard_us = max(run.acknowledged.values(), default=0)
    assert run.gave_up_us - heard_us == after_us
    assert run.statistics.retransmissions <= 32, "two probes for each doubled pause"


def test_a_peer_that_only_repeats_itself_is_given_up_for_lack_of_progress() -> None:
    link = Link(answers="mark", ignores=lambda sent: sent.number == 50)
    run = World(*piggyback(), link, [300]).run()
    assert run.gave_up_us - run.recovery.progress_us == 30_000_000
    assert max(run.acknowledged) == (0, 49)


def test_the_end_of_a_life_takes_each_packet_off_once() -> None:
    run = world("udpc", Link(loses=lambda sent: sent.at_us > 90_000), 400).run()
    settles_clean(run)
    first = {sent.number: sent.at_us for sent in run.sent if sent.nth == 0}
    assert run.given_up
    assert all(us - first[number] == 30_000_000 for (_, number), us in run.given_up.items())


@pytest.mark.parametrize("kind", ALL)
def test_a_clock_that_jumps_while_answers_wait_loses_nothing(kind: str) -> None:
    run = world(kind, Link(), 3_000)
    run.jumps = {90_000: 9_000_000 if kind == "parts" else 20_000_000}
    run.run()
    settles_clean(run)
    assert not run.given_up
    assert run.controller.cuts == run.controller.undone
    assert run.statistics.retransmissions <= 2


@pytest.mark.parametrize("kind", ALL)
def test_a_clock_that_jumps_over_many_time_outs_wakes_for_one_probe(kind: str) -> None:
    run = world(kind, Link(loses=lambda sent: sent.at_us >= 50_000), 300).run(until_us=75_000)
    recovery: Recovery = run.recovery
    before, now_us = run.statistics.retransmissions, run.now_us + 9_000_000
    assert not recovery.gives_up(now_us)
    assert recovery.wake(now_us) == []
    while recovery.next_retransmission(now_us) is not None:
        pass
    assert run.statistics.retransmissions - before <= 1
    assert now_us < recovery.next_us() < NEVER


def test_a_tail_that_leaves_long_after_the_latest_progress_is_not_late_at_once() -> None:
    """The probe of a tail once counted from the latest progress, so its time was over before the tail had left."""
    _, kind, timing = parts()
    recovery, stream = PartRecovery(kind, timing, None, Statistics()), Stream(1, last=20)
    recovery.sent(stream, 0, 20, 0)
    recovery.acknowledge_to(stream, 5, 2_000)
    recovery.sent(stream, 20, 1, 10_000)
    recovery.note_tail(10_000, is_tail=True)
    assert 10_000 + 2_000 < recovery.next_us() <= timing.delay_us + 2_000


class Told(Controller):
    """A fixed window that remembers which deliveries and round trips it was told of."""

    measures = True

    def __init__(self) -> None:
        super().__init__(10_000)
        self.packets = 0
        self.round_trips_us: list[int] = []

    def delivered(
        self, packets: int, departure: Departure | None, order: int, in_flight: int, rtt_us: int, now_us: int
    ) -> None:
        self.packets += packets
        self.round_trips_us.append(rtt_us)


def told_parts(count: int, gap_us: int) -> tuple[PartRecovery, Stream, Told]:
    """Return a recovery of which `count` parts have left, one every `gap_us`, the first of them confirmed."""
    told, stream = Told(), Stream(1, last=1_000)
    recovery = PartRecovery(*parts()[1:], told, Statistics())
    for number in range(count):
        recovery.sent(stream, number, 1, number * gap_us)
        if number * gap_us <= RTT_US < (number + 1) * gap_us:
            recovery.heard(stream, RTT_US)
            recovery.acknowledge_to(stream, 1, RTT_US)
    return recovery, stream, told


def test_a_request_tells_the_controller_of_parts_that_were_settled_for_their_age() -> None:
    """Behind a hole no mark tells of them: once none of them was counted, and the rate collapsed."""
    gap_us = RTT_US // 20
    recovery, stream, told = told_parts(200, gap_us)
    now_us = 200 * gap_us
    assert recovery.requested(stream, 1, now_us) == ""
    recovery.wake(now_us)
    assert recovery._flight.settled > 100
    recovery.requested(stream, 150, now_us + gap_us)
    assert told.packets == 149, "all before the second hole but the first hole"


def test_an_arrival_tells_the_controller_of_what_left_before_it_behind_a_hole_of_another_stream() -> None:
    """Once nothing was known of what arrives while a hole was open."""
    gap_us = RTT_US // 20
    recovery, stream, told = told_parts(30, gap_us)
    assert recovery.requested(stream, 5, 9 * gap_us + RTT_US) == ""
    assert told.packets == 5
    later = Stream(2, last=1_000)
    recovery.sent(later, 0, 10, 30 * gap_us)
    recovery.heard(later, 30 * gap_us + RTT_US)
    recovery.acknowledge_to(later, 5, 30 * gap_us + RTT_US)
    assert told.packets == 5 + 24 + 5, "what is behind the hole, and what was confirmed"
    assert recovery.in_flight == 5


def test_a_confirm_that_the_peer_may_have_held_back_shows_no_long_round_trip() -> None:
    recovery, stream, told = told_parts(42, RTT_US // 20)
    for number, left_us in ((42, 3 * RTT_US), (43, 4 * RTT_US)):
        recovery.sent(stream, number, 1, left_us)
    recovery.acknowledge_to(stream, 41, 40 * RTT_US // 20 + 2 * RTT_US)
    assert told.round_trips_us[-1] == 2 * RTT_US, "part 41 left soon after: with it the answer would have left"
    recovery.acknowledge_to(stream, 43, 5 * RTT_US)
    assert told.round_trips_us[-1] < 0, "an upper bound: nothing left for a round trip after part 42"


def test_a_stream_that_rested_for_too_long_is_given_up_and_not_retransmitted() -> None:
    """Whoever received it may have forgotten it by then, and would take the retransmission for a new one."""
    kind = parts()[1]._replace(repeat_within_us=5_000_000, silence_us=NEVER, stall_us=NEVER)
    recovery = PartRecovery(kind, parts()[2], None, Statistics())
    stream = Stream(0, 9)
    recovery.sent(stream, 0, 10, 0)
    recovery.heard(stream, RTT_US)
    recovery.wake(4_900_000)
    assert recovery.next_retransmission(4_900_000) is not None
    recovery.wake(10_000_000)
    assert recovery.next_retransmission(10_000_000) is None
    assert recovery.forgotten == [stream]
