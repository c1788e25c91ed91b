"""Runs that were frozen stay as they were: every datagram, time, token and kind of outcome."""

from __future__ import annotations

import pytest

from fairway.protocols import NAMES

from .frozen import BLOCK, SEEDS, changed_seeds

SAMPLE = (3, 17, 42)


@pytest.mark.parametrize("protocol", NAMES)
@pytest.mark.parametrize("block", SAMPLE)
def test_a_sample_of_the_frozen_runs_is_unchanged(protocol: str, block: int) -> None:
    assert changed_seeds(protocol, [block]) == []


@pytest.mark.long
@pytest.mark.parametrize("protocol", NAMES)
def test_the_frozen_runs_are_unchanged(protocol: str) -> None:
    assert changed_seeds(protocol, range(SEEDS // BLOCK)) == []
