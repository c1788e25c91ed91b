"""What a peer that takes only the next packet, and small windows, need of the loss recovery."""

from __future__ import annotations

import pytest

from fairway.core.recovery.evidence import Evidence
from fairway.core.recovery.runs import Acknowledged, Run, Stream
from fairway.core.recovery.timing import PingLoss
from tests.core.driver import RTT_US, Link, Sent, World, piggyback, stamped


def strict(link: Link, packets: int = 300, window: int = 1_000) -> World:
    link.answers = "strict"
    return World(*piggyback(), link, [packets], window)


def test_a_repair_by_later_acknowledgements_is_counted_when_it_cuts_the_window_too() -> None:
    run = World(*stamped(), Link(answers="stamped", loses=lambda sent: sent.number == 50 and not sent.nth), [300]).run()
    assert (run.controller.cuts, run.statistics.repairs, run.statistics.retransmissions) == (1, 1, 1)


@pytest.mark.parametrize("rtt_us", [RTT_US, 15 * RTT_US])
def test_a_strict_peer_that_missed_the_very_first_packet_is_served_before_any_round_trip_is_measured(
    rtt_us: int,
) -> None:
    """On the long path every packet is probed before its answer can come, so that nothing is measured for long."""
    run = strict(Link(loses=lambda sent: sent.number == 0 and not sent.nth, rtt_us=lambda now_us: rtt_us)).run()
    assert len(run.acknowledged) == 300
    assert run.now_us <= 60 * rtt_us


def test_a_probe_that_is_answered_a_little_faster_than_ever_is_not_taken_for_the_first_transmission() -> None:
    def loses(sent: Sent) -> bool:
        return sent.number in (50, 120) and sent.nth < 1

    run = strict(Link(loses=loses, rtt_us=lambda now_us: RTT_US - now_us // 10_000)).run()
    assert len(run.acknowledged) == 300
    assert run.now_us <= 45 * RTT_US


def test_a_strict_peer_is_served_with_a_window_of_few_packets() -> None:
    """The retransmission leaves less than three packets after what the peer threw away."""
    lost = set(range(20, 200, 20))
    run = strict(Link(loses=lambda sent: sent.number in lost and not sent.nth), 200, 3).run()
    assert len(run.acknowledged) == 200
    assert run.now_us <= 200 * RTT_US


def test_a_strict_peer_that_lost_the_repairs_too_is_served_before_any_round_trip_is_measured() -> None:
    """All that was repaired after a second loss was thrown away once more, and is not probed packet by packet."""
    run = strict(Link(loses=lambda sent: (sent.number, sent.nth) in {(0, 0), (7, 1), (40, 1)})).run()
    assert len(run.acknowledged) == 300
    assert run.now_us <= 150 * RTT_US


def acknowledged(sent_us: list[int], sure: int, now_us: int) -> PingLoss:
    """Return what is known of the round trip after the first acknowledgement of all, that of one packet."""
    timing = PingLoss(initial_us=50_000, min_us=10_000, max_us=3_000_000)
    run = Run(Stream(), 0, 1, b"", 1, 0, sent_us[0], 0)
    run.sent_us, run.orders, run.sure, run.losses = sent_us, list(range(len(sent_us))), sure, sure
    evidence = Evidence(timing, cumulative=True, doubts=True, most_us=3_000_000)
    evidence.sample([Acknowledged(run, 0, 1)], -1, now_us, prompt=True)
    return timing


def test_a_retransmission_that_the_mark_asked_for_is_measured_once_those_before_it_have_timed_out() -> None:
    assert acknowledged([0, 1_000_000], 1, 1_200_000).smoothed_us == 200_000
    assert acknowledged([0, 40_000], 1, 40_100).smoothed_us == 0, "the first transmission was under way"


def test_the_delay_grows_where_even_a_retransmission_that_the_mark_asked_for_was_retransmitted() -> None:
    timing = acknowledged([0, 400_000, 450_000, 550_000], 1, 600_000)
    assert (timing.smoothed_us, timing.delay_us) == (0, 100_000)


def test_a_first_measurement_made_too_long_by_a_lost_acknowledgement_rules_no_retransmission_out() -> None:
    timing = PingLoss(initial_us=50_000, min_us=10_000, max_us=3_000_000)
    timing.sample(257_000)
    run = Run(Stream(), 0, 1, b"", 1, 0, 0, 0)
    run.sent_us.append(642_000)
    assert Evidence(timing, cumulative=True, doubts=True, most_us=3_000_000).which(run, 849_000) == 1
