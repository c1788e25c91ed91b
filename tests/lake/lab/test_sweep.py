"""A sweep ends with the same table, however it was run."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from fairway.lake.lab.grid import parse
from fairway.lake.lab.sweep import BadLabFolder, LabFolder, sweep
from tests.lake.lab.folders import GRID, fresh, rows_of, run_here


def test_spark_gives_the_rows_that_a_plain_loop_gives(spark: SparkSession, tmp_path: Path) -> None:
    on_spark, here = fresh(tmp_path / "spark"), fresh(tmp_path / "here")
    assert sweep(spark, on_spark) == 48
    run_here(here)
    assert rows_of(on_spark) == rows_of(here)
    assert [row["cell"] for row in rows_of(on_spark)] == list(range(48))
    assert on_spark.done() == {chunk.name for chunk in on_spark.chunks()}


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


def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(BadLabFolder, match="holds something that is not a sweep"):
        LabFolder(tmp_path).prepare()
    with pytest.raises(BadLabFolder, match="holds no sweep"):
        LabFolder(tmp_path).chunks()
