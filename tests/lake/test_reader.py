"""`fairway.delta`: a table as a whole, at a version, and what is new since one."""

from __future__ import annotations

import json
import shutil
from datetime import date
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit
from pyspark.sql.types import DateType, LongType, StructField, StructType

from fairway.lake import register
from fairway.lake.reader import read_table
from fairway.lake.sink import write
from fairway.store import tending
from fairway.store.delta import Delta
from fairway.store.locations import Location

SCHEMA = pa.schema([pa.field("number", pa.int64(), nullable=False), ("text", pa.string()), ("day", pa.date32())])
DAYS = (date(2026, 3, 1), date(2026, 3, 2))


@pytest.fixture(scope="module")
def original(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of three commits: numbers 0 to 9, 10 to 19 and 20 to 29, odd ones on the second day."""
    register(spark)
    folder = tmp_path_factory.mktemp("original") / "t"
    table = Delta(Location(str(folder)))
    table.create(SCHEMA, ["day"], configuration=tending.history(3_600), positions={})
    for first in (0, 10, 20):
        append(spark, table, first)
    return folder


@pytest.fixture
def table(original: Path, tmp_path: Path) -> Delta:
    return Delta(Location(str(shutil.copytree(original, tmp_path / "t"))))


def append(spark: SparkSession, table: Delta, first: int) -> int:
    numbers = range(first, first + 10)
    columns = {"number": numbers, "text": [str(n) for n in numbers], "day": [DAYS[n % 2] for n in numbers]}
    return write(spark.createDataFrame(pa.table(columns, schema=SCHEMA)), table).version


def load(spark: SparkSession, table: Delta, **options: int) -> DataFrame:
    return spark.read.format("fairway.delta").options(**options).load(table.location.uri)


def numbers(frame: DataFrame) -> list[int]:
    return sorted(row["number"] for row in frame.toArrow().to_pylist())


@pytest.mark.parametrize("folder", ["plain", "with a space, 100%", "{braces}[1-2]*"])
def test_spark_itself_reads_files_of_a_folder_of_any_name_and_only_those_that_are_named(
    spark: SparkSession, tmp_path: Path, folder: str
) -> None:
    table = Delta(Location(str(tmp_path / folder)))
    table.create(SCHEMA, ["day"], configuration=tending.history(3_600), positions={})
    first = append(spark, table, 0)
    append(spark, table, 10)
    wanted = StructType([StructField("day", DateType()), StructField("number", LongType(), False)])
    found = read_table(spark, table, version=first, schema=wanted)
    assert sorted(found.toArrow().to_pylist(), key=itemgetter("number")) == [
        {"day": DAYS[number % 2], "number": number} for number in range(10)
    ]
    assert ("Scan parquet" in plan(found)) == ("{" not in folder)
    files = [file.path for file, _ in table.files(table.open()) if file.partition["day"] == str(DAYS[1])]
    assert numbers(read_table(spark, table, files=files, schema=wanted)) == list(range(1, 20, 2))
    assert numbers(read_table(spark, table, files=[], schema=wanted)) == []


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString()).replace("FileScan parquet", "Scan parquet")


def test_the_whole_table_has_its_columns_types_and_partition(spark: SparkSession, table: Delta) -> None:
    frame = load(spark, table)
    assert [(field.name, field.dataType.simpleString(), field.nullable) for field in frame.schema] == [
        ("number", "bigint", False),
        ("text", "string", True),
        ("day", "date", True),
    ]
    rows = frame.where("number = 11").toArrow().to_pylist()
    assert rows == [{"number": 11, "text": "11", "day": DAYS[1]}]
    assert numbers(frame) == list(range(30))


def test_a_version_is_the_table_as_it_was(spark: SparkSession, table: Delta) -> None:
    assert numbers(load(spark, table, version=2)) == list(range(20))
    tending.compact(table)
    assert numbers(load(spark, table, version=2)) == list(range(20))
    assert numbers(load(spark, table, version=0)) == []
    with pytest.raises(PySparkException, match="has no version 99, or not any more"):
        load(spark, table, version=99).count()


def test_new_rows_since_a_version_come_once_whatever_was_compacted(spark: SparkSession, table: Delta) -> None:
    assert numbers(load(spark, table, since=2)) == list(range(20, 30))
    tending.compact(table)
    tending.checkpoint(table)
    seen = append(spark, table, 30)
    assert numbers(load(spark, table, since=2)) == list(range(20, 40))
    assert numbers(load(spark, table, since=seen)) == []
    with pytest.raises(PySparkException, match=f"is at version {seen}, before 99"):
        load(spark, table, since=99).count()


def test_a_commit_that_rewrites_rows_is_refused_by_who_asks_for_new_ones(spark: SparkSession, table: Delta) -> None:
    table.open().delete("number = 3")
    assert len(numbers(load(spark, table))) == 29
    with pytest.raises(PySparkException, match=r"Version 4 of .* changes or removes rows"):
        load(spark, table, since=1).count()


def test_a_file_that_was_vacuumed_is_told_in_a_sentence(spark: SparkSession, table: Delta) -> None:
    (file, *_) = (file for file, _ in table.files(table.open()))
    (table.location.folder / file.path).unlink()
    with pytest.raises(PySparkException, match="because that version is older than the table's history"):
        load(spark, table).count()


def where(spark: SparkSession, table: Delta, *conditions: tuple[str, str, object]) -> list[int]:
    return numbers(spark.read.format("fairway.delta").option("where", json.dumps(conditions)).load(table.location.uri))


def test_conditions_leave_out_rows_and_files_that_hold_none_are_not_opened(spark: SparkSession, table: Delta) -> None:
    assert where(spark, table, ("number", ">", 7), ("number", "<=", 11)) == [8, 9, 10, 11]
    assert where(spark, table, ("text", "in", ["3", "12", "no"])) == [3, 12]
    for path in table.location.folder.glob("day=2026-03-02/*"):
        path.unlink()
    assert where(spark, table, ("day", "=", "2026-03-01")) == list(range(0, 30, 2))
    for file, noted in table.files(table.open()):
        if noted["min.number"] < 20 and "03-01" in file.path:
            (table.location.folder / file.path).unlink()
    assert where(spark, table, ("number", ">=", 20), ("day", "<", "2026-03-02")) == [20, 22, 24, 26, 28]


def test_a_frame_can_be_queried_twice(spark: SparkSession, table: Delta) -> None:
    frame = load(spark, table)
    assert numbers(frame.where(col("day") == lit(DAYS[0]))) == list(range(0, 30, 2))
    assert numbers(frame) == list(range(30))


def test_conditions_hold_for_new_rows_and_for_columns_that_are_not_read(spark: SparkSession, table: Delta) -> None:
    frame = spark.read.format("fairway.delta").schema("text STRING").option("since", 1)
    rows = frame.option("where", '[["number", "<", 12]]').load(table.location.uri).toArrow().to_pylist()
    assert sorted(row["text"] for row in rows) == ["10", "11"]
    assert rows[0].keys() == {"text"}


def test_a_schema_reads_only_these_columns(spark: SparkSession, table: Delta) -> None:
    frame = spark.read.format("fairway.delta").schema("day DATE, number BIGINT").load(table.location.uri)
    assert frame.columns == ["day", "number"]
    assert frame.where("number = 4").toArrow().to_pylist() == [{"day": DAYS[0], "number": 4}]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"version": "1", "since": "1"}, "takes one of version and since"),
        ({"version": "newest"}, "must be the number of a version"),
        ({"since": "-1"}, "must be the number of a version"),
        ({"where": "day = 1"}, "must be a JSON list of conditions"),
        ({"where": '[["day", "~", 1]]'}, "must be a JSON list of conditions"),
        ({"where": '[["week", "=", 1]]'}, "has no column week"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(
    spark: SparkSession, table: Delta, options: dict[str, str], complaint: str
) -> None:
    with pytest.raises(PySparkException, match=complaint):
        spark.read.format("fairway.delta").options(**options).load(table.location.uri).count()


def test_what_is_no_table_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    with pytest.raises(PySparkException, match="is no table"):
        spark.read.format("fairway.delta").load(str(tmp_path))
