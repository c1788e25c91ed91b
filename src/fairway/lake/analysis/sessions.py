"""One row per conversation: the table `sessions`.

It ended *closed* if a FIN was seen; *refused* if an mrp connect was rejected; *unanswered* if the callee never sent
anything; *replaced* if another udpc session began on the same flow within ten seconds of its last packet, which is
when a silent one is given up; otherwise it is *open*: the capture ends before it does, or its protocol has no end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from fairway.core.tables import SESSIONS
from fairway.lake.analysis.sums import AT_US, EPISODE, OWNERS, added_up, columns, in_sessions, measured, sums

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


def beginnings(packets: DataFrame) -> DataFrame:
    """Return of each session `first`, `from_start`, `packets_out` and `packets_in`, as `sessions` has them."""
    seen = (
        in_sessions(packets)
        .groupBy("session")
        .agg(
            *columns({name: _SEEN[name] for name in ("first_us", "first_ns", "begun_ns")}),
            F.expr("count_if(from_caller)").alias("packets_out"),
            F.expr("count_if(NOT from_caller)").alias("packets_in"),
        )
    )
    told = columns({name: _TOLD[name] for name in ("first", "from_start")})
    return seen.select("session", *told, "packets_out", "packets_in")


def sessions(packets: DataFrame, transfers: DataFrame, violations: DataFrame) -> DataFrame:
    """Return the table `sessions`, with the transfers and violations of each counted."""
    # Of one session all packets have the same two endpoints.
    ends = columns(_ENDPOINTS)
    seen = measured(packets).groupBy(*OWNERS, "flow", *ends).agg(*sums(), *columns(_SEEN))
    following = Window.partitionBy("point", "flow", "protocol").orderBy("first_us", "last_us", "session")
    ordered = seen.withColumn("next_us", F.lead("first_us").over(following))
    told = ordered.select(*OWNERS, "flow", *_ENDPOINTS, "duplicates", *added_up(), *columns(_TOLD))
    sent = transfers.groupBy("session").agg(
        F.expr("count_if(from_caller)").alias("transfers_out"),
        F.expr("count_if(NOT from_caller)").alias("transfers_in"),
    )
    broken = violations.where("session IS NOT NULL").groupBy("session").agg(F.count("*").alias("violations"))
    joined = told.join(sent, on="session", how="left").join(broken, on="session", how="left")
    return joined.na.fill(0, ["transfers_out", "transfers_in", "violations"]).select(*SESSIONS.names, *EPISODE)
