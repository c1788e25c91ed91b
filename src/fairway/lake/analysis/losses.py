"""How many packets were lost, as far as one point can tell.

A packet may be lost between its sender and the point, or between the point and its receiver. On both stretches the
two ways are taken to lose alike: one point sees what a loss causes, which is the same for a packet and for its
acknowledgement.

*Before* the point, numbers are skipped (udpc index, mrp sequence, pydevts id, rup part): what lies between the highest
so far and one beyond the next was lost, or overtaken. Their share of all numbers is the loss, unless so few packets
are under way that each is repeated before a later one passes; then more can be told from duplicates, which were sent
again because an acknowledgement was lost on the same stretch. The greater of the two shares is taken.

*Behind* the point, copies that are not duplicates were sent because nothing was heard of what had passed: it or its
acknowledgement was lost, so that the loss of one way is 1 - sqrt(1 - share of copies).

Reordering, copies that were sent too early and copies that the network made count as loss. So it reads high for mrp's
piggyback layout, whose acknowledgements name no packet: a sender that has to guess repeats more than was lost.
"""

from __future__ import annotations

from collections.abc import Callable
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


COUNTED = {
    "skipped": f"sum({_SKIPPED})",
    "fresh": "count_if(number IS NOT NULL AND coalesce(retransmission, 0) = 0)",
    "late": f"count_if(coalesce({_STEP} < 0, false) AND coalesce(retransmission, 0) = 0)",
    "repeatable": "count_if(number IS NOT NULL AND retransmission IS NOT NULL)",
    "repeated": "count_if(number IS NOT NULL AND retransmission > 0 AND NOT duplicate)",
    "needless": "count_if(number IS NOT NULL AND coalesce(duplicate, false))",
}
"""What the estimate is made of, as sums over packets with their losses; `late` is a number that was skipped before."""


def loss(total: Callable[[str], str]) -> str:
    """Gives the SQL of the estimate from the totals of what is counted; null where no packet has a number."""
    skipped, fresh = total("skipped"), total("fresh")
    repeatable = f"nullif({total('repeatable')}, 0)"
    missed = f"coalesce({skipped} / nullif({fresh} + {skipped} - {total('late')}, 0), 0)"
    before = f"greatest({missed}, coalesce({total('needless')} / {repeatable}, 0))"
    behind = f"coalesce({total('repeated')} / {repeatable}, 0)"
    return f"IF({fresh} + {skipped} > 0, 1 - (1 - {before}) * sqrt(1 - {behind}), NULL)"


def with_losses(packets: DataFrame) -> DataFrame:
    """Adds to the packets of sessions what the sums look at."""
    counted = packets.where("session IS NOT NULL").withColumns(
        {
            "number": F.expr(_NUMBER),
            # One short key sorts faster than four, three of which are texts.
            "strand": F.expr("xxhash64(session, from_caller, IF(protocol = 'rup', message, ''))"),
        }
    )
    in_time = Window.partitionBy("strand", "bucket").orderBy(*IN_TIME)
    before = in_time.rowsBetween(Window.unboundedPreceding, -1)
    here = in_time.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return counted.withColumns(
        {
            "expected": F.max(F.expr(_NEXT)).over(before),
            "part_bytes": F.max(F.expr("IF(number IS NULL, NULL, greatest(body_bytes, 1))")).over(here),
        }
    )
