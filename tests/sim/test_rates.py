"""What loss costs, in the simulator: repair by name keeps the rate, a cumulative mark cannot."""

from __future__ import annotations

import pytest

from fairway.protocols import make_options
from fairway.sim.configuration import Configuration, RunOptions, case
from fairway.sim.load import Load
from fairway.sim.pipe import Faults
from fairway.sim.run import run

PART_BYTES = 1_158


def load_us(protocol: str, loss: float, layout: str | None = None) -> int:
    """Run a windowed transfer over 50 ms round trips and return how long it took."""
    messages, size = (5, 1_500 * PART_BYTES) if protocol == "rup" else (7_500, 64)
    run_options = RunOptions(
        protocol=protocol, messages=messages, size=size, loss=loss, delay_ms=25, controller="eager", window=256,
        layout=layout,
    )  # fmt: skip
    result = run(case(run_options), 3)
    assert result.passed, result.violations
    return result.load_us


@pytest.mark.parametrize("protocol", ["udpc", "mrp", "rup"])
def test_one_per_cent_loss_leaves_at_least_four_fifths_of_the_rate(protocol: str) -> None:
    assert 100 * load_us(protocol, 0.0) >= 80 * load_us(protocol, 0.01)


@pytest.mark.parametrize("queue_bytes", [2_000_000, 8_000_000])
def test_five_per_cent_loss_on_a_short_path_leaves_rup_half_its_rate(queue_bytes: int) -> None:
    """Once the clock alone said what has landed: the flight grew past every queue, and 4 % of the rate were left."""

    def taken_us(loss_per_million: int) -> int:
        configuration = Configuration(
            protocol="rup",
            options=make_options("rup", controller="eager"),
            faults=Faults(
                loss=loss_per_million, delay_us=150, bandwidth_bytes_per_s=1_200_000_000, queue_bytes=queue_bytes
            ),
            load=Load(messages=6, bytes_min=3_600 * PART_BYTES, bytes_max=3_600 * PART_BYTES, batch=3),
            fault_us=60_000_000,
        )
        result = run(configuration, 1)
        assert result.passed, result.violations
        return result.load_us

    assert 2 * taken_us(0) >= taken_us(50_000)


def test_a_cumulative_acknowledgement_loses_more_because_it_names_one_hole_at_a_time() -> None:
    clean_us, lossy_us = load_us("mrp", 0.0, "piggyback"), load_us("mrp", 0.01, "piggyback")
    assert 45 * lossy_us <= 100 * clean_us <= 80 * lossy_us


@pytest.mark.parametrize(("protocol", "layout"), [("udpc", ""), ("mrp", "stamped"), ("mrp", "piggyback"), ("rup", "")])
def test_a_path_slower_than_the_first_guess_is_not_taken_for_a_full_one(protocol: str, layout: str) -> None:
    """Two seconds of messages over a round trip of 400 ms: time-outs before the first sample are the guess's fault."""
    options = {"layout": layout} if layout else {}
    configuration = Configuration(
        protocol=protocol,
        options=make_options(protocol, controller="newreno", **options),
        faults=Faults(delay_us=200_000),
        load=Load(messages=200, bytes_min=200, bytes_max=200, interval_us=10_000, batch=1),
        fault_us=60_000_000,
    )
    result = run(configuration, 1)
    assert result.passed, result.violations
    assert result.load_us <= 4_000_000
