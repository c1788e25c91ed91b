"""What would not scale is not done: no table is sorted or gathered as a whole, and tasks share nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from fairway.core.tables import (
    CAPTURE_TABLES,
    DATAGRAMS,
    PACKETS,
    PROTOCOLS,
    TRANSFERS,
    VIOLATIONS,
    Table,
)
from fairway.lake.analysis.sessions import sessions
from fairway.lake.analysis.task import Work, computed
from fairway.lake.analysis.timeline import timeline
from fairway.lake.analysis.transfers import transfers
from fairway.lake.captures import buckets
from fairway.lake.captures.buckets import read_bucket, records_of
from fairway.lake.captures.ingest import capture_files, ingest
from fairway.lake.schemas import arrow_schema, spark_schema
from fairway.lake.violations import violations
from fairway.sim.cases import Wishes, case
from fairway.store.lakes import Lake
from tests.lake.analysis.tables import made
from tests.lake.analysis.worlds import simulated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORBIDDEN = {
    "CartesianProduct": "a cartesian join",
    "BroadcastNestedLoopJoin": "a join without equal keys",
    "rangepartitioning": "a global sort",
    "SinglePartition": "everything in one task",
    "PythonUDF": "Python for each row",
    "ArrowEvalPython": "Python for each batch",
    "collect_list": "a session in memory",
}


def plan(rows: DataFrame) -> str:
    return str(rows._jdf.queryExecution().executedPlan().toString())


@pytest.fixture
def four_partitions(spark: SparkSession) -> Iterator[None]:
    """With 1, as in tests, every exchange is into a single partition."""
    setting = "spark.sql.shuffle.partitions"
    usual = spark.conf.get(setting)
    spark.conf.set(setting, "4")
    yield
    spark.conf.set(setting, str(usual))


def nothing(spark: SparkSession, table: Table) -> DataFrame:
    return spark.createDataFrame([], spark_schema(table).add("bucket", "integer"))


@pytest.mark.usefixtures("four_partitions")
def test_the_plan_of_no_table_has_anything_that_would_not_scale(spark: SparkSession) -> None:
    stored = nothing(spark, PACKETS)
    derived = sessions(stored, nothing(spark, TRANSFERS), nothing(spark, VIOLATIONS))
    for rows in (transfers(stored), timeline(stored), derived, violations(stored)):
        text = plan(rows)
        assert [meaning for sign, meaning in FORBIDDEN.items() if sign in text] == []


def test_a_sign_that_is_looked_for_is_found_where_it_is(spark: SparkSession) -> None:
    numbers = spark.range(10).selectExpr("id % 3 AS number")
    assert "rangepartitioning" in plan(numbers.orderBy("number"))
    crossed = plan(numbers.crossJoin(spark.range(5)))
    assert "CartesianProduct" in crossed or "BroadcastNestedLoopJoin" in crossed


def test_every_table_has_exactly_its_columns_also_without_rows(spark: SparkSession) -> None:
    for rows in (arrow_schema(DATAGRAMS).empty_table(), _datagrams()):
        tables = {name: table.toArrow() for name, table in made(spark, rows).items()}
        for table in CAPTURE_TABLES[:3] + CAPTURE_TABLES[4:]:
            types = [(field.name, field.type) for field in tables[table.name].drop("bucket").schema]
            assert types == [(field.name, field.type) for field in arrow_schema(table)], table.name
            assert (len(tables[table.name]) > 0) == (rows.num_rows > 0)


def _datagrams() -> pa.Table:
    from tests.lake.analysis.frames import datagrams

    return datagrams([("one", simulated(1, case(Wishes(protocol="udpc", messages=3)), 1).capture)])


def test_a_task_reads_the_records_of_its_bucket_and_no_others(spark: SparkSession, tmp_path: Path) -> None:
    """For every cut of the tables, also one that is no multiple of how the captures are sliced."""
    lake = Lake(tmp_path / "lake")
    worlds = [simulated(number, case(Wishes(protocol="mrp", messages=3)), number) for number in range(12)]
    (tmp_path / "all.pcapng").write_bytes(b"".join(world.capture for world in worlds))
    (about,) = ingest(spark, [tmp_path / "all.pcapng"], lake).added
    files = capture_files(lake, [about.file_id])
    whole = read_bucket(map(Path, files), 0, 1)
    assert whole.num_rows == about.rows
    for count in (1, 5, 16, 48):
        parts = [read_bucket(map(Path, files), bucket, count) for bucket in range(count)]
        flows = [set(part["flow"].to_pylist()) for part in parts]
        assert sum(part.num_rows for part in parts) == about.rows
        assert [records_of(files, bucket, count) for bucket in range(count)] == [part.num_rows for part in parts]
        assert sum(map(len, flows)) == len(set(whole["flow"].to_pylist())), count
        if count == about.buckets:
            assert [bucket for bucket, part in enumerate(parts) if part.num_rows] == about.touched


@pytest.mark.parametrize("part_records", [1, 40, 200])
def test_a_bucket_computed_in_parts_has_the_same_packets(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part_records: int
) -> None:
    lake = Lake(tmp_path / "lake")
    worlds = [
        simulated(number, case(Wishes(protocol=protocol, loss=0.1, messages=4)), number)
        for number, protocol in enumerate(PROTOCOLS * 3)
    ]
    (tmp_path / "all.pcapng").write_bytes(b"".join(world.capture for world in worlds))
    (about,) = ingest(spark, [tmp_path / "all.pcapng"], lake).added
    work = Work(tuple(capture_files(lake, [about.file_id])), 1, {}, str(tmp_path / "whole"))
    computed(work, 0)
    monkeypatch.setattr(buckets, "PART_RECORDS", part_records)
    computed(replace(work, target=str(tmp_path / "parts")), 0)
    whole, parts = (ds.dataset(tmp_path / name / PACKETS.name).to_table() for name in ("whole", "parts"))
    keys = [(name, "ascending") for name in PACKETS.names[:6]]
    assert whole.num_rows == about.rows
    assert parts.sort_by(keys).equals(whole.sort_by(keys))
    assert len(list((tmp_path / "parts" / PACKETS.name).rglob("*.parquet"))) > 1
    left = [path for path in (tmp_path / "parts").iterdir() if path.name != PACKETS.name]
    assert left == []
