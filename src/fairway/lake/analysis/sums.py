"""What sessions and seconds add up: packets and bytes each way, copies, losses and round trips."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fairway.lake.analysis.exchanges import CARRIES, OWNER
from fairway.lake.analysis.losses import loss, with_losses

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WAYS = {"out": "from_caller", "in": "NOT from_caller"}
QUANTILES = {"rtt_p50_us": 0.5, "rtt_p90_us": 0.9, "rtt_p99_us": 0.99}
ACCURACY = 1_000


def facts(packets: DataFrame, exchanges: DataFrame) -> DataFrame:
    """Gives packets with their losses and, as rows of their own, round trips at the moment when they ended."""
    seen = with_losses(packets).withColumns({"seen": F.lit(True), "carries": F.expr(CARRIES)})
    measured = exchanges.where("rtt_us IS NOT NULL")
    trips = measured.select(*OWNER, "from_caller", F.col("acknowledged").alias("at"), "rtt_us")
    return seen.unionByName(trips.withColumn("seen", F.lit(False)), allowMissingColumns=True)


def each_way() -> list[Column]:
    """Gives the sums that sessions and seconds have in common."""
    sums = []
    for way, sent in WAYS.items():
        here = f"seen AND {sent}"
        sums += [
            F.count_if(F.expr(here)).alias(f"packets_{way}"),
            F.expr(f"coalesce(sum(IF({here}, payload_bytes, 0)), 0L)").alias(f"bytes_{way}"),
            F.count_if(F.expr(f"{here} AND retransmission > 0")).alias(f"retransmissions_{way}"),
            F.expr(loss(here)).alias(f"loss_{way}"),
            F.expr(f"coalesce(sum(IF({here} AND carries AND retransmission = 0, body_bytes, 0)), 0L)").alias(
                f"goodput_{way}"
            ),
        ]
        trip = f"IF({sent}, rtt_us, NULL)"
        sums += [
            F.expr(f"count({trip})").alias(f"samples_{way}"),
            F.expr(f"min({trip})").alias(f"shortest_{way}"),
            F.percentile_approx(F.expr(trip), list(QUANTILES.values()), ACCURACY).alias(f"quantiles_{way}"),
        ]
    return sums


def round_trips() -> dict[str, Column]:
    """Gives the columns of round trips, of the direction in which they take longer.

    A point at one end sees the whole way of what that end sends, and of what it receives only how fast it answers.
    """
    longer = "coalesce(quantiles_out[0], -1) >= coalesce(quantiles_in[0], -1)"
    chosen = {"rtt_samples": "samples_{}", "rtt_min_us": "shortest_{}"}
    chosen |= {name: f"quantiles_{{}}[{index}]" for index, name in enumerate(QUANTILES)}
    return {name: F.expr(f"IF({longer}, {text.format('out')}, {text.format('in')})") for name, text in chosen.items()}
