"""What a capture holds at a glance: datagrams and bytes by port, and as which protocols they can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

READABLE = {"udpc": "udpc_index", "mrp": "mrp_sequence", "rup": "rup_position", "pydevts": "pydevts_id"}
"""A field of each protocol that its messages have."""
COLUMNS = (
    *("at", "source_port", "destination_port", "frame_bytes", "payload_bytes", "truncated"),
    *READABLE.values(),
)
"""What `summary` looks at: ask the source for these ten and no others."""


def summary(datagrams: DataFrame) -> DataFrame:
    """Counts by destination port: datagrams, bytes, first and last time, source ports, and possible readings."""
    by_port = datagrams.groupBy("destination_port").agg(
        F.count("*").alias("datagrams"),
        F.sum("frame_bytes").alias("frame_bytes"),
        F.sum("payload_bytes").alias("payload_bytes"),
        F.count_if("truncated").alias("truncated"),
        F.min("at").alias("first"),
        F.max("at").alias("last"),
        F.min("source_port").alias("lowest_source_port"),
        F.max("source_port").alias("highest_source_port"),
        *(F.count(column).alias(f"readable_as_{protocol}") for protocol, column in READABLE.items()),
    )
    return by_port.select(
        *("destination_port", "datagrams", "frame_bytes", "payload_bytes", "truncated", "first", "last"),
        *("lowest_source_port", "highest_source_port"),
        *(f"readable_as_{protocol}" for protocol in READABLE),
    )
