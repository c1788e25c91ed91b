"""One row per message: the table `transfers`.

A message is *acknowledged* when its acknowledgement passed the point (rup: the confirm of its total; a request: its
response); *repaired* if the receiver had said before that its CRC was wrong; *refused* if it was not acknowledged
and its receiver closed the session after it was sent; *unreliable* if nobody acknowledges such messages (plain
packets, and responses, which are sent again for every retransmission of their request). What is left is
*unacknowledged*.

A message of which the point saw only acknowledgements has a row too, except in pydevts, where an acknowledgement of
nothing is how a peer asks for a keepalive, and in mrp's piggyback layout, where it stands for all numbers before it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fairway.core.tables import TRANSFERS
from fairway.lake.analysis.sessions import (
    AT_US,
    CARRIES,
    EPISODE,
    grouped,
    in_sessions,
    named,
    seconds_of,
    whole_sessions,
)

KINDS = ("data", "important", "message", "packet", "plain", "request", "response")
"""What a message is. Its index here is aggregated: for numbers Spark need not sort."""

_LISTED = f"array({', '.join(map(repr, KINDS))})"
_CUMULATIVE = "(mrp_layout <=> 'piggyback')"
_HEARS = "(acknowledges IS NOT NULL OR (kind IN ('important_ack', 'ack', 'confirm') AND message IS NOT NULL))"
"""Whether a packet speaks of a message of its receiver."""
_SENT_AS = "CASE WHEN protocol = 'rup' THEN 'message' WHEN kind = 'answering_request' THEN 'request' ELSE kind END"
_HEARD_AS = """CASE protocol WHEN 'mrp' THEN 'data' WHEN 'rup' THEN 'message' WHEN 'pydevts' THEN 'packet'
    ELSE IF(kind = 'important_ack', 'important', 'request') END"""
_SENT = {
    "from_caller": "from_caller",
    "message": "message",
    "kind": f"array_position({_LISTED}, {_SENT_AS})",
    "sent_us": AT_US,
    "attempt": "retransmission + 1",
    "body_bytes": "body_bytes",
    "rup_total": "rup_total",
    "acknowledged_us": "bigint(NULL)",
    "failed": "false",
    "position": "position",
}
"""What a packet says of the message that it holds."""
_HEARD = {
    "from_caller": "NOT from_caller",
    "message": "coalesce(acknowledges, message)",
    "kind": f"array_position({_LISTED}, {_HEARD_AS})",
    "sent_us": "bigint(NULL)",
    "attempt": "int(NULL)",
    "body_bytes": "int(NULL)",
    "rup_total": "bigint(NULL)",
    "acknowledged_us": f"IF(acknowledges IS NULL, NULL, {AT_US})",
    "failed": "protocol = 'pydevts' AND pydevts_success != 0",
    "position": "position",
}
"""What it says of the one that it acknowledges."""
_SAID = {CARRIES: _SENT, _HEARS: _HEARD}

_SEEN = {
    "sent_kind": "max(IF(sent_us IS NULL, NULL, kind))",
    "any_kind": "max(kind)",
    "total": "max(rup_total)",
    "body": "max(body_bytes)",
    "first_us": "min(sent_us)",
    "last_us": "max(sent_us)",
    "attempts": "bigint(coalesce(max(attempt), 0))",
    "copies": "count_if(attempt > 1)",
    "acknowledged_us": "min(acknowledged_us)",
    # Of what was seen at one instant, the order in the file says what came first.
    "sent_at": "min(IF(sent_us IS NULL, NULL, position))",
    "acknowledged_at": "min(IF(acknowledged_us IS NULL, NULL, position))",
    "failed_at": "min(IF(failed, position, NULL))",
}
_TOLD = {
    "kind": f"element_at({_LISTED}, int(coalesce(sent_kind, any_kind)))",
    "size_bytes": "bigint(IF(protocol = 'rup', total, body))",
    "parts": "IF(protocol = 'rup' AND body > 0, greatest(1, bigint(ceil(total / body))), 1)",
    "first_sent": "timestamp_micros(first_us)",
    "last_sent": "timestamp_micros(last_us)",
    "acknowledged": "timestamp_micros(acknowledged_us)",
    "latency_us": "acknowledged_us - first_us",
}
_OUTCOME = """CASE WHEN kind IN ('plain', 'response') THEN 'unreliable'
        WHEN failed_at < acknowledged_at THEN 'repaired' WHEN acknowledged_us IS NOT NULL THEN 'acknowledged'
        WHEN IF(from_caller, callee_closed_at, caller_closed_at) > sent_at THEN 'refused' ELSE 'unacknowledged' END"""


def transfers(packets: DataFrame, seconds: DataFrame | None = None) -> DataFrame:
    """Return the table `transfers`; `seconds` are those of the packets, if somebody has kept them."""
    rows = in_sessions(packets)
    said = _said(rows.where(f"NOT {_CUMULATIVE}")).union(_covered(_said(rows.where(_CUMULATIVE))))
    messages = grouped(said, ["session", "from_caller", "message"], _SEEN)
    known = whole_sessions(seconds or seconds_of(packets), "caller_closed_at", "callee_closed_at")
    told = messages.join(known, on="session", how="inner").where("protocol != 'pydevts' OR sent_kind IS NOT NULL")
    return (
        told.selectExpr("*", *named(_TOLD))
        .selectExpr("*", f"{_OUTCOME} AS outcome")
        .selectExpr(*TRANSFERS.names, *EPISODE)
    )


def _said(rows: DataFrame) -> DataFrame:
    """Return what packets say of messages: of those that they hold, and of those that they acknowledge."""
    both = ", ".join(f"IF({which}, struct({', '.join(named(told))}), NULL)" for which, told in _SAID.items())
    said = rows.where(" OR ".join(_SAID)).selectExpr("session", f"inline(array({both}))")
    return said.where("message IS NOT NULL")


def _covered(said: DataFrame) -> DataFrame:
    """Return messages with the first acknowledgement that covers them: one covers all numbers up to its own.

    Sorted by falling number, the acknowledgements that cover a message are those before it.
    """
    falling = "PARTITION BY session, from_caller ORDER BY bigint(message) DESC"
    first = f"min(acknowledged_us) OVER ({falling} RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    return said.withColumn("acknowledged_us", F.expr(first)).where("sent_us IS NOT NULL")
