"""What a Python worker needs for one giant episode, which it holds as a whole: docs/tables.md says how much."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT

BYTES_MAX = 1_300
"""For each packet: its record, what it says as each of the four protocols until its own is known, and what is known of
it; here also its bytes in the file. Its row of texts is not among them: rows are written few at a time."""


@pytest.mark.long
def test_an_episode_of_two_million_packets_takes_no_more_memory_than_is_said() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.lake.analysis.giant", "2000000"],
        check=True, capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert int(done.stdout) <= BYTES_MAX
