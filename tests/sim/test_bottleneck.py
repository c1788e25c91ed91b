"""What the controllers promise on a path with a bottleneck, at a few points; `make bench` measures many."""

from __future__ import annotations

import pytest

from benchmarks.bottleneck import Bottleneck, Constant, Load, Path
from fairway.sim.measures import quantile

PROTOCOLS = ("udpc", "mrp", "rup")
SECOND = 1_000_000


def model(protocol: str, **more: int) -> Load:
    return Load(protocol=protocol, options={"controller": "model"}, **more)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("loss", "p50", "p99"), [(0.05, 1.5, 4.1), (0.2, 3, 12)])
def test_a_trickle_waits_for_a_few_round_trips_at_the_most(protocol: str, loss: float, p50: float, p99: float) -> None:
    """100 messages a second. Under NewReno half of them waited for more than a second at a loss of 20 %."""
    path = Path(rate_mbit=20, round_trip_ms=20, loss=loss)
    world = Bottleneck(path, [model(protocol, interval_us=10_000)], seed=1)
    world.run(0, 30 * SECOND)
    (flow,) = world.flows
    times_us = sorted(flow.latencies_us)
    assert (quantile(times_us, 50) or 0) <= p50 * 20_000
    assert (quantile(times_us, 99) or 0) <= p99 * 20_000
    assert not flow.failed
    assert flow.waiting <= 12


@pytest.mark.parametrize(
    ("protocol", "rate_mbit", "round_trip_ms", "loss", "bursts", "share", "queue"),
    [
        ("udpc", 8, 60, 0.03, False, 0.85, 0.5),
        ("udpc", 5, 20, 0.1, False, 0.65, 0.5),
        ("udpc", 5, 100, 0.2, False, 0.6, 0.5),
        ("mrp", 20, 100, 0.01, False, 0.85, 0.5),
        ("mrp", 5, 20, 0.05, True, 0.8, 0.5),
        ("mrp", 5, 20, 0.3, False, 0.5, 0.5),
        ("rup", 20, 20, 0.0, False, 0.9, 0.5),
        ("rup", 20, 20, 0.1, False, 0.65, 0.5),
        ("rup", 5, 100, 0.02, False, 0.85, 0.65),
    ],
)
def test_a_long_flow_fills_a_path_that_loses_packets_and_not_its_queue(
    protocol: str, rate_mbit: int, round_trip_ms: int, loss: float, bursts: bool, share: float, queue: float
) -> None:
    """rup with losses on a path of few packets is at the goal of half a queue: 0.37 to 0.64, a mean of 0.52, over ten
    seeds."""
    path = Path(rate_mbit=rate_mbit, round_trip_ms=round_trip_ms, loss=loss, bursts=bursts)
    seen = Bottleneck(path, [model(protocol)], seed=1).run(5 * SECOND, 10 * SECOND)
    assert seen.shares[0] >= share
    assert seen.queue_mean <= queue


@pytest.mark.parametrize(
    ("protocol", "controller"),
    [("udpc", "model"), ("rup", "model"), ("udpc", "newreno"), ("mrp", "newreno"), ("rup", "newreno")],
)
def test_two_flows_share_within_a_quarter_of_equal_and_leave_the_models_queue_half_empty(
    protocol: str, controller: str
) -> None:
    loads = [
        Load(protocol=protocol, options={"controller": controller}, begin_us=begin_us) for begin_us in (0, 2 * SECOND)
    ]
    seen = Bottleneck(Path(rate_mbit=8, round_trip_ms=40), loads, seed=1).run(30 * SECOND, 50 * SECOND)
    less, more = sorted(seen.shares)
    assert more <= 1.25 * (less + more) / 2
    assert less + more >= 0.9
    assert controller == "newreno" or seen.queue_mean <= 0.5


@pytest.mark.parametrize("round_trip_ms", [20, 100])
def test_beside_newreno_each_keeps_a_tenth_of_the_bottleneck(round_trip_ms: int) -> None:
    loads = [model("udpc"), Load(protocol="udpc", options={"controller": "newreno"})]
    seen = Bottleneck(Path(rate_mbit=10, round_trip_ms=round_trip_ms), loads, seed=1).run(10 * SECOND, 30 * SECOND)
    assert min(seen.shares) >= 0.1
    assert sum(seen.shares) >= 0.9


def test_constant_traffic_of_nine_tenths_gets_its_place_within_five_seconds() -> None:
    path, joins_us = Path(rate_mbit=10, round_trip_ms=100), 5 * SECOND
    world = Bottleneck(path, [model("udpc")], seed=1, constant=Constant(share=0.9, begin_us=joins_us))
    world.run(0, joins_us)
    within, after = world.run(joins_us, joins_us + 5 * SECOND), world.run(joins_us + 5 * SECOND, joins_us + 10 * SECOND)
    assert after.queue_mean <= 0.4 < within.queue_mean, "and stays there: once it came back in waves"
    assert 0.05 <= after.shares[0] <= 0.15
