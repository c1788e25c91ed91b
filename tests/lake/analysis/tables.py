"""The tables of captures: `packets` computed in the test's own process, the others by Spark from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from fairway.core.tables import PACKETS, SESSIONS, TIMELINE, TRANSFERS, VIOLATIONS
from fairway.lake.analysis.decoded import Decoded
from fairway.lake.analysis.packets import Packets, table_of
from fairway.lake.analysis.packets import packets_of as packets
from fairway.lake.analysis.sessions import sessions, timeline
from fairway.lake.analysis.transfers import transfers
from fairway.lake.arrays import Codes, Mask, Rows, mixed
from fairway.lake.captures.merged import borne_out
from fairway.lake.schemas import spark_schema

Row = dict[str, Any]


def packets_of(datagrams: pa.Table, ports: Mapping[int, str] | None = None) -> Packets:
    """Return what is known of datagrams that hold all there is of their flows."""
    spoken_on = dict(ports or {})
    rows = Rows(datagrams)

    def recognise(seen: Mask) -> Codes:
        return Decoded(Rows(datagrams.filter(pa.array(seen))), spoken_on).protocol

    stays = borne_out(rows, mixed(rows.numbers("flow")), recognise)
    # In the order of time, then by offset, so that it does not depend on the order of files.
    order = [(name, "ascending") for name in ("at_ns", "file_id", "offset")]
    return packets(Decoded(Rows(datagrams.filter(pa.array(stays)).sort_by(order)), spoken_on))


def packets_table(datagrams: pa.Table, ports: Mapping[int, str] | None = None) -> pa.Table:
    """Return the table `packets` without what is kept of records; its texts are plain, and a flow is one episode."""
    rows = plain(table_of(packets_of(datagrams, ports)))
    everywhere = pa.array([True] * len(rows), type=pa.bool_())
    return rows.append_column("episode", rows["flow"]).append_column("open", everywhere)


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
    """Unfold dictionaries, which Spark does not take."""
    fields = [
        pa.field(field.name, field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return a table as a frame of Spark's."""
    return spark.createDataFrame(table)
