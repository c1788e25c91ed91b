"""A sweep ends with the same table, whatever happened on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from fairway.core.tables import RUNS
from fairway.lake.lab.folder import BadLabFolder, LabFolder, run_chunk
from fairway.lake.lab.grid import parse
from fairway.lake.lab.sweep import sweep
from fairway.lake.schemas import arrow_schema
from tests.lake.cluster import ON_A_CLUSTER, cluster, environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READY_WITHIN_S = 400

GRID = """
[[sweep]]
protocol = ["udpc", "rup"]
seeds = 12
link = { loss = [0, 0.1] }
load = { messages = 30 }
"""


def rows_of(folder: LabFolder) -> list[dict[str, Any]]:
    table = ds.dataset(folder.runs, format="parquet").to_table()
    assert table.schema.equals(arrow_schema(RUNS))
    return sorted(table.to_pylist(), key=lambda row: int(row["cell"]))


def fresh(path: Path, grid: str = GRID) -> LabFolder:
    folder = LabFolder(path)
    folder.prepare()
    folder.add(parse(grid))
    return folder


def run_here(folder: LabFolder) -> None:
    for chunk in folder.pending():
        run_chunk(chunk, folder)


def wait_for_a_chunk(runs: Path, running: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while not any(runs.glob("chunk-*.parquet")):
        assert running.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_spark_gives_the_rows_that_a_plain_loop_gives(spark: SparkSession, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    on_spark, here = fresh(tmp_path / "spark"), fresh(tmp_path / "here")
    assert sweep(spark, on_spark, lambda done, total: seen.append((done, total))) == 48
    run_here(here)
    assert rows_of(on_spark) == rows_of(here)
    assert [row["cell"] for row in rows_of(on_spark)] == list(range(48))
    assert all(total == 48 for _, total in seen)


def test_what_is_there_is_not_run_again_and_what_is_missing_is(spark: SparkSession, tmp_path: Path) -> None:
    folder = fresh(tmp_path / "lab")
    run_here(folder)
    whole = rows_of(folder)
    lost, *kept = sorted(folder.runs.iterdir())
    before = {path: path.stat().st_mtime_ns for path in kept}
    lost.unlink()
    assert sweep(spark, folder) == 48 - len(ds.dataset(kept, format="parquet").to_table())
    assert rows_of(folder) == whole
    assert {path: path.stat().st_mtime_ns for path in kept} == before
    assert sweep(spark, folder) == 0


def test_cells_that_a_grid_adds_later_get_the_next_numbers(tmp_path: Path) -> None:
    folder = fresh(tmp_path / "lab")
    run_here(folder)
    before = rows_of(folder)
    assert folder.add(parse(GRID)) == 0
    assert folder.add(parse(GRID.replace("seeds = 12", "seeds = 13"))) == 4
    run_here(folder)
    assert rows_of(folder)[:48] == before
    assert [row["seed"] for row in rows_of(folder)[48:]] == [13] * 4


def test_a_driver_that_is_killed_leaves_whole_chunks_and_the_next_one_ends_with_the_same_table(tmp_path: Path) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(GRID.replace("messages = 30", "messages = 600"))
    here = fresh(tmp_path / "here", grid.read_text())
    run_here(here)
    command = [sys.executable, "-m", "fairway", "lab", "run", str(grid), "--out", str(tmp_path / "lab")]
    killed = subprocess.Popen([*command, "--master", "local[2]"], start_new_session=True)
    wait_for_a_chunk(tmp_path / "lab" / "runs", killed)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert LabFolder(tmp_path / "lab").pending()
    subprocess.run([*command, "--master", "local[2]"], check=True, capture_output=True)
    assert rows_of(LabFolder(tmp_path / "lab")) == rows_of(here)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_sweep_that_is_told_to_end_does_so_in_the_middle_of_its_job(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(GRID.replace("messages = 30", "messages = 600").replace("seeds = 12", "seeds = 500"))
    command = [sys.executable, "-m", "fairway", "lab", "run", str(grid), "--out", str(tmp_path / "lab")]
    with subprocess.Popen([*command, "--master", "local[1]"]) as running:
        try:
            wait_for_a_chunk(tmp_path / "lab" / "runs", running)
            running.send_signal(number)
            assert running.wait(timeout=READY_WITHIN_S) == code
        finally:
            running.kill()
    assert LabFolder(tmp_path / "lab").pending()


def test_an_executor_that_is_killed_changes_no_row(tmp_path: Path) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(GRID.replace("messages = 30", "messages = 600"))
    here = fresh(tmp_path / "here", grid.read_text())
    run_here(here)
    out = tmp_path / "lab"
    with cluster(tmp_path) as (url, workers):
        words = [word for conf in ON_A_CLUSTER for word in ("--conf", conf)]
        command = [sys.executable, "-m", "fairway", "lab", "run", str(grid), "--out", str(out), "--master", url, *words]
        with subprocess.Popen(command, env=environment()) as running:
            try:
                wait_for_a_chunk(out / "runs", running)
                workers[0].kill()
                assert LabFolder(out).pending(), "the sweep was over before the worker was killed"
                assert running.wait(timeout=READY_WITHIN_S) == 0
            finally:
                running.kill()
    assert rows_of(LabFolder(out)) == rows_of(here)


def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(BadLabFolder, match="holds something that is not a sweep"):
        LabFolder(tmp_path).prepare()
    with pytest.raises(BadLabFolder, match="holds no sweep"):
        LabFolder(tmp_path).chunks()
