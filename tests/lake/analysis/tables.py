"""The tables of captures: `packets` computed in the test's own process, the others by Spark from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fairway.core.tables import PACKETS, SESSIONS, TIMELINE, TRANSFERS, VIOLATIONS
from fairway.lake.analysis.columns import table_of
from fairway.lake.analysis.packets import Packets, packets
from fairway.lake.analysis.sessions import sessions
from fairway.lake.analysis.timeline import timeline
from fairway.lake.analysis.transfers import transfers
from fairway.lake.schemas import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]


def packets_of(datagrams: pa.Table, ports: Mapping[int, str] | None = None) -> Packets:
    """Gives what is known of records."""
    return packets(datagrams, dict(ports or {}))


def packets_table(datagrams: pa.Table, ports: Mapping[int, str] | None = None) -> pa.Table:
    """Return the table `packets`; its texts are plain."""
    return plain(table_of(packets_of(datagrams, ports)))


def made(spark: SparkSession, datagrams: pa.Table, ports: Mapping[int, str] | None = None) -> dict[str, DataFrame]:
    """Return the tables by name; nobody has judged them."""
    seen = frame_of(spark, packets_table(datagrams, ports)).coalesce(1).localCheckpoint()
    messages = transfers(seen).cache()
    judged = spark.createDataFrame([], spark_schema(VIOLATIONS))
    return {
        PACKETS.name: seen,
        TRANSFERS.name: messages,
        TIMELINE.name: timeline(seen),
        SESSIONS.name: sessions(seen, messages, judged),
    }


def plain(table: pa.Table) -> pa.Table:
    """Unfolds dictionaries, which Spark does not take."""
    fields = [
        pa.field(field.name, field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Gives a table to Spark, all of it in one bucket."""
    return spark.createDataFrame(table.append_column("bucket", pa.array([0] * len(table), type=pa.int32())))
