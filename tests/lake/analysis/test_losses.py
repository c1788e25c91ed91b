"""What one point says of loss is near what was lost, for every protocol and from little loss to much."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from fairway.sim.configuration import RunOptions, case
from tests.lake.analysis.conftest import VARIANTS
from tests.lake.analysis.tables import made
from tests.lake.analysis.worlds import simulated
from tests.lake.captures.reading import datagrams

RATES = (0.02, 0.1, 0.25)
SEED = 29
ERROR = 0.025
"""The standard error that three hundred packets leave at most; half of the retransmissions are of acknowledgements."""
Estimates = dict[tuple[str, str, float], float]
"""By point, protocol with its layout, and true rate."""


def run_options(protocol: str, layout: str | None, rate: float) -> RunOptions:
    """Return a run of some three hundred numbered packets, of which that share is lost each way."""
    if protocol == "rup":
        return RunOptions(protocol=protocol, loss=rate, messages=20, size=20_000)
    return RunOptions(protocol=protocol, layout=layout, loss=rate, messages=300, size=40, interval_ms=5)


@pytest.fixture(scope="module")
def estimates(spark: SparkSession) -> Estimates:
    runs = [(protocol, layout, rate) for rate in RATES for protocol, layout in VARIANTS]
    worlds = [simulated(number, case(run_options(*run)), SEED) for number, run in enumerate(runs)]
    rows = datagrams((f"{number}.pcapng", world.capture) for number, world in enumerate(worlds))
    told = made(spark, rows)["sessions"].select("caller", "point", "loss_out").toArrow()
    found: dict[tuple[Any, Any], Any] = {(row["caller"], row["point"]): row["loss_out"] for row in told.to_pylist()}
    return {
        (point, f"{protocol} {layout or ''}".strip(), rate): found[world.hosts[1], point]
        for (protocol, layout, rate), world in zip(runs, worlds, strict=True)
        for point in ("client 1", "server")
    }


@pytest.mark.parametrize("point", ["client 1", "server"])
@pytest.mark.parametrize("rate", RATES)
def test_the_estimate_is_right_on_average_and_never_far_off(estimates: Estimates, point: str, rate: float) -> None:
    of_rate = {name: loss for (where, name, true), loss in estimates.items() if (where, true) == (point, rate)}
    assert len(of_rate) == len(VARIANTS)
    # Their acknowledgements are a mark and name no packet, so that more is repeated than was lost.
    marks = [of_rate.pop("mrp piggyback"), of_rate.pop("rup")]
    assert all(rate - 3 * ERROR <= loss <= 1.5 * rate + 3 * ERROR for loss in marks), marks
    mean = sum(of_rate.values()) / len(of_rate)
    assert mean == pytest.approx(rate, abs=3 * ERROR / len(of_rate) ** 0.5)
    assert all(loss == pytest.approx(rate, abs=3 * ERROR) for loss in of_rate.values()), of_rate
