"""docs/tables.md is what the tables' columns and the example make it, and its examples run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fairway.core.tables import ANALYSIS_TABLES
from tests.examples import blocks
from tests.lake.analysis.example import write_example
from tests.lake.pages import TABLES as PAGE
from tests.lake.pages import assert_same_answers, questions, tables_page
from tests.torture.readers import duckdb_with_delta

QUESTIONS = questions(PAGE)
SOURCES, NOTEBOOK, SPARK, POLARS = blocks(PAGE, "python")
DUCKDB = blocks(PAGE, "sql")[0].split("-- DuckDB\n")[1]  # without INSTALL: the extension is a package here


@pytest.fixture(scope="module")
def example(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with captures, in which the notebook of the page has run."""
    folder = tmp_path_factory.mktemp("example")
    (folder / "captures").mkdir()
    write_example(folder / "captures")
    exec(inside(folder, NOTEBOOK), {"spark": spark})
    return folder


def inside(folder: Path, block: str) -> str:
    """Return a block with its paths in a folder: the tests' Spark was started in another."""
    return re.sub(r"""(["'])(lake|captures/|captures"\]|goodput)""", rf"\1{folder}/\2", block)


@pytest.fixture(scope="module")
def duckdb(example: Path) -> Any:
    with duckdb_with_delta() as connection:
        connection.execute(inside(example, DUCKDB))
        yield connection


def test_the_page_is_what_is_computed_today(spark: SparkSession, example: Path) -> None:
    exec(inside(example, SPARK), {"spark": spark})
    assert tables_page(spark) == PAGE.read_text()


def test_the_notebook_draws_a_plot(example: Path) -> None:
    drawn = (example / "goodput.html").read_text()
    assert "Goodput" in drawn
    assert "data-chart" in drawn


def test_the_sources_of_the_page_have_rows(spark: SparkSession, example: Path) -> None:
    named: dict[str, Any] = {"spark": spark}
    exec(inside(example, SOURCES), named)
    assert named["records"].count() == named["decoded"].count() == named["packets"].count()


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.text)
def test_spark_duckdb_and_polars_have_the_same_answer(
    question: Any, spark: SparkSession, duckdb: Any, example: Path
) -> None:
    opened: dict[str, Any] = {}
    exec(inside(example, SPARK), {"spark": spark})
    exec(inside(example, POLARS), opened)
    assert_same_answers(question, spark, duckdb, opened)


def test_every_table_has_an_example() -> None:
    assert {table.name for table in ANALYSIS_TABLES} == {
        word for question in QUESTIONS for word in question.spark.replace(",", " ").split() if word in TABLES
    }


TABLES = {table.name for table in ANALYSIS_TABLES}
