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
from fairway.lake.analysis.exchanges import OWNER
from fairway.lake.analysis.sums import added_up, earliest_and_latest, total

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from fairway.lake.analysis.sums import Facts

REPLACED_WITHIN_S = 10

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
    # Of several records at the first instant one that begins is enough.
    "from_start": "coalesce(begun_ns = first_ns, false)",
    "retransmission_ratio": "(retransmissions_out + retransmissions_in) / nullif(copyable, 0)",
    "duplicate_ratio": "duplicates / nullif(copyable, 0)",
    "violations": "0L",
}


def sessions(facts: Facts, transfers: DataFrame) -> DataFrame:
    """Gives the table `sessions`, and `bucket` behind its columns; `violations` is 0 until they are counted."""
    messages = transfers.groupBy(*OWNER).agg(
        F.count_if("from_caller").alias("transfers_out"), F.count_if(~F.col("from_caller")).alias("transfers_in")
    )
    summed = added_up(facts, OWNER, *_own_sums(), *earliest_and_latest(), beside=messages)
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
    same = [F.max(name).alias(name) for name in ("flow", "caller", "caller_port", "callee", "callee_port")]
    counts = ("transfers_out", "transfers_in", "duplicates", "copyable", "fins", "rejections", "acceptances")
    return same + [F.expr(total(name)).alias(name) for name in counts]
