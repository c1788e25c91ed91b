"""The tables of captures, computed in the test's own process; Spark reads them where a test asks in SQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fairway.core.tables import PACKETS, SESSIONS, TIMELINE, TRANSFERS, Table
from fairway.lake.analysis.columns import table_of
from fairway.lake.analysis.exchanges import exchanges
from fairway.lake.analysis.packets import Packets, packets
from fairway.lake.analysis.sessions import sessions
from fairway.lake.analysis.sums import Facts
from fairway.lake.analysis.timeline import timeline
from fairway.lake.analysis.transfers import transfers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]


def packets_of(datagrams: pa.Table, ports: Mapping[int, str] | None = None) -> Packets:
    """Gives what is known of records."""
    return packets(datagrams, dict(ports or {}))


def tables_of(seen: Packets) -> Iterator[tuple[Table, pa.Table]]:
    """Return all tables but `violations`."""
    yield PACKETS, table_of(seen)
    exchanged = exchanges(seen)
    messages = transfers(seen, exchanged)
    yield TRANSFERS, messages
    facts = Facts(seen, exchanged)
    yield SESSIONS, sessions(facts, messages)
    yield TIMELINE, timeline(facts)


def made(datagrams: pa.Table, ports: Mapping[int, str] | None = None) -> dict[str, pa.Table]:
    """Gives the tables by name; their texts are plain."""
    return {table.name: plain(rows) for table, rows in tables_of(packets_of(datagrams, ports))}


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
