"""The tables behind `packets`, each a function of stored packets that hold whole episodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from fairway.core.tables import OF_EPISODES, SESSIONS, TIMELINE, TRANSFERS, VIOLATIONS, Table
from fairway.lake.analysis.enrich import Enrich, as_records
from fairway.lake.analysis.exchanges import exchanges
from fairway.lake.analysis.packets import Packets
from fairway.lake.analysis.sessions import sessions as session_rows
from fairway.lake.analysis.sums import Facts
from fairway.lake.analysis.timeline import timeline as timeline_rows
from fairway.lake.analysis.transfers import transfers as transfer_rows
from fairway.lake.schemas import arrow_schema, spark_schema
from fairway.lake.violations import CHECKS
from fairway.lake.violations import violations as judged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EPISODE = [column.name for column in OF_EPISODES]


def transfers(packets: DataFrame, enrich: Enrich) -> DataFrame:
    """Return the table `transfers`."""
    return _made(packets, enrich, TRANSFERS)


def timeline(packets: DataFrame, enrich: Enrich) -> DataFrame:
    """Return the table `timeline`."""
    return _made(packets, enrich, TIMELINE)


def uncounted_sessions(packets: DataFrame, enrich: Enrich) -> DataFrame:
    """Return the table `sessions`, whose violations are not counted yet."""
    return _made(packets, enrich, SESSIONS)


def violations(packets: DataFrame, sessions: DataFrame) -> DataFrame:
    """Return the table `violations`."""
    carried = packets.withColumn("bucket", F.struct(*_EPISODE))
    found = judged(carried, sessions, dict.fromkeys(check.name for check in CHECKS))
    return found.select(*VIOLATIONS.names, *(F.col(f"bucket.{name}").alias(name) for name in _EPISODE))


def sessions(uncounted: DataFrame, violations: DataFrame) -> DataFrame:
    """Return the table `sessions`, with the number of violations in each."""
    broken = violations.where("session IS NOT NULL").groupBy("session").agg(F.count("*").alias("broken"))
    counted = uncounted.drop("violations").join(broken, on="session", how="left")
    return counted.withColumn("violations", F.coalesce("broken", F.lit(0))).select(*SESSIONS.names, *_EPISODE)


def stored(table: Table) -> Table:
    """Return a table as it is stored, with the columns that tell the episode."""
    return Table(table.name, table.row, (*table.columns, *OF_EPISODES), ("open",))


def _made(packets: DataFrame, enrich: Enrich, table: Table) -> DataFrame:
    whole = packets.where("episode IS NOT NULL")
    return whole.mapInArrow(_Derive(enrich, table.name), spark_schema(stored(table)))


@dataclass(frozen=True)
class _Derive:
    """What one task does: stored packets in, rows of another table out."""

    enrich: Enrich
    table: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for records in self.enrich.groups(as_records(batches)):
            packets, is_open = self.enrich.understood(records.combine_chunks())
            yield from self._rows(packets, is_open).to_batches()

    def _rows(self, packets: Packets, is_open: pa.Array) -> pa.Table:
        found = _TABLES[self.table](packets)
        first = packets.sessions.rows[packets.sessions.first]
        session = found["session"].combine_chunks()
        if not pa.types.is_dictionary(session.type):
            session = session.dictionary_encode()
        place = pa.array(first).take(session.indices) if len(first) else session.indices
        episode = packets.spoken.rows.array("episode")
        for name, column in zip(_EPISODE, (episode, is_open), strict=True):
            found = found.append_column(name, column.take(place))
        schema = arrow_schema(stored(_NAMED[self.table]))
        return found.select(schema.names).cast(schema)


def _facts(packets: Packets) -> Facts:
    return Facts(packets, exchanges(packets))


_TABLES = {
    TRANSFERS.name: lambda packets: transfer_rows(packets, exchanges(packets)),
    TIMELINE.name: lambda packets: timeline_rows(_facts(packets)),
    SESSIONS.name: lambda packets: session_rows(_facts(packets), transfer_rows(packets, exchanges(packets))),
}
_NAMED = {table.name: table for table in (TRANSFERS, TIMELINE, SESSIONS)}
