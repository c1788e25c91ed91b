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
from fairway.lake.analysis.calls import ANSWERS, CALLS
from fairway.lake.analysis.exchanges import OWNER
from fairway.lake.analysis.sums import each_way, round_trips

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REPLACED_WITHIN_S = 10

_BEGINS = """kind IN ('syn', 'connect') OR (protocol = 'rup' AND kind = 'data' AND rup_start = 1) OR kind = 'packet'"""
"""A session whose first record is such a one was captured from its start."""

_CALLER_ID = "coalesce(mrp_client, IF(from_caller, mrp_origin, mrp_destination))"
_CALLEE_ID = "coalesce(mrp_server, IF(from_caller, mrp_destination, mrp_origin))"
_PROTOCOL_SESSION = """CASE protocol WHEN 'udpc' THEN CAST(coalesce(udpc_id, udpc_call) AS STRING)
    WHEN 'mrp' THEN concat(caller_id, '/', coalesce(CAST(callee_id AS STRING), '?')) END"""

_END = f"""CASE
    WHEN fins > 0 THEN 'closed'
    WHEN rejections > 0 AND acceptances = 0 THEN 'refused'
    WHEN packets_in = 0 THEN 'unanswered'
    WHEN protocol = 'udpc' AND next_first <= last + INTERVAL {REPLACED_WITHIN_S} SECONDS THEN 'replaced'
    ELSE 'open' END"""

_COLUMNS = {
    "protocol_session": _PROTOCOL_SESSION,
    "duration_us": "unix_micros(last) - unix_micros(first)",
    "handshake_us": "unix_micros(answered) - unix_micros(called)",
    "retransmission_ratio": "(retransmissions_out + retransmissions_in) / nullif(repeatable, 0)",
    "duplicate_ratio": "duplicates / nullif(repeatable, 0)",
    "violations": "0L",
}


def sessions(facts: DataFrame, transfers: DataFrame) -> DataFrame:
    """Gives the table `sessions`, and `bucket` behind its columns; `violations` is 0 until they are counted."""
    messages = transfers.select(*OWNER, "from_caller", F.lit(False).alias("seen"), F.lit(True).alias("transfer"))
    everything = facts.unionByName(messages, allowMissingColumns=True)
    summed = everything.groupBy(*OWNER).agg(*each_way(), *_own_sums()).withColumns(round_trips())
    told = summed.withColumns({name: F.expr(text) for name, text in _COLUMNS.items()})
    after = Window.partitionBy("bucket", "point", "flow", "protocol").orderBy("first", "session")
    ended = told.withColumn("next_first", F.lead("first").over(after)).withColumn("end", F.expr(_END))
    return ended.select(*SESSIONS.names, "bucket")


def with_violations(sessions: DataFrame, violations: DataFrame) -> DataFrame:
    """Gives sessions with the number of their violations."""
    counted = violations.where("session IS NOT NULL").groupBy("session").agg(F.count("*").alias("broken"))
    joined = sessions.join(counted, on="session", how="left")
    counts = joined.withColumn("violations", F.coalesce(F.col("broken"), F.lit(0).cast("long")))
    return counts.select(*SESSIONS.names, "bucket")


def _own_sums() -> list[Column]:
    place = "struct(at_ns, file_id, offset)"
    texts = {
        "flow": "min(flow)",
        "caller": "max(IF(from_caller, source, destination))",
        "caller_port": "max(IF(from_caller, source_port, destination_port))",
        "callee": "max(IF(from_caller, destination, source))",
        "callee_port": "max(IF(from_caller, destination_port, source_port))",
        "udpc_id": "max(IF(kind != 'syn', udpc_session, NULL))",
        "udpc_call": "max(udpc_session)",
        "caller_id": f"max({_CALLER_ID})",
        "callee_id": f"max({_CALLEE_ID})",
        "first": "min(IF(seen, at, NULL))",
        "last": "max(IF(seen, at, NULL))",
        "from_start": f"min_by({_BEGINS}, IF(seen, {place}, NULL))",
        "called": f"min(IF(kind IN {CALLS}, at, NULL))",
        "answered": f"min(IF(kind IN {ANSWERS}, at, NULL))",
        "transfers_out": "count_if(transfer AND from_caller)",
        "transfers_in": "count_if(transfer AND NOT from_caller)",
        "duplicates": "count_if(duplicate)",
        "repeatable": "count(retransmission)",
        "fins": "count_if(kind = 'fin')",
        "rejections": "count_if(mrp_status = 2)",
        "acceptances": "count_if(mrp_status = 1)",
    }
    return [F.expr(text).alias(name) for name, text in texts.items()]
