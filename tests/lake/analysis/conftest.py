"""The tables of many simulated runs, computed once, and the tests' session for commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from pyspark.sql import DataFrame, SparkSession

from fairway.lake import session
from fairway.sim.configuration import RunOptions, case
from tests.lake.analysis.tables import made
from tests.lake.analysis.worlds import World, simulated
from tests.lake.captures.reading import datagrams_of

SEEDS = 80
VARIANTS = (("udpc", None), ("mrp", "stamped"), ("mrp", "piggyback"), ("rup", None), ("pydevts", None))


@dataclass(frozen=True, slots=True)
class Truth:
    """Runs, and the tables made from what their nodes saw."""

    worlds: list[World]
    tables: Mapping[str, DataFrame]


def run_options(protocol: str, layout: str | None, seed: int) -> RunOptions:
    """Return a run with loss, duplicates and reordering; every third one goes both ways."""
    return RunOptions(
        protocol=protocol,
        layout=layout,
        loss=0.02 * (seed % 5),
        duplicate=0.02 * (seed % 4),
        reorder=0.02 * (seed % 3),
        jitter_ms=seed % 7,
        messages=8,
        size=2_500 if protocol == "rup" else 40,
        two_way=seed % 3 == 0,
    )


@pytest.fixture(scope="session")
def truth(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Truth:
    worlds: list[World] = []
    for seed in range(SEEDS):
        for protocol, layout in VARIANTS:
            worlds.append(simulated(len(worlds), case(run_options(protocol, layout, seed)), seed))
    folder = tmp_path_factory.mktemp("truth")
    capture = folder / "all.pcapng"
    capture.write_bytes(b"".join(world.capture for world in worlds))
    datagrams = datagrams_of([capture], payload=False)
    return Truth(worlds, {name: table.cache() for name, table in made(spark, datagrams).items()})


@pytest.fixture
def one_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands use the tests' session: starting one costs more than all else."""
    monkeypatch.setattr(session, "start", lambda name, master, settings: spark)
    monkeypatch.setattr(session, "end", lambda spark: None)
