"""The one sink: what executors write, what the driver commits, and what never counts."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake.transaction import RemoveAction
from pyspark.sql import SparkSession

from fairway.core.errors import FairwayError
from fairway.lake import sink
from fairway.lake.sink import UnbalancedBatch, put, write
from fairway.store import tending
from fairway.store.delta import Delta, Overtaken
from fairway.store.locations import Location

AT = datetime(2026, 3, 1, 12, 30, 15, 123456, UTC)
SCHEMA = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),
        ("text", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("price", pa.decimal128(5, 2)),
        ("ratio", pa.float64()),
        ("body", pa.binary()),
        ("day", pa.date32()),
        ("kind", pa.string()),
    ]
)
ROWS: list[dict[str, Any]] = [
    {"number": 1, "text": "a", "at": AT, "price": Decimal("1.50"), "ratio": 0.5, "body": b"x", "kind": "p"},
    {"number": 7, "text": None, "at": None, "price": None, "ratio": None, "body": None, "kind": "q r/ä"},
    {"number": -3, "text": "z" * 100, "at": AT, "price": None, "ratio": 2.0, "body": b"", "kind": None},
    {"number": 2, "text": "b", "at": AT, "price": Decimal("-2.25"), "ratio": 1.0, "body": b"y", "kind": "p"},
]


def table_of(tmp_path: Path) -> Delta:
    table = Delta(Location(str(tmp_path / "t")))
    table.create(SCHEMA, ["day", "kind"], configuration=tending.history(0), positions={})
    return table


def rows_of(count: int = 4) -> pa.Table:
    return pa.Table.from_pylist([row | {"day": date(2026, 3, 1)} for row in ROWS[:count]], SCHEMA)


def read(table: Delta) -> list[dict[str, object]]:
    found = pa.Table.from_batches(table.rows(SCHEMA), SCHEMA).to_pylist()
    return sorted(found, key=lambda row: [one["number"] for one in ROWS].index(row["number"]))


def test_rows_come_back_as_they_were_each_partition_in_its_folder(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    done = write(spark.createDataFrame(rows_of()).repartition(1), table, expected_rows=4)
    assert (done.version, done.rows, done.files) == (1, 4, 3)
    assert read(table) == rows_of().to_pylist()
    folders = {str(path.parent.relative_to(table.location.folder)) for path in table.location.folder.rglob("part-*")}
    assert folders == {f"day=2026-03-01/kind={name}" for name in ("p", "q r%2F%C3%A4", "__HIVE_DEFAULT_PARTITION__")}
    assert table.open().to_pyarrow_table().num_rows == 4, "delta-rs agrees on paths and partitions"


def test_each_file_has_its_count_and_the_bounds_of_columns_that_are_safe_to_skip_by(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = table_of(tmp_path)
    write(spark.createDataFrame(rows_of()).repartition(1), table)
    found = {action["add"]["partitionValues"]["kind"]: action["add"] for action in table.entry(1) if "add" in action}
    stats = json.loads(found["p"]["stats"])
    at = "2026-03-01T12:30:15.123456Z"
    assert stats == {
        "numRecords": 2,
        "minValues": {"number": 1, "text": "a", "at": at},
        "maxValues": {"number": 2, "text": "b", "at": at},
        "nullCount": {"number": 0, "text": 0, "at": 0},
    }
    assert json.loads(found[None]["stats"])["maxValues"] == {"number": -3, "at": at}, "no bounds of a long text"
    assert json.loads(found["q r/ä"]["stats"])["nullCount"] == {"number": 0, "text": 1, "at": 1}
    for one in found.values():
        assert one["size"] == (table.location.folder / unquote(one["path"])).stat().st_size


def test_another_number_of_rows_than_expected_commits_nothing(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    with pytest.raises(UnbalancedBatch, match=r"4 rows were written for .*, where 5 belong"):
        write(spark.createDataFrame(rows_of()), table, positions={"a": (0, 5)}, expected_rows=5)
    assert (table.open().version(), read(table)) == (0, [])


def test_a_position_is_compared_and_set_with_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    table, frame = table_of(tmp_path), spark.createDataFrame(rows_of())
    write(frame, table, positions={"a": (0, 4)})
    with pytest.raises(Overtaken, match="is at 4 for a, not at 0"):
        write(frame, table, positions={"a": (0, 4)})
    assert len(read(table)) == 4


def test_removals_and_additions_are_one_commit(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    write(spark.createDataFrame(rows_of()), table)
    old = [
        RemoveAction(file.path, True, 0, file.size_bytes, dict(file.partition)) for file, _ in table.files(table.open())
    ]
    new = spark.createDataFrame(rows_of(1))
    assert write(new, table, removes=old).version == 2
    assert read(table) == rows_of(1).to_pylist()


def test_files_of_a_task_that_ran_twice_are_no_rows_and_vacuum_removes_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, frame = table_of(tmp_path), spark.createDataFrame(rows_of())
    put(frame, table)
    write(frame, table)
    orphans = len(list(table.location.folder.rglob("part-*"))) - len(table.open().file_uris())
    assert orphans > 0
    assert len(read(table)) == 4
    tending.compact(table)
    assert len(list(table.location.folder.rglob("*.parquet"))) == len(table.open().file_uris())
    assert len(read(table)) == 4


def test_a_column_that_the_table_lacks_is_refused_and_one_that_the_frame_lacks_is_null(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = table_of(tmp_path)
    with pytest.raises(FairwayError, match="has no column more"):
        write(spark.createDataFrame(rows_of()).selectExpr("*", "1 AS more"), table)
    write(spark.createDataFrame(rows_of().drop_columns(["ratio"])), table)
    assert {row["ratio"] for row in read(table)} == {None}


def test_a_task_holds_few_files_open_and_little_of_each(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "FILES_OPEN_MAX", 2)
    monkeypatch.setattr(sink, "ROW_GROUP_BYTES", 1)
    table = table_of(tmp_path)
    batches = [*rows_of().to_batches(max_chunksize=1), *rows_of().to_batches(max_chunksize=1)]
    (returned,) = sink.write_batches(table.location.uri, SCHEMA, ["day", "kind"], iter(batches))
    assert sum(returned.column("rows").to_pylist()) == 8
    assert returned.num_rows > 3, "a third partition closes a file, which is begun anew later"
    groups = [pq.read_metadata(path).num_row_groups for path in table.location.folder.rglob("part-*")]
    assert sum(groups) == 8
