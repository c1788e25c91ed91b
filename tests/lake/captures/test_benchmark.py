"""The bench of captures measures what it says, on a capture that holds what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from benchmarks.captures.made import make_capture
from benchmarks.captures.run import _add, _note, dpkt_seconds, goals, show, tshark_seconds
from benchmarks.captures.worker import Assignment, grouped
from benchmarks.captures.worker import packets_table as written
from benchmarks.frame import Results, measured
from tests.lake.analysis.tables import packets_table
from tests.lake.captures.reading import datagrams_of

DATAGRAMS = 16_000


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench") / "mixed.pcap"
    make_capture(path, DATAGRAMS)
    return path


def test_the_made_capture_is_recognised_in_equal_parts(spark: SparkSession, capture: Path, tmp_path: Path) -> None:
    assert written(spark, Assignment(str(capture), 2, 1, str(tmp_path))) == DATAGRAMS
    packets = packets_table(datagrams_of([capture], payload=False))
    found = packets.group_by(["protocol", "reason"]).aggregate([([], "count_all")]).to_pylist()
    assert {(row["protocol"], row["reason"], row["count_all"]) for row in found} == {
        (name, None, DATAGRAMS // 4) for name in ("udpc", "mrp", "rup", "pydevts")
    }
    assert capture.stat().st_size / DATAGRAMS == pytest.approx(250, rel=0.1)


def test_every_datagram_is_decoded_and_grouped(spark: SparkSession, capture: Path, tmp_path: Path) -> None:
    found = grouped(spark, Assignment(str(capture), 2, 1, str(tmp_path)))
    counts: dict[str, int] = {}
    for row in found:
        assert row["kind"] not in (None, "malformed")
        counts[row["protocol"]] = counts.get(row["protocol"], 0) + row["datagrams"]
    assert counts == dict.fromkeys(("udpc", "mrp", "rup", "pydevts"), DATAGRAMS // 4)


def test_the_peers_read_the_made_capture(capture: Path) -> None:
    tshark = tshark_seconds(capture, 500)
    assert tshark is not None
    assert tshark > 0
    assert dpkt_seconds(capture, 500) is not None


def answer(step: str, cores: int, *warm_s: float) -> dict[str, Any]:
    return {"step": step, "cores": cores, "session_s": 4.0, "cold_s": 1.0, "warm_s": list(warm_s)}


def results() -> Results:
    found = Results(3, 0.0)
    _note(found, 1, "steady", "tshark", 10.0, 1_000)
    _note(found, 1, "steady", "dpkt", 5.0, 1_000)
    steps = (("decoded and grouped", 1, 0.5, 0.4, 9.0), ("decoded and grouped", 2, 0.25), ("packets table", 2, 2.0))
    _add(found, [answer(*step) for step in steps], 1_000)
    return found


def test_figures_are_medians_beside_the_peers() -> None:
    found = {(row["reader"], row["cores"], row["state"]): row for row in show(results()).rows["Captures"]}
    assert found["decoded and grouped", 1, "steady"]["seconds"] == 0.5
    assert found["decoded and grouped", 1, "cold"]["seconds"] == 5.0
    assert found["decoded and grouped", 2, "steady"]["times tshark"] == 40.0
    assert found["packets table", 2, "steady"]["times dpkt"] == 2.5


def test_goals_are_judged_where_both_sides_were_measured() -> None:
    assert {(one.goal, one.against): (one.values[0], one.met) for one in measured(goals(results()))} == {
        ("decoded and grouped", "times tshark"): (40.0, True),
        ("decoded and grouped", "times dpkt"): (20.0, True),
        ("packets table", "times tshark"): (5.0, False),
        ("decoded and grouped", "2 cores of linear"): (1.0, True),
    }
