"""Captures whose truth anybody can make again: one simulated conversation of each protocol over a bad link."""

from __future__ import annotations

from pathlib import Path

from fairway.sim.configuration import RunOptions, case
from tests.lake.analysis.worlds import simulated

SEED = 7
RUNS = {
    "udpc": RunOptions(protocol="udpc", loss=0.05, duplicate=0.02, messages=60),
    "mrp": RunOptions(protocol="mrp", loss=0.05, reorder=0.05, messages=60, two_way=True),
    "rup": RunOptions(protocol="rup", loss=0.1, messages=12, size=20_000),
    "pydevts": RunOptions(protocol="pydevts", loss=0.1, corrupt=0.05, messages=40),
}


def write_example(folder: Path) -> list[Path]:
    """Write `PROTOCOL.pcapng` for each protocol, captured at both ends, and return the paths."""
    paths = []
    for number, (protocol, run_options) in enumerate(RUNS.items()):
        paths.append(folder / f"{protocol}.pcapng")
        paths[-1].write_bytes(simulated(number, case(run_options), SEED).capture)
    return paths
