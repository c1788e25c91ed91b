"""One row per second of a session: the table `timeline`. Empty seconds have none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fairway.core.tables import TIMELINE
from fairway.lake.analysis.exchanges import OWNER
from fairway.lake.analysis.sums import each_way, round_trips

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def timeline(facts: DataFrame) -> DataFrame:
    """Gives the table `timeline`, and `bucket` behind its columns."""
    by_second = facts.groupBy(*OWNER, F.date_trunc("second", "at").alias("second")).agg(*each_way())
    return by_second.withColumns(round_trips()).select(*TIMELINE.names, "bucket")
