"""One row per message: the table `transfers`.

A message is *acknowledged* when its acknowledgement passed the point (rup: the confirm of its total; a request: its
response); *repaired* if the receiver had said before that its CRC was wrong; *refused* if it was not acknowledged
and its receiver closed the session after it was sent; *unreliable* if nobody acknowledges such messages (plain
packets, and responses, which are repeated for every copy of their request). What is left is *unacknowledged*.

A message of which the point saw only acknowledgements has a row too, except in pydevts, where an acknowledgement of
nothing is how a peer asks for a sign of life.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fairway.core.tables import TRANSFERS
from fairway.lake.analysis.exchanges import KINDS, MESSAGE, kind_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ACKNOWLEDGED = "IF(protocol != 'rup', any_acknowledged, IF(furthest = total_bytes, furthest_acknowledged, NULL))"

_REACHED = "IF(acknowledged IS NULL, NULL, part)"
"""Each part is an exchange of its own, so that one alone reaches furthest."""

_OUTCOME = """CASE
    WHEN kind IN ('plain', 'response') THEN 'unreliable'
    WHEN failed < acknowledged THEN 'repaired'
    WHEN acknowledged IS NOT NULL THEN 'acknowledged'
    WHEN closed >= first_sent THEN 'refused'
    ELSE 'unacknowledged' END"""

_COLUMNS = {
    "kind": kind_of("coalesce(sent_kind, any_kind)"),
    "size_bytes": "CAST(IF(protocol = 'rup', total_bytes, body_bytes) AS BIGINT)",
    "parts": "IF(protocol = 'rup', greatest(1L, CAST(ceil(total_bytes / body_bytes) AS BIGINT)), 1L)",
    "attempts": "CAST(coalesce(attempts, 0) AS BIGINT)",
    "acknowledged": _ACKNOWLEDGED,
}


def transfers(exchanges: DataFrame, packets: DataFrame) -> DataFrame:
    """Gives the table `transfers`, and `bucket` behind its columns."""
    messages = (
        exchanges.where(f"any_kind != {KINDS.index('heartbeat')}")
        .groupBy(*MESSAGE)
        .agg(
            F.max("sent_kind").alias("sent_kind"),
            F.max("any_kind").alias("any_kind"),
            F.min("first_sent").alias("first_sent"),
            F.max("last_sent").alias("last_sent"),
            F.max("attempts").alias("attempts"),
            F.sum("copies").alias("copies"),
            F.max("body_bytes").alias("body_bytes"),
            F.max("total_bytes").alias("total_bytes"),
            F.min("acknowledged").alias("any_acknowledged"),
            F.max(F.expr(_REACHED)).alias("furthest"),
            F.max_by("acknowledged", F.expr(_REACHED)).alias("furthest_acknowledged"),
            F.min("failed").alias("failed"),
        )
    )
    seen = messages.where("sent_kind IS NOT NULL OR protocol != 'pydevts'")
    told = seen.withColumns({name: F.expr(text) for name, text in _COLUMNS.items()}).withColumn(
        "latency_us", F.expr("unix_micros(acknowledged) - unix_micros(first_sent)")
    )
    judged = told.join(_closings(packets), on=["bucket", "session", "from_caller"], how="left")
    return judged.withColumn("outcome", F.expr(_OUTCOME)).select(*TRANSFERS.names, "bucket")


def _closings(packets: DataFrame) -> DataFrame:
    """Gives when the receiving side of a direction closed the session, if it did."""
    fins = packets.where("kind = 'fin' AND session IS NOT NULL")
    closings = fins.select("bucket", "session", (~F.col("from_caller")).alias("from_caller"), "at")
    return closings.groupBy("bucket", "session", "from_caller").agg(F.max("at").alias("closed"))
