"""What tests of several rooms share."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler.loadscope import LoadScopeScheduling

ROOT = Path(__file__).parent.parent

Tshark = Callable[[Path, Sequence[str]], list[dict[str, str]]]
"""Gives the asked fields of every frame of a capture, as text."""

# A machine that is busy with something else is no reason to fail; what is tested here is not speed.
settings.register_profile("fairway", deadline=None, print_blob=True)
settings.load_profile("fairway")


SPARK = ("tests/lake/", "tests/cli/test_demo.py")
"""Where a Spark session runs: two of them at once fight for two cores, so one worker gets them all."""


class OneSession(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives all tests with Spark to one worker of a run, first, and all others one by one to whoever is free: many of
    them wait for real timers, so that two workers for them keep one core busy."""

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if nodeid.startswith(SPARK) else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneSession:
    """Spreads the tests; xdist's own groups do nothing under pytest 9."""
    return OneSession(config, log)


@pytest.fixture(scope="session")
def tshark() -> Tshark:
    """Gives a reader of captures that is not ours, installed if it is missing; never skipped."""
    subprocess.run([sys.executable, ROOT / "scripts" / "require.py", "tshark"], check=True)
    return read_with_tshark


def read_with_tshark(path: Path, fields: Sequence[str]) -> list[dict[str, str]]:
    """Lets tshark judge every checksum and print fields."""
    command = ["tshark", "-n", "-r", str(path), "-T", "fields", "-E", "separator=/t"]
    command += ["-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]
    for field in fields:
        command += ["-e", field]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [dict(zip(fields, line.split("\t"), strict=True)) for line in printed.splitlines()]
