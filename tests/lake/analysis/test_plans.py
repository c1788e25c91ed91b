"""How Spark means to compute the tables: what would not scale is not in the plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fairway.core.tables import CAPTURE_TABLES, DATAGRAMS, PACKETS, SESSIONS, TIMELINE, TRANSFERS
from fairway.lake.analysis.exchanges import exchanges
from fairway.lake.analysis.packets import packets
from fairway.lake.analysis.sessions import sessions
from fairway.lake.analysis.sums import facts
from fairway.lake.analysis.timeline import timeline
from fairway.lake.analysis.transfers import transfers
from fairway.lake.schemas import spark_schema

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
    "unboundedfollowing": "a window that looks ahead to the end",
}


@pytest.fixture(scope="module", params=[10_000_000, None], ids=["few", "many"])
def frames(request: pytest.FixtureRequest, spark: SparkSession) -> dict[str, DataFrame]:
    datagrams = spark.createDataFrame([], spark_schema(DATAGRAMS))
    seen = packets(datagrams, {9_000: "udpc"}, records=request.param)
    stored = spark.createDataFrame([], spark_schema(PACKETS).add("bucket", "integer"))
    exchanged = exchanges(stored)
    messages = transfers(exchanged, stored)
    told = facts(stored, exchanged)
    return {
        PACKETS.name: seen,
        TRANSFERS.name: messages,
        SESSIONS.name: sessions(told, messages),
        TIMELINE.name: timeline(told),
    }


def plan(rows: DataFrame) -> str:
    return str(rows._jdf.queryExecution().executedPlan().toString())


def test_no_plan_has_what_would_not_scale(frames: dict[str, DataFrame]) -> None:
    found = [
        f"{name}: {meaning}"
        for name, rows in frames.items()
        for sign, meaning in FORBIDDEN.items()
        if sign in plan(rows)
    ]
    assert found == []


def test_a_sign_that_is_looked_for_is_found_where_it_is(spark: SparkSession) -> None:
    numbers = spark.range(10).selectExpr("id % 3 AS number")
    assert "rangepartitioning" in plan(numbers.orderBy("number"))
    crossed = plan(numbers.crossJoin(spark.range(5)))
    assert "CartesianProduct" in crossed or "BroadcastNestedLoopJoin" in crossed
    assert "unboundedfollowing" in plan(numbers.selectExpr("sum(number) OVER (PARTITION BY number) AS total"))


def test_every_table_has_exactly_its_columns(frames: dict[str, DataFrame]) -> None:
    for table in CAPTURE_TABLES:
        if table.name not in frames:
            continue
        made = frames[table.name].drop("bucket").schema
        assert [(field.name, field.dataType) for field in made] == [
            (field.name, field.dataType) for field in spark_schema(table)
        ], table.name
