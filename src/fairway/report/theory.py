"""Closed forms that the simulator must agree with, within the confidence of their samples.

They hold where nothing but independent loss disturbs: one packet in flight at a time, a timer longer than the round
trip, and a limit of time that is out of reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import sqrt

from fairway.core.random_source import MILLION


@dataclass(frozen=True)
class Expectation:
    """The mean and the variance of a count."""

    mean: Fraction
    variance: Fraction

    def deviates_by(self, observed: int) -> float:
        """Return how many standard deviations an observation lies from the mean, with its sign."""
        return float(observed - self.mean) / sqrt(self.variance)


def exchange_fails(loss: int) -> Fraction:
    """Return the probability that a packet or its acknowledgement is lost, for a loss per million each way."""
    passes = Fraction(MILLION - loss, MILLION)
    return 1 - passes * passes


def repeats_until_acknowledged(loss: int, messages: int) -> Expectation:
    """Count repeats when each message is repeated until it is acknowledged: a geometric law for each of them."""
    fails = exchange_fails(loss)
    return Expectation(messages * fails / (1 - fails), messages * fails / (1 - fails) ** 2)


def gives_up(loss: int, transmissions: int, messages: int) -> Expectation:
    """Count the messages of which all transmissions went without an acknowledgement: a binomial law."""
    fails = exchange_fails(loss) ** transmissions
    return Expectation(messages * fails, messages * fails * (1 - fails))


def response_bytes_per_s(loss: int, round_trip_us: int, packet_bytes: int) -> float:
    """Return the rate of a NewReno sender under independent loss: a window that falls by half each time one of
    `3 / 2 * window ** 2` packets is lost. The loss is per million and not 0."""
    return packet_bytes * sqrt(1.5 * MILLION / loss) * 1_000_000 / round_trip_us
