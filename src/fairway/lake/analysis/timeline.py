"""One row per second of a session: the table `timeline`. Empty seconds have none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fairway.core.tables import TIMELINE
from fairway.lake.analysis.sums import EPISODE, OWNERS, added_up, measured, sums

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def timeline(packets: DataFrame) -> DataFrame:
    """Return the table `timeline`; a round trip counts in the second in which it ended."""
    second = F.expr("timestamp_seconds(at_ns DIV 1000000000)").alias("second")
    seconds = measured(packets).groupBy(*OWNERS, second).agg(*sums())
    return seconds.select(*OWNERS, "second", *added_up()).select(*TIMELINE.names, *EPISODE)
