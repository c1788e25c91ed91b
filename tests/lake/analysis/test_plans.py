"""What would not scale is not done: no table is sorted or gathered as a whole, and tasks share nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

from fairway.core.tables import ANALYSIS_TABLES, DATAGRAMS, PACKETS, TRANSFERS, VIOLATIONS
from fairway.lake.analysis.sessions import sessions, timeline
from fairway.lake.analysis.transfers import transfers
from fairway.lake.schemas import arrow_schema, spark_schema
from fairway.lake.violations import violations
from fairway.sim.configuration import RunOptions, case
from tests.lake.analysis.tables import made
from tests.lake.analysis.worlds import simulated
from tests.lake.captures.reading import datagrams

FORBIDDEN = {
    "CartesianProduct": "a cartesian join",
    "BroadcastNestedLoopJoin": "a join without equal keys",
    "rangepartitioning": "a global sort",
    "SinglePartition": "everything in one task",
    "PythonUDF": "Python for each row",
    "EvalPython": "Python for each batch",
    "MapInArrow": "Python for each partition",
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
    capture = simulated(1, case(RunOptions(protocol="udpc", messages=3)), 1).capture
    for rows in (arrow_schema(DATAGRAMS).empty_table(), datagrams([("one", capture)])):
        tables = {name: table.toArrow() for name, table in made(spark, rows).items()}
        for table in ANALYSIS_TABLES:
            if table.name in tables:
                types = {field.name: field.type for field in tables[table.name].schema}
                wanted = {field.name: field.type for field in arrow_schema(table)}
                assert types == {name: kind for name, kind in wanted.items() if name not in ("head", "payload_crc")}
                assert (len(tables[table.name]) > 0) == (rows.num_rows > 0)
