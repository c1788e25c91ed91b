"""docs/tables.md is what the tables' columns and the example make it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fairway.lake.analysis.job import analyze
from fairway.store.lakes import Lake
from tests.lake.analysis.example import write_example
from tests.lake.analysis.page import QUESTIONS, page

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[3] / "docs" / "tables.md"


def test_the_page_is_what_is_computed_today(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    analyze(spark, lake, [str(path) for path in write_example(tmp_path)])
    assert page(spark, lake.path) == PAGE.read_text()
    assert len(QUESTIONS) == 10
