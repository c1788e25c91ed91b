"""What sessions and their seconds add up: packets and bytes each way, retransmissions, losses and round trips.

A packet may be lost between its sender and the point, or between the point and its receiver. On both stretches the
two ways are taken to lose alike: one point sees what a loss causes, which is the same for a packet and for its
acknowledgement.

*Before* the point, numbers are left out (`gap`): what lies between the highest so far and one beyond the next was lost,
or overtaken. Their share of all numbers is the loss, unless so few packets are under way that each is sent again before
a later one passes; then more can be told from duplicates, which were sent again because an acknowledgement was lost on
the same stretch. The greater of the two shares is taken.

*Behind* the point, retransmissions that are not duplicates were sent because nothing was heard of what had passed: it
or its acknowledgement was lost, so that the loss of one way is 1 - sqrt(1 - share of retransmissions). A part of rup is
sent again because the peer asks for it, and in mrp's piggyback layout a later acknowledgement stands in for a lost one:
there a packet is sent again only when it was lost itself, and the share is the loss.

Reordering, retransmissions that were sent too early and duplicates that the network made count as loss. So it reads
high for mrp's piggyback layout, whose acknowledgements name no packet: a sender that has to guess repeats more than was
lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fairway.core.tables import OF_EPISODES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CARRIES = """(retransmission IS NOT NULL AND message IS NOT NULL
    AND NOT (kind = 'response' AND coalesce(udpc_ack, 0) = 1 AND body_bytes = 0))"""
"""Whether a packet holds a message, or a part of one. What answers a server's first index, its SYN+ACK's, ends a
handshake and holds none."""
AT_US = "at_ns DIV 1000"
EPISODE = [column.name for column in OF_EPISODES]
"""What every table has behind its own columns: to which episode a row belongs."""
OWNERS = ["flow", "session", "protocol", "point", *EPISODE]
"""What all packets of a session have in common."""
WAYS = {"out": "from_caller", "in": "NOT from_caller"}
"""From the caller, and to it."""
QUANTILES = {"rtt_p50_us": 0.5, "rtt_p90_us": 0.9, "rtt_p99_us": 0.99}
ACCURACY = 10_000
"""Quantiles are exact for fewer samples than this, and within 1/10,000 of rank for more."""

_FLAGS = {
    "carries": CARRIES,
    "once": "coalesce(retransmission, 0) = 0",
    "cumulative": "protocol = 'rup' OR mrp_layout <=> 'piggyback'",
    # A response waits for an application, so that it measures no network.
    "rtt_us": f"IF(kind IN ('response', 'answering_request'), NULL, {AT_US} - acknowledged_sent_ns DIV 1000)",
}
"""Of a packet. Where acknowledgements are cumulative, only the loss of a packet itself causes a retransmission."""
_NUMBERED = "(protocol = 'udpc' OR carries)"
_ADDED = {
    "packets": "1",
    "bytes": "payload_bytes",
    "retransmissions": "int(NOT once)",
    "goodput": "IF(carries AND once, body_bytes, 0)",
    "skipped": "greatest(gap, 0)",
    "fresh": f"int({_NUMBERED} AND once)",
    "late": "int(coalesce(gap, 0) < 0 AND once)",
    "repeatable": f"int({_NUMBERED} AND retransmission IS NOT NULL)",
    "repeated": f"int({_NUMBERED} AND NOT once AND NOT duplicate AND NOT cumulative)",
    "missing": f"int({_NUMBERED} AND NOT once AND NOT duplicate AND cumulative)",
    "needless": f"int({_NUMBERED} AND coalesce(duplicate, false))",
}
"""What a packet adds to the sums of its way."""


def named(expressions: Mapping[str, str]) -> list[str]:
    """Return SQL of columns with their names.

    Spark is told of a column in one call this way; built from `Column`s, a plan takes longer than what it computes.
    """
    return [f"{text} AS {name}" for name, text in expressions.items()]


def grouped(rows: DataFrame, keys: Sequence[str], expressions: Mapping[str, str]) -> DataFrame:
    """Return rows with equal keys as one, with aggregates by name."""
    return rows.groupBy(*keys).agg(*map(F.expr, named(expressions)))


def in_sessions(packets: DataFrame) -> DataFrame:
    """Return the packets that belong to a session."""
    return packets.where("session IS NOT NULL")


def measured(packets: DataFrame) -> DataFrame:
    """Return the packets of sessions with what each adds to `sums`."""
    return in_sessions(packets).selectExpr("*", *named(_FLAGS)).selectExpr("*", *named(_ADDED))


def sums() -> dict[str, str]:
    """Return the aggregates of `measured` packets from which `added_up` makes columns."""
    both: dict[str, str] = {}
    shares = ", ".join(map(str, QUANTILES.values()))
    for suffix, way in WAYS.items():
        both |= {f"{name}_{suffix}": f"sum(IF({way}, {name}, 0))" for name in _ADDED}
        # What travelled one way is acknowledged by what comes the other way.
        trip = f"IF({way}, NULL, rtt_us)"
        both |= {
            f"rtt_samples_{suffix}": f"count({trip})",
            f"rtt_min_us_{suffix}": f"min({trip})",
            f"rtt_quantiles_{suffix}": f"percentile_approx({trip}, array({shares}), {ACCURACY})",
        }
    return both


def added_up() -> list[str]:
    """Return the columns that sessions and seconds have in common, made from `sums`."""
    # A point at one end sees the whole way of what that end sends, and of what it receives only how fast it answers: of
    # the two ways the one that takes longer is shown.
    longer = "coalesce(rtt_quantiles_out[0], -1) >= coalesce(rtt_quantiles_in[0], -1)"
    told = {f"loss_{suffix}": _loss(suffix) for suffix in WAYS}
    told |= {name: f"IF({longer}, {name}_out, {name}_in)" for name in ("rtt_samples", "rtt_min_us")}
    told |= {
        name: f"IF({longer}, rtt_quantiles_out[{place}], rtt_quantiles_in[{place}])"
        for place, name in enumerate(QUANTILES)
    }
    sent = [f"{name}_{suffix}" for suffix in WAYS for name in ("packets", "bytes", "retransmissions", "goodput")]
    return [*sent, *named(told)]


def _loss(way: str) -> str:
    """SQL of the share of one way's packets that were lost; null if no packet has a number."""

    def share(some: str, whole: str) -> str:
        return f"coalesce(try_divide({some}_{way}, {whole}), 0D)"

    repeatable = f"repeatable_{way}"
    before = (
        f"greatest({share('skipped', f'(fresh_{way} + skipped_{way} - late_{way})')}, {share('needless', repeatable)})"
    )
    behind, missing = share("repeated", repeatable), share("missing", repeatable)
    return f"IF(fresh_{way} + skipped_{way} > 0, 1 - (1 - {before}) * sqrt(1 - {behind}) * (1 - {missing}), NULL)"
