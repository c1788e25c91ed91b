"""What would not scale is not done: no table is sorted or gathered as a whole, and tasks share nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from fairway.core.tables import (
    ANALYSIS_TABLES,
    DATAGRAMS,
    PACKETS,
    PROTOCOLS,
    TRANSFERS,
    VIOLATIONS,
)
from fairway.lake.analysis.enrich import ORDER, Capture, Enrich
from fairway.lake.analysis.episodes import Span
from fairway.lake.analysis.sessions import sessions, timeline
from fairway.lake.analysis.transfers import transfers
from fairway.lake.captures.readings import Source
from fairway.lake.schemas import arrow_schema, spark_schema
from fairway.lake.violations import violations
from fairway.sim.configuration import RunOptions, case
from tests.lake.analysis.tables import made
from tests.lake.analysis.worlds import simulated
from tests.lake.captures.reading import records_of

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


@pytest.mark.usefixtures("four_partitions")
def test_the_plan_of_no_table_has_anything_that_would_not_scale(spark: SparkSession) -> None:
    stored, sent, judged = (
        spark.createDataFrame([], spark_schema(table)) for table in (PACKETS, TRANSFERS, VIOLATIONS)
    )
    derived = sessions(stored, sent, judged)
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
        for table in ANALYSIS_TABLES:
            if table.name in tables:
                types = {field.name: field.type for field in tables[table.name].schema}
                wanted = {field.name: field.type for field in arrow_schema(table)}
                assert types == {name: kind for name, kind in wanted.items() if name not in ("head", "payload_crc")}
                assert (len(tables[table.name]) > 0) == (rows.num_rows > 0)


def _datagrams() -> pa.Table:
    from tests.lake.analysis.frames import datagrams

    return datagrams([("one", simulated(1, case(RunOptions(protocol="udpc", messages=3)), 1).capture)])


@pytest.mark.parametrize("group_rows", [10, 40, 200])
def test_episodes_computed_in_groups_of_any_size_give_the_same_packets(tmp_path: Path, group_rows: int) -> None:
    worlds = [
        simulated(number, case(RunOptions(protocol=protocol, loss=0.1, messages=4)), number)
        for number, protocol in enumerate(PROTOCOLS * 3)
    ]
    path = tmp_path / "all.pcapng"
    path.write_bytes(b"".join(world.capture for world in worlds))
    records = records_of(path, payload=False).sort_by([(name, "ascending") for name in ORDER])
    times = [at_ns for at_ns in records["at_ns"].to_pylist() if at_ns is not None]
    (number,) = set(records["file_id"].to_pylist())
    captures = {number: Capture(Source("id", path.name, payload=False), Span(min(times), max(times)))}
    for size in (7, 5_000):
        whole = pa.Table.from_batches(Enrich(captures, {}, 1 << 30)(iter(records.to_batches(max_chunksize=size))))
        found = pa.Table.from_batches(Enrich(captures, {}, group_rows)(iter(records.to_batches(max_chunksize=size))))
        assert found.equals(whole)
    assert len(whole) == len(records)
    assert len(set(whole["episode"].to_pylist())) == len(set(whole["flow"].to_pylist())) > 1
