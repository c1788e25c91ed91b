"""What was sent and what came back for it: the step from packets to transfers, and the round trips.

An *exchange* is one datagram's worth: a message, or one part of a rup message, or one stamp of an mrp packet, with
all its copies and the acknowledgements that name it. A round trip is measured only where it is clear which datagram
was answered: it was sent once. An mrp acknowledgement echoes the stamp, so each stamp is an exchange of its own; a
rup confirm counts for the part that ends where it points. The time that a peer takes to commit before it
acknowledges is part of a round trip. Requests are left out: their answer waits for an application.

A piggyback acknowledgement covers all numbers up to its own. It becomes one acknowledgement for each message, at
the time of the first that covers it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from fairway.lake.analysis.calls import IN_TIME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OWNER = ("bucket", "session", "protocol", "point")
MESSAGE = (*OWNER, "from_caller", "message")
"""Whose message it is: `from_caller` is that of the one who sends it, also for acknowledgements."""

_HANDSHAKE_ACK = "(kind = 'response' AND body_bytes = 0 AND udpc_ack = 1)"
"""A server's first index is its SYN+ACK's, 1: what answers it carries no message."""

CARRIES = f"""CASE protocol
    WHEN 'udpc' THEN kind IN ('plain', 'important', 'request', 'answering_request')
        OR (kind = 'response' AND NOT {_HANDSHAKE_ACK})
    WHEN 'mrp' THEN kind = 'data' AND (mrp_layout = 'stamped' OR body_bytes > 0)
    WHEN 'rup' THEN kind = 'data'
    ELSE kind = 'packet' END"""
"""A datagram that holds a message, or a part of one."""

_SENT = f"""IF({CARRIES} OR kind = 'heartbeat', named_struct(
    'from_caller', from_caller,
    'message', IF(kind = 'heartbeat', concat('heartbeat ', udpc_index), message),
    'part', CASE WHEN protocol = 'rup' THEN rup_position + body_bytes
        WHEN protocol = 'mrp' THEN CAST(coalesce(mrp_stamp, 0) AS BIGINT) ELSE 0L END,
    'kind', CASE WHEN kind = 'answering_request' THEN 'request' WHEN protocol = 'rup' THEN 'message' ELSE kind END,
    'sent', true, 'good', CAST(NULL AS BOOLEAN)), NULL)"""

_ANSWERED = f"""IF(
    kind IN ('important_ack', 'heartbeat_ack', 'answering_request', 'ack', 'confirm')
        OR (kind = 'response' AND NOT {_HANDSHAKE_ACK}),
    named_struct(
    'from_caller', NOT from_caller,
    'message', CASE WHEN kind = 'heartbeat_ack' THEN concat('heartbeat ', udpc_ack)
        WHEN kind IN ('response', 'answering_request') THEN CAST(udpc_ack AS STRING) ELSE message END,
    'part', CASE WHEN protocol = 'rup' THEN rup_position
        WHEN protocol = 'mrp' THEN CAST(mrp_stamp AS BIGINT) ELSE 0L END,
    'kind', CASE WHEN kind = 'important_ack' THEN 'important' WHEN kind = 'heartbeat_ack' THEN 'heartbeat'
        WHEN protocol = 'udpc' THEN 'request' WHEN protocol = 'mrp' THEN 'data' WHEN protocol = 'rup' THEN 'message'
        ELSE 'packet' END,
    'sent', false, 'good', coalesce(pydevts_success, 0) = 0), NULL)"""

_BEHIND = ("at", "retransmission", "body_bytes", "rup_total")
_SAYING = ("from_caller", "message", "part", "kind", "sent", "good")

MEASURED = ("important", "data", "message", "packet", "heartbeat")


KINDS = ("data", "heartbeat", "important", "message", "packet", "plain", "request", "response")
"""In the order of the alphabet, so that the greatest number is the greatest name. A table of groups in memory holds
numbers; for the greatest of texts Spark would sort all rows."""


def _number_of(kind: str) -> str:
    return f"CASE {kind} " + " ".join(f"WHEN '{name}' THEN {number}" for number, name in enumerate(KINDS)) + " END"


def kind_of(number: str) -> str:
    """Gives the SQL of the kind that has this number."""
    return f"CASE {number} " + " ".join(f"WHEN {at} THEN '{name}'" for at, name in enumerate(KINDS)) + " END"


def exchanges(packets: DataFrame) -> DataFrame:
    """Gives what was sent under one name and when it was first acknowledged, heartbeats too; kinds are numbers."""
    said = sayings(packets).unionByName(covered(packets))
    numbered = said.where("message IS NOT NULL").withColumn("kind", F.expr(_number_of("kind")))
    grouped = numbered.groupBy(*MESSAGE, "part").agg(
        F.max(F.expr("IF(sent, kind, NULL)")).alias("sent_kind"),
        F.max("kind").alias("any_kind"),
        F.count_if("sent").alias("datagrams"),
        F.min(F.expr("IF(sent, at, NULL)")).alias("first_sent"),
        F.max(F.expr("IF(sent, at, NULL)")).alias("last_sent"),
        F.max(F.expr("IF(sent, 1 + retransmission, NULL)")).alias("attempts"),
        F.count_if(F.expr("sent AND retransmission > 0")).alias("copies"),
        F.max(F.expr("IF(sent, body_bytes, NULL)")).alias("body_bytes"),
        F.max("rup_total").alias("total_bytes"),
        F.min(F.expr("IF(good, at, NULL)")).alias("acknowledged"),
        F.min(F.expr("IF(NOT good, at, NULL)")).alias("failed"),
    )
    kinds = ", ".join(str(KINDS.index(kind)) for kind in MEASURED)
    rtt_us = f"""IF(datagrams = 1 AND sent_kind IN ({kinds}) AND acknowledged >= first_sent,
        unix_micros(acknowledged) - unix_micros(first_sent), NULL)"""
    return grouped.withColumn("rtt_us", F.expr(rtt_us))


def sayings(packets: DataFrame) -> DataFrame:
    """Gives what packets say about messages: a response carries one and answers another, and so has two rows."""
    both = F.explode(F.array(F.expr(_SENT), F.expr(_ANSWERED)))
    said = packets.where("session IS NOT NULL").select(*OWNER, *_BEHIND, both.alias("saying"))
    return said.where("saying IS NOT NULL").select(*OWNER, *_BEHIND, *(F.col(f"saying.{name}") for name in _SAYING))


def covered(packets: DataFrame) -> DataFrame:
    """Gives one acknowledgement for each message of the piggyback layout that an acknowledgement covers.

    Sorted by falling number, the acknowledgements that cover a message are those before it.
    """
    piggyback = packets.where("mrp_layout = 'piggyback'")
    carries = "body_bytes > 0"
    in_time = Window.partitionBy("bucket", "session").orderBy(*IN_TIME)
    before = in_time.rowsBetween(Window.unboundedPreceding, -1)
    heard = {
        side: F.last(F.expr(f"IF({carries} AND {sender}, CAST(message AS BIGINT), NULL)"), ignorenulls=True).over(
            before
        )
        for side, sender in (("out", "from_caller"), ("in", "NOT from_caller"))
    }
    named = piggyback.withColumns({"last_out": heard["out"], "last_in": heard["in"]})
    last = "IF(from_caller, last_in, last_out)"
    step = f"pmod(mrp_from_sequence - {last} + 32768, 65536) - 32768"
    rows = F.array_compact(
        F.array(
            F.expr(f"IF({carries}, struct(from_caller, CAST(message AS BIGINT) AS number, false AS covers), NULL)"),
            F.expr(
                f"struct(NOT from_caller AS from_caller, coalesce({last} + {step}, mrp_from_sequence) AS number,"
                " true AS covers)"
            ),
        )
    )
    events = named.select(*OWNER, "at", F.explode(rows).alias("event")).select(*OWNER, "at", "event.*")
    falling = Window.partitionBy("bucket", "session", "from_caller").orderBy(F.desc("number"), F.desc("covers"))
    first = F.min(F.expr("IF(covers, at, NULL)")).over(
        falling.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    messages = events.withColumn("covered_at", first).where("NOT covers AND covered_at IS NOT NULL")
    return messages.select(
        *OWNER,
        F.col("covered_at").alias("at"),
        F.lit(None).cast("int").alias("retransmission"),
        F.lit(None).cast("int").alias("body_bytes"),
        F.lit(None).cast("long").alias("rup_total"),
        "from_caller",
        F.col("number").cast("string").alias("message"),
        F.lit(0).cast("long").alias("part"),
        F.lit("data").alias("kind"),
        F.lit(False).alias("sent"),
        F.lit(True).alias("good"),
    )
