"""One row per second of a session: the table `timeline`. Empty seconds have none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairway.core.tables import TIMELINE
from fairway.lake.analysis.sums import EPISODE, OWNERS, added_up, grouped, measured, sums

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def timeline(packets: DataFrame) -> DataFrame:
    """Return the table `timeline`; a round trip counts in the second in which it ended."""
    timed = measured(packets).selectExpr("*", "timestamp_seconds(at_ns DIV 1000000000) AS second")
    seconds = grouped(timed, [*OWNERS, "second"], sums())
    return seconds.selectExpr(*OWNERS, "second", *added_up()).selectExpr(*TIMELINE.names, *EPISODE)
