"""docs/messages.md is what the columns and the example make it, and its examples run as they stand there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars
import pytest
from pyspark.sql import SparkSession

from fairway.core.tables import LANDED_TABLES
from fairway.lake.landing.tables import compact
from fairway.store.lakes import Lake
from tests.conftest import ROOT
from tests.examples import blocks
from tests.lake.landing.example import land_example
from tests.lake.landing.fake import FakeGateway
from tests.lake.landing.landing import land
from tests.lake.pages import LANDED as PAGE
from tests.lake.pages import TYPED, assert_same_answers, messages_page, questions
from tests.torture.readers import duckdb_with_delta

QUESTIONS = questions(PAGE)
ROWS = PAGE.read_text().partition("## Types")[2].partition("\n## ")[0].splitlines()[4:]
TYPES = {name: tuple(kinds) for name, *kinds in (row.strip("| ").split(" | ") for row in ROWS if row)}
"""What Spark SQL, DuckDB and Polars call the types of the page."""
SPARK, POLARS = blocks(PAGE, "python")
DUCKDB = blocks(PAGE, "sql")[0].split("-- DuckDB\n")[1]  # without INSTALL: the extension is a package here


@pytest.fixture(scope="module")
def example(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("example")
    land_example(spark, folder / "lake")
    exec(SPARK.replace("load(name)", f"load('{folder}/' + name)"), {"spark": spark})
    return folder


@pytest.fixture(scope="module")
def duckdb(example: Path) -> Any:
    with duckdb_with_delta() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(DUCKDB.replace("delta_scan('", f"delta_scan('{example}/"))
        yield connection


def test_the_page_is_what_is_computed_today(spark: SparkSession, example: Path) -> None:
    assert messages_page(spark) == PAGE.read_text()


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.text)
def test_spark_duckdb_and_polars_have_the_same_answer(
    question: Any, spark: SparkSession, duckdb: Any, example: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(example)
    opened: dict[str, Any] = {}
    exec(POLARS, opened)
    assert_same_answers(question, spark, duckdb, opened)


@pytest.mark.parametrize("table", [*LANDED_TABLES, TYPED], ids=lambda table: table.name)
def test_the_types_are_what_the_engines_say(table: Any, spark: SparkSession, duckdb: Any, example: Path) -> None:
    name = table.name if table in LANDED_TABLES else "readings"
    in_spark = {field.name: field.dataType.simpleString().upper() for field in spark.table(name).schema}
    in_duckdb = {row[0]: row[1] for row in duckdb.execute(f"DESCRIBE {name}").fetchall()}
    in_polars = {key: str(kind) for key, kind in polars.read_delta(str(example / "lake/tables" / name)).schema.items()}
    for column in table.columns:
        if column.name != "...":
            found = tuple(types[column.name] for types in (in_spark, in_duckdb, in_polars))
            assert found == TYPES[column.type], column.name


@pytest.mark.parametrize("document", ["README.md", "docs/lake.md"])
def test_the_queries_of_other_pages_run(document: str, duckdb: Any, example: Path) -> None:
    queries = blocks(ROOT / document, "sql")
    assert queries
    for query in queries:
        found = duckdb.execute(
            query.split("-- DuckDB\n")[1].replace("delta_scan('", f"delta_scan('{example}/")
        ).fetchall()
        assert sum(row[-1] for row in found) == 12


def test_a_plain_glob_counts_rows_twice_where_files_were_compacted(
    spark: SparkSession, duckdb: Any, gateway: FakeGateway, tmp_path: Path
) -> None:
    for _ in range(2):
        gateway.seal(8)
        land(spark, tmp_path)
    compact(Lake(tmp_path), lambda _: None)
    counted = "SELECT count(*) FROM {}('{}')"
    table = tmp_path / "tables" / "messages"
    assert duckdb.execute(counted.format("delta_scan", table)).fetchone() == (16,)
    assert duckdb.execute(counted.format("read_parquet", f"{table}/day=*/**/*.parquet")).fetchone() == (32,)


def test_no_column_needs_quoting(spark: SparkSession, duckdb: Any) -> None:
    reserved = {row.keyword.lower() for row in spark.sql("SELECT keyword FROM sql_keywords() WHERE reserved").collect()}
    bare = "keyword_category IN ('reserved', 'type_function')"
    reserved |= {
        row[0] for row in duckdb.execute(f"SELECT keyword_name FROM duckdb_keywords() WHERE {bare}").fetchall()
    }
    assert {"table", "offset"} <= reserved
    names = {column.name for table in (*LANDED_TABLES, TYPED) for column in table.columns}
    assert names & reserved == set()
