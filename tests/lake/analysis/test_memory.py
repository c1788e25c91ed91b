"""What a Python worker needs for one giant episode: docs/tables.md says how much."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT

MEGABYTES_MAX = 1_000
"""Of this nothing grows with the packets of a session but what is kept of udpc's numbers until it is recognised."""


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["udpc", "mrp"])
def test_an_episode_of_two_million_packets_needs_little_memory(protocol: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.lake.analysis.giant", "2000000", protocol],
        check=True, capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert int(done.stdout) <= MEGABYTES_MAX
