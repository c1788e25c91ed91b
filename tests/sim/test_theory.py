"""The simulator agrees with closed forms; seeds are fixed, so these tests never flicker."""

from __future__ import annotations

from fractions import Fraction

import pytest

from fairway.protocols import make_options
from fairway.report.theory import exchange_fails, gives_up, repeats_until_acknowledged
from fairway.sim.configuration import Configuration
from fairway.sim.load import Load
from fairway.sim.pipe import Faults
from fairway.sim.result import Result
from fairway.sim.run import run

SIGMAS = 3.5
"""A true law is violated by accident once in two thousand samples, and the samples here are fixed."""


def one_at_a_time(protocol: str, messages: int, faults: Faults, seed: int, **options: object) -> Result:
    configuration = Configuration(
        protocol=protocol,
        options=make_options(protocol, window=1, controller="eager", **options),
        faults=faults,
        load=Load(messages=messages),
        fault_us=10**12,
    )
    result = run(configuration, seed)
    assert result.passed, result.violations
    return result


@pytest.mark.parametrize(("loss", "seed"), [(20_000, 1), (100_000, 2), (250_000, 3)])
def test_udpc_repeats_follow_the_geometric_law(loss: int, seed: int) -> None:
    result = one_at_a_time("udpc", 2_000, Faults(loss=loss, delay_us=2_000), seed)
    expected = repeats_until_acknowledged(loss, 2_000)
    assert abs(expected.deviates_by(result.nodes[1].retransmissions)) < SIGMAS


def test_the_geometric_law_notices_a_loss_that_is_three_tenths_too_high() -> None:
    # 2,000 messages tell 13 % from 10 % by seven standard deviations; 11 % would be too close for this sample.
    result = one_at_a_time("udpc", 2_000, Faults(loss=130_000, delay_us=2_000), 2)
    assert repeats_until_acknowledged(100_000, 2_000).deviates_by(result.nodes[1].retransmissions) > SIGMAS


def test_half_the_datagrams_lost_each_way_lets_one_exchange_in_four_through() -> None:
    assert exchange_fails(500_000) == Fraction(3, 4)


@pytest.mark.parametrize("delay_us", [5_000, 40_000])
@pytest.mark.parametrize("layout", ["stamped", "piggyback"])
def test_mrp_with_a_window_of_one_sends_one_packet_per_round_trip(layout: str, delay_us: int) -> None:
    # The resend delay starts at 50 ms; a round trip of 80 ms is learned from the stamps of the first packets.
    result = one_at_a_time("mrp", 200, Faults(delay_us=delay_us), 1, layout=layout)
    expected_us = 200 * 2 * delay_us
    assert expected_us <= result.load_us <= expected_us * 102 // 100


@pytest.mark.parametrize(("loss", "seed"), [(400_000, 4), (600_000, 5)])
def test_pydevts_gives_up_as_often_as_the_binomial_law_says(loss: int, seed: int) -> None:
    configuration = Configuration(
        protocol="pydevts",
        options=make_options("pydevts", window=3_000, controller="eager", ack_repeats_max=0),
        faults=Faults(loss=loss),
        load=Load(messages=3_000),
        fault_us=10**12,
    )
    result = run(configuration, seed)
    assert result.passed, result.violations
    expected = gives_up(loss, 11, 3_000)
    assert abs(expected.deviates_by(result.outcomes["unknown"])) < SIGMAS
