"""What sessions and seconds add up: packets and bytes each way, copies, losses and round trips.

Packets are counted once, by second and direction, in numbers alone, so that the groups are kept in a table of numbers:
texts and lists would have Spark sort all packets. What comes of that is little, and is added up for sessions and for
seconds. Only the quantiles of round trips are found for each of the two from all round trips.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from fairway.lake.analysis.calls import ANSWERS, CALLS
from fairway.lake.analysis.exchanges import CARRIES, OWNER
from fairway.lake.analysis.losses import COUNTED, loss, with_losses

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WAYS = {"out": "from_caller", "in": "NOT from_caller"}
QUANTILES = {"rtt_p50_us": 0.5, "rtt_p90_us": 0.9, "rtt_p99_us": 0.99}
ACCURACY = 1_000

_BEGINS = """kind IN ('syn', 'connect') OR (protocol = 'rup' AND kind = 'data' AND rup_start = 1) OR kind = 'packet'"""
"""A session whose first record is such a one was captured from its start."""

_ENDS = {
    "caller": "IF(from_caller, source, destination)",
    "caller_port": "IF(from_caller, source_port, destination_port)",
    "callee": "IF(from_caller, destination, source)",
    "callee_port": "IF(from_caller, destination_port, source_port)",
}
"""The same for all packets of a session, which is a part of one flow."""

_ADDED = {
    "packets": "count(*)",
    "bytes": "coalesce(sum(payload_bytes), 0L)",
    "retransmissions": "count_if(retransmission > 0)",
    "goodput": f"coalesce(sum(IF({CARRIES} AND retransmission = 0, body_bytes, 0)), 0L)",
    **COUNTED,
    "duplicates": "count_if(duplicate)",
    "copyable": "count(retransmission)",
    "fins": "count_if(kind = 'fin')",
    "rejections": "count_if(mrp_status = 2)",
    "acceptances": "count_if(mrp_status = 1)",
}
_LEAST = {
    "first": "at",
    "first_ns": "at_ns",
    "begun_ns": f"IF({_BEGINS}, at_ns, NULL)",
    "called": f"IF(kind IN {CALLS}, at, NULL)",
    "answered": f"IF(kind IN {ANSWERS}, at, NULL)",
}
_MOST = {
    "last": "at",
    "udpc_id": "IF(kind != 'syn', udpc_session, NULL)",
    "udpc_call": "udpc_session",
    "caller_id": "coalesce(mrp_client, IF(from_caller, mrp_origin, mrp_destination))",
    "callee_id": "coalesce(mrp_server, IF(from_caller, mrp_destination, mrp_origin))",
}


class Facts(NamedTuple):
    """What is known of sessions."""

    seconds: DataFrame
    """The sums of each second of a session that has packets, each direction by itself."""
    trips: DataFrame
    """Every round trip, at the moment when it ended."""


def facts(packets: DataFrame, exchanges: DataFrame) -> Facts:
    """Gives what sessions and seconds are added up from; who uses it twice keeps the seconds."""
    texts = _ADDED | {name: f"min({text})" for name, text in _LEAST.items()}
    texts |= {name: f"max({text})" for name, text in _MOST.items()}
    second = F.date_trunc("second", "at").alias("second")
    ends = [F.expr(text).alias(name) for name, text in _ENDS.items()]
    by_second = with_losses(packets).groupBy(*OWNER, "from_caller", second, "flow", *ends)
    seconds = by_second.agg(*(F.expr(text).alias(name) for name, text in texts.items()))
    trips = exchanges.where("rtt_us IS NOT NULL").select(
        *OWNER, "from_caller", F.date_trunc("second", "acknowledged").alias("second"), "rtt_us"
    )
    return Facts(seconds, trips)


def added_up(facts: Facts, keys: Sequence[str], *more: Column, beside: DataFrame | None = None) -> DataFrame:
    """Gives the sums that sessions and seconds have in common, and more; rows `beside` are added to the others."""
    found = facts.trips.groupBy(*keys).agg(*_measured())
    rows = facts.seconds.unionByName(found, allowMissingColumns=True)
    rows = rows if beside is None else rows.unionByName(beside, allowMissingColumns=True)
    summed = rows.groupBy(*keys).agg(*_each_way(), *more)
    return summed.withColumns(_round_trips())


def total(name: str, rows: str = "true") -> str:
    """Gives the SQL of the sum over these rows; 0 if there are none."""
    return f"sum(IF({rows}, coalesce({name}, 0L), 0L))"


def earliest_and_latest() -> list[Column]:
    """Gives the sums of `facts` that are no counts."""
    least = [F.min(name).alias(name) for name in _LEAST]
    return least + [F.max(name).alias(name) for name in _MOST]


def _each_way() -> list[Column]:
    sums: list[Column] = []
    for way, sent in WAYS.items():
        added = ("packets", "bytes", "retransmissions", "goodput")
        sums += [F.expr(total(name, sent)).alias(f"{name}_{way}") for name in added]
        sums.append(F.expr(loss(partial(total, rows=sent))).alias(f"loss_{way}"))
        sums.append(F.expr(total(f"samples_{way}")).alias(f"samples_{way}"))
        sums += [F.max(name).alias(name) for name in (f"shortest_{way}", f"quantiles_{way}")]
    return sums


def _measured() -> list[Column]:
    """Gives the columns of round trips each way."""
    columns = []
    for way, sent in WAYS.items():
        trip = f"IF({sent}, rtt_us, NULL)"
        columns += [
            F.expr(f"count({trip})").alias(f"samples_{way}"),
            F.expr(f"min({trip})").alias(f"shortest_{way}"),
            F.percentile_approx(F.expr(trip), list(QUANTILES.values()), ACCURACY).alias(f"quantiles_{way}"),
        ]
    return columns


def _round_trips() -> dict[str, Column]:
    """Gives the columns of round trips, of the direction in which they take longer.

    A point at one end sees the whole way of what that end sends, and of what it receives only how fast it answers.
    """
    longer = "coalesce(quantiles_out[0], -1) >= coalesce(quantiles_in[0], -1)"
    chosen = {"rtt_samples": "samples_{}", "rtt_min_us": "shortest_{}"}
    chosen |= {name: f"quantiles_{{}}[{index}]" for index, name in enumerate(QUANTILES)}
    return {name: F.expr(f"IF({longer}, {text.format('out')}, {text.format('in')})") for name, text in chosen.items()}
