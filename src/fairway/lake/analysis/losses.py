"""How many packets were lost, as far as one point can tell.

Two things are counted for each direction. *Skipped* numbers: when a packet's number (udpc index, mrp sequence,
pydevts id, rup part) lies beyond the next one, those between have not passed the point; they were lost before it,
or overtaken. *Copies* that are not duplicates: the sender believed that what passed the point was lost behind it.
The estimate is their sum, divided by the packets that have a number, seen or skipped. Reordering counts as loss,
and so does a copy that was sent too early; two losses of one packet before the point count once. It is exact only
in the absence of those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from fairway.lake.analysis.calls import IN_TIME
from fairway.lake.analysis.exchanges import CARRIES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SKIP_MAX = 32_768
"""A greater step is no gap: an endpoint that restores a snapshot jumps, and a forged number may be anything."""

_NUMBER = f"""CASE WHEN protocol = 'udpc' THEN udpc_index WHEN protocol = 'rup' AND kind = 'data' THEN rup_position
    WHEN protocol != 'rup' AND {CARRIES} THEN CAST(message AS BIGINT) END"""
_NEXT = "number + IF(protocol = 'rup', greatest(body_bytes, 1), 1)"
_STEP = "number - IF(protocol = 'rup', coalesce(expected, 0), expected)"
_SKIPPED = f"""CASE WHEN NOT coalesce({_STEP} > 0, false) THEN 0L
    WHEN protocol = 'rup' THEN CAST(ceil(({_STEP}) / part_bytes) AS BIGINT)
    WHEN {_STEP} > {SKIP_MAX} THEN 0L ELSE {_STEP} END"""


def with_losses(packets: DataFrame) -> DataFrame:
    """Adds `numbered`, `skipped` and `lost` to the packets of sessions."""
    counted = packets.where("session IS NOT NULL").withColumns(
        {"number": F.expr(_NUMBER), "lane": F.expr("IF(protocol = 'rup', message, '')")}
    )
    in_time = Window.partitionBy("bucket", "session", "from_caller", "lane").orderBy(*IN_TIME)
    before = in_time.rowsBetween(Window.unboundedPreceding, -1)
    here = in_time.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    expected = counted.withColumns(
        {
            "expected": F.max(F.expr(_NEXT)).over(before),
            "part_bytes": F.max(F.expr("IF(number IS NULL, NULL, greatest(body_bytes, 1))")).over(here),
        }
    )
    return expected.withColumns({"numbered": F.expr("number IS NOT NULL"), "skipped": F.expr(_SKIPPED)}).withColumn(
        "lost", F.expr("skipped + IF(number IS NOT NULL AND retransmission > 0 AND NOT duplicate, 1, 0)")
    )
