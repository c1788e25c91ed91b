"""What the controllers promise on a path with a bottleneck, at a few points; `make bench` measures many."""

from __future__ import annotations

import pytest

from fairway.sim.bottleneck import Bottleneck, Load, Path
from fairway.sim.measures import quantile

PROTOCOLS = ("udpc", "mrp", "rup")
SECOND = 1_000_000


def model(protocol: str, **more: object) -> Load:
    return Load(protocol=protocol, options={"controller": "model", **more})


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("loss", "p50", "p99"), [(0.05, 1.5, 4.1), (0.2, 3, 12)])
def test_a_trickle_waits_for_a_few_round_trips_at_the_most(protocol: str, loss: float, p50: float, p99: float) -> None:
    """100 messages a second. Under NewReno half of them waited for more than a second at a loss of 20 %."""
    path = Path(rate_mbit=20, round_trip_ms=20, loss=loss)
    world = Bottleneck(path, [Load(protocol=protocol, options={"controller": "model"}, interval_us=10_000)], seed=1)
    world.run(0, 30 * SECOND)
    (flow,) = world.flows
    times_us = sorted(flow.latencies_us)
    assert (quantile(times_us, 50) or 0) <= p50 * 20_000
    assert (quantile(times_us, 99) or 0) <= p99 * 20_000
    assert not flow.failed
    assert flow.waiting <= 12
