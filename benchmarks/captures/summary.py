"""What a capture holds at a glance: datagrams and bytes of each protocol and kind, by the ports that a map names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = ("at_ns", "source_port", "destination_port", "frame_bytes", "payload_bytes", "truncated", "protocol", "kind")
"""What `summary` looks at: ask the source for these and no others."""


def summary(mapped: DataFrame) -> DataFrame:
    """Count rows of `MAPPED` by protocol and kind: datagrams, bytes, first and last time, and ports."""
    by_kind = mapped.groupBy("protocol", "kind").agg(
        F.count("*").alias("datagrams"),
        F.sum("frame_bytes").alias("frame_bytes"),
        F.sum("payload_bytes").alias("payload_bytes"),
        F.count_if("truncated").alias("truncated"),
        F.min("at_ns").alias("first_ns"),
        F.max("at_ns").alias("last_ns"),
        F.min(F.least("source_port", "destination_port")).alias("lowest_port"),
        F.max(F.greatest("source_port", "destination_port")).alias("highest_port"),
    )
    return by_kind.select(
        *("protocol", "kind", "datagrams", "frame_bytes", "payload_bytes", "truncated"),
        *("first_ns", "last_ns", "lowest_port", "highest_port"),
    )
