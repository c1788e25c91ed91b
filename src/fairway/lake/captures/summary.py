"""What a capture holds at a glance: datagrams and bytes by port and by what they are if they are of a protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fairway.core.tables import PROTOCOLS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KINDS = tuple(f"{protocol}_kind" for protocol in PROTOCOLS)
COLUMNS = ("at", "source", "source_port", "destination", "destination_port", "payload_bytes", *KINDS)
"""What `summary` looks at: ask the source for these and no others."""


def summary(datagrams: DataFrame) -> DataFrame:
    """Counts datagrams by destination port and readings, with their bytes, their times and who sent them."""
    return (
        datagrams.groupBy("destination_port", *KINDS)
        .agg(
            F.count("*").alias("datagrams"),
            F.sum("payload_bytes").alias("bytes"),
            F.min("at").alias("first"),
            F.max("at").alias("last"),
            F.min("source").alias("lowest_source"),
            F.max("destination").alias("highest_destination"),
            F.max("source_port").alias("highest_source_port"),
        )
        .select(
            *("destination_port", *KINDS, "datagrams", "bytes", "first", "last"),
            *("lowest_source", "highest_destination", "highest_source_port"),
        )
    )
