"""The page of a sweep says what its table says."""

from __future__ import annotations

from pathlib import Path
from statistics import mean, stdev

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fairway.core.errors import BadOption
from fairway.core.tables import RUNS
from fairway.lake.schemas import arrow_schema
from fairway.report.lab import lab_report
from fairway.report.runs import Estimate, read_sweep
from fairway.report.situations import GOODPUT, LATENCY, verdict

Row = dict[str, object]


def row(cell: int, **changed: object) -> Row:
    """Return a run of udpc at its plainest."""
    plain: Row = {
        "cell": cell, "key": f"{cell:032x}", "protocol": "udpc", "variant": "udpc", "controller": "newreno",
        "window": 9, "options": "{}", "loss": 0.0, "burst_length": 1.0, "delay_ms": 10.0, "jitter_ms": 0.0,
        "bandwidth": 0, "queue_bytes": 65536, "reorder": 0.0, "duplicate": 0.0, "corrupt": 0.0,
        "messages": 100, "size_bytes": 200,
        "interval_ms": 5.0, "flows": 1, "seed": 1, "delivered": 100, "acknowledged": 100, "failed": 0,
        "latency_p50_us": 10_000, "latency_p90_us": 10_000, "latency_p99_us": 10_000, "acknowledgement_p50_us": 20_000,
        "acknowledgement_p99_us": 20_000, "goodput_bytes_per_s": 40_000.0, "load_us": 500_000, "datagrams": 203,
        "datagrams_per_message": 2.03, "bytes_per_message": 230.0, "retransmissions": 0, "duplicates": 0,
        "fairness": None, "passed": True, "digest": "00",
    }  # fmt: skip
    return plain | changed


def sweep_of(folder: Path, rows: list[Row]) -> Path:
    (folder / "runs").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=arrow_schema(RUNS)), folder / "runs" / "chunk-000000.parquet")
    return folder


def grid(latencies: dict[str, list[int]], **changed: object) -> list[Row]:
    """Return a row per variant, seed, loss and delay; the latency is that of the variant's seed."""
    return [
        row(0, protocol=name, variant=name, seed=seed, latency_p99_us=value, loss=loss, delay_ms=delay, **changed)
        for name, values in latencies.items()
        for seed, value in enumerate(values)
        for loss in (0.0, 0.05)
        for delay in (10.0, 50.0)
    ]


def test_the_interval_is_students_for_the_number_of_seeds(tmp_path: Path) -> None:
    values = [10_000, 14_000, 9_000]
    sweep = read_sweep(sweep_of(tmp_path, [row(n, seed=n, latency_p99_us=value) for n, value in enumerate(values)]))
    (point,) = sweep.points
    found = point["latency_p99_us"]
    assert found is not None
    assert found.mean == pytest.approx(mean(values))
    assert found.margin == pytest.approx(4.303 * stdev(values) / 3**0.5, rel=1e-3)


def test_a_single_run_has_no_interval_and_is_never_clear_of_another(tmp_path: Path) -> None:
    sweep = read_sweep(sweep_of(tmp_path, [row(0)]))
    found = sweep.points[0]["latency_p99_us"]
    assert found == Estimate(10_000.0, None)
    assert not found.clear_of(Estimate(1.0, 0.1))


def test_the_best_has_the_least_latency_among_those_that_lose_nothing(tmp_path: Path) -> None:
    rows = [
        *[row(n, seed=n, variant="quick", latency_p99_us=5_000, failed=1) for n in range(3)],
        *[row(n, seed=n, variant="whole", latency_p99_us=9_000 + n) for n in range(3)],
        *[row(n, seed=n, variant="slow", latency_p99_us=18_002 + n) for n in range(3)],
    ]
    found = verdict(LATENCY, read_sweep(sweep_of(tmp_path, rows)).points)
    assert found is not None
    assert (found.best.variant, found.second, found.clear) == ("whole", "slow", True)
    assert found.ratio == pytest.approx(2, rel=1e-3)


def test_the_best_has_the_most_goodput_where_nothing_paces_the_sender(tmp_path: Path) -> None:
    rows = [
        row(n, variant=name, interval_ms=0.0, goodput_bytes_per_s=rate)
        for n, (name, rate) in enumerate([("a", 1e5), ("b", 3e5)])
    ]
    found = verdict(GOODPUT, read_sweep(sweep_of(tmp_path, rows)).points)
    assert found is not None
    assert (found.best.variant, found.ratio, found.clear) == ("b", 3.0, False)


def test_the_page_holds_recommendations_pictures_a_heat_map_and_theory(tmp_path: Path) -> None:
    rows = grid({"udpc": [10_000, 10_100, 10_200], "pydevts": [30_000, 30_100, 30_200]})
    rows += grid({"mrp": [10_000, 10_000]}, window=1, interval_ms=0.0)
    text = lab_report(sweep_of(tmp_path / "lab", rows))
    for words in ("Recommendations", "Who does best: latency", "Theory beside measurement", "geometric law", "2.98 ×"):
        assert words in text
    assert "no clear winner" in text
    assert "default-src &#x27;none&#x27;" in text


def test_broken_promises_are_counted_in_sight(tmp_path: Path) -> None:
    sweep = read_sweep(sweep_of(tmp_path, [row(0), row(1, seed=2, passed=False)]))
    assert (sweep.runs, sweep.broken) == (2, 1)


def test_a_folder_without_runs_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="holds no finished runs"):
        lab_report(tmp_path)
