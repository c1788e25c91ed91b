"""One row per second of a session: the table `timeline`. Empty seconds have none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fairway.core.tables import TIMELINE
from fairway.lake.analysis.sums import added_up, measured, owners, sums

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def timeline(packets: DataFrame) -> DataFrame:
    """Return the table `timeline`; a round trip counts in the second in which it ended."""
    kept = owners(packets)
    second = F.expr("timestamp_seconds(at_ns DIV 1000000000)").alias("second")
    seconds = measured(packets).groupBy(*kept, second).agg(*sums())
    return seconds.select(*kept, "second", *added_up()).select(*TIMELINE.names, *kept[3:])
