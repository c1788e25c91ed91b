"""What loss costs, in the simulator: repair by name keeps the rate, a cumulative mark cannot."""

from __future__ import annotations

import pytest

from fairway.sim.cases import Wishes, case
from fairway.sim.run import run

PART_BYTES = 1_158


def load_us(protocol: str, loss: float, layout: str | None = None) -> int:
    """Runs a windowed transfer over 50 ms round trips and tells how long it took."""
    messages, size = (5, 1_500 * PART_BYTES) if protocol == "rup" else (7_500, 64)
    wishes = Wishes(
        protocol=protocol, messages=messages, size=size, loss=loss, delay_ms=25, controller="eager", window=256,
        layout=layout,
    )  # fmt: skip
    result = run(case(wishes), 3)
    assert result.passed, result.violations
    return result.load_us


@pytest.mark.parametrize("protocol", ["udpc", "mrp", "rup"])
def test_one_per_cent_loss_leaves_at_least_four_fifths_of_the_rate(protocol: str) -> None:
    assert 100 * load_us(protocol, 0.0) >= 80 * load_us(protocol, 0.01)


def test_a_cumulative_acknowledgement_loses_more_because_it_names_one_hole_at_a_time() -> None:
    clean_us, lossy_us = load_us("mrp", 0.0, "piggyback"), load_us("mrp", 0.01, "piggyback")
    assert 45 * lossy_us <= 100 * clean_us <= 80 * lossy_us
