"""One row per conversation: the table `sessions`.

It ended *closed* if a FIN was seen; *refused* if an mrp connect was rejected; *unanswered* if the callee never sent
anything; *replaced* if another udpc session began on the same flow within ten seconds of its last packet, which is
when a silent one is given up; otherwise it is *open*: the capture ends before it does, or its protocol has no end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairway.core.tables import SESSIONS
from fairway.lake.analysis.sums import AT_US, EPISODE, OWNERS, added_up, grouped, in_sessions, measured, named, sums

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REPLACED_WITHIN_US = 10_000_000

_BEGINS = "(kind IN ('syn', 'connect', 'packet') OR (protocol = 'rup' AND kind = 'data' AND rup_start = 1))"
_ENDPOINTS = {
    "caller": "IF(from_caller, source, destination)",
    "caller_port": "IF(from_caller, source_port, destination_port)",
    "callee": "IF(from_caller, destination, source)",
    "callee_port": "IF(from_caller, destination_port, source_port)",
}
_HANDSHAKE = "kind IN ('connect', 'con_reply')"
_SEEN = {
    "first_us": f"min({AT_US})",
    "last_us": f"max({AT_US})",
    "begun_ns": f"min(IF({_BEGINS}, at_ns, NULL))",
    "first_ns": "min(at_ns)",
    "called_us": f"min(IF(kind IN ('syn', 'connect'), {AT_US}, NULL))",
    "answered_us": f"min(IF(kind IN ('syn_ack', 'con_reply'), {AT_US}, NULL))",
    "udpc_id": "max(IF(kind != 'syn', udpc_session, NULL))",
    "udpc_call": "max(udpc_session)",
    "caller_id": f"max(IF({_HANDSHAKE}, mrp_client, IF(from_caller, mrp_origin, mrp_destination)))",
    "callee_id": """max(CASE WHEN kind = 'con_reply' THEN mrp_server
        WHEN kind != 'connect' THEN IF(from_caller, mrp_destination, mrp_origin) END)""",
    "closed": "bool_or(kind = 'fin')",
    "accepted": "bool_or(coalesce(kind = 'con_reply' AND mrp_status = 1, false))",
    "rejected": "bool_or(coalesce(kind = 'con_reply' AND mrp_status = 2, false))",
    "countable": "count(retransmission)",
    "duplicates": "count_if(duplicate)",
}
_TOLD = {
    "first": "timestamp_micros(first_us)",
    "last": "timestamp_micros(last_us)",
    "duration_us": "last_us - first_us",
    "from_start": "coalesce(begun_ns = first_ns, false)",
    "handshake_us": "answered_us - called_us",
    "protocol_session": """CASE protocol WHEN 'udpc' THEN string(coalesce(udpc_id, udpc_call))
        WHEN 'mrp' THEN concat(caller_id, '/', coalesce(string(callee_id), '?')) END""",
    "retransmission_ratio": "try_divide(retransmissions_out + retransmissions_in, countable)",
    "duplicate_ratio": "try_divide(duplicates, countable)",
    "ending": f"""CASE WHEN closed THEN 'closed' WHEN rejected AND NOT accepted THEN 'refused'
        WHEN packets_in = 0 THEN 'unanswered'
        WHEN protocol = 'udpc' AND next_us <= last_us + {REPLACED_WITHIN_US} THEN 'replaced' ELSE 'open' END""",
}
_FOLLOWING = "PARTITION BY point, flow, protocol ORDER BY first_us, last_us, session"


def beginnings(packets: DataFrame) -> DataFrame:
    """Return of each session `first`, `from_start`, `packets_out` and `packets_in`, as `sessions` has them."""
    counts = {"packets_out": "count_if(from_caller)", "packets_in": "count_if(NOT from_caller)"}
    times = {name: _SEEN[name] for name in ("first_us", "first_ns", "begun_ns")}
    seen = grouped(in_sessions(packets), ["flow", "session"], times | counts)
    return seen.selectExpr("flow", "session", *named({name: _TOLD[name] for name in ("first", "from_start")}), *counts)


def sessions(packets: DataFrame, transfers: DataFrame, violations: DataFrame) -> DataFrame:
    """Return the table `sessions`, with the transfers and violations of each counted."""
    # Of one session all packets have the same two endpoints.
    ended = measured(packets).selectExpr("*", *named(_ENDPOINTS))
    seen = grouped(ended, [*OWNERS, *_ENDPOINTS], sums() | _SEEN)
    ordered = seen.selectExpr("*", f"lead(first_us) OVER ({_FOLLOWING}) AS next_us")
    told = ordered.selectExpr(*OWNERS, *_ENDPOINTS, "duplicates", *added_up(), *named(_TOLD))
    counts = {"transfers_out": "count_if(from_caller)", "transfers_in": "count_if(NOT from_caller)"}
    sent = grouped(transfers, ["session"], counts)
    broken = grouped(violations.where("session IS NOT NULL"), ["session"], {"violations": "count(*)"})
    joined = told.join(sent, on="session", how="left").join(broken, on="session", how="left")
    return joined.na.fill(0, [*counts, "violations"]).selectExpr(*SESSIONS.names, *EPISODE)
