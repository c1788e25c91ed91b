"""The rules of mrp about messages and their acknowledgements; clauses of docs/wire/mrp.md.

    stamped    a sequence, its transmissions and its acks
    piggyback  sequences and what from_seq says of them

What concerns the opening of connections stands in `mrp_opening.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fairway.lake.violations import mrp_opening, screens
from fairway.lake.violations.limits import SLACK_NS, UNACKNOWLEDGED_NS, WINDOW_MAX
from fairway.lake.violations.rule import (
    FRAME,
    Check,
    Rule,
    format_rule,
    of_protocol,
    over,
    until,
    until_now,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def _in_layout(packets: DataFrame, layout: str) -> DataFrame:
    mrp = of_protocol(packets, "mrp")
    return mrp.where(f"session IS NOT NULL AND mrp_layout = '{layout}' AND kind IN ('data', 'ack')")


def _stamped(packets: DataFrame) -> DataFrame:
    """Adds to the stamped data and acks of a sequence its first transmission, and how often each stamp was seen.

    `advanced_at` is about all sequences of the side: when one was last acknowledged for the first time.
    """
    spoken = _in_layout(packets, "stamped").withColumns(
        {"side": F.expr("from_caller = (kind = 'data')"), "number": F.expr("coalesce(message, '')")}
    )
    of_number = until_now("session", "side", "number")
    of_stamp = until_now("session", "side", "number", "mrp_stamp")
    seen = spoken.withColumns(
        over(
            of_number,
            sent="count_if(kind = 'data')",
            acks="count_if(kind = 'ack')",
            acked_at="min(IF(kind = 'ack', at_ns, NULL))",
            first="min(IF(kind = 'data', struct(at_ns, body_bytes, body_crc), NULL))",
        )
        | over(of_stamp, stamped="count_if(kind = 'data')")
    )
    known = seen.withColumns(over(until_now("session", "side"), advanced_at="max(IF(at_ns = acked_at, at_ns, NULL))"))
    fields = ("kind", "mrp_sequence", "mrp_stamp", "body_bytes", "body_crc")
    return known.select(*FRAME, *fields, "sent", "acks", "first", "stamped", "advanced_at")


_SAME_BODY = "first.body_bytes = body_bytes AND coalesce(first.body_crc = body_crc, true)"

_STAMPED_RULES = (
    Rule(
        clause="MRP-3.8",
        where="kind = 'data'",
        holds=_SAME_BODY,
        found="concat('sequence ', mrp_sequence, ' again, with another payload')",
        expected="a sequence stands for one message",
    ),
    Rule(
        clause="MRP-4.2",
        where="kind = 'ack' AND NOT (mrp_sequence = 0 AND mrp_stamp = 0)",
        holds="sent > 0",
        found="concat('an ack of sequence ', mrp_sequence, ', which was never sent')",
        expected="an ack names a packet that was sent",
        needs_start=True,
    ),
    Rule(
        clause="MRP-4.3",
        where="kind = 'ack' AND NOT (mrp_sequence = 0 AND mrp_stamp = 0) AND sent > 0",
        holds="stamped > 0",
        found="concat('an ack of sequence ', mrp_sequence, ' with stamp ', mrp_stamp, ', which no transmission had')",
        expected="an ack repeats the stamp of the packet that it acknowledges",
        needs_start=True,
    ),
    Rule(
        clause="MRP-7.3",
        severity="warning",
        where=f"kind = 'data' AND acks = 0 AND at_ns - first.at_ns > {UNACKNOWLEDGED_NS}",
        holds=f"advanced_at >= at_ns - {UNACKNOWLEDGED_NS}",
        found="concat('a retransmission ', (at_ns - first.at_ns) DIV 1000000, ' ms after the first, without progress')",
        expected="data outstanding and nothing newly acknowledged for 30 s ends the connection",
        needs_start=True,
    ),
)


def _piggyback(packets: DataFrame) -> DataFrame:
    """Adds to piggyback data what from_seq may speak of, and what it said long enough ago.

    `seen` counts the sequences that the other side has used up to now; beyond half a turn it no longer says anything.
    """
    carried = _in_layout(packets, "piggyback").withColumn("carries", F.col("body_bytes") > 0)
    roles = F.expr(
        """array(named_struct('role', 'sent', 'side', from_caller, 'number', mrp_sequence),
            named_struct('role', 'answer', 'side', NOT from_caller, 'number', mrp_from_sequence))"""
    )
    fields = ("from_caller", "mrp_sequence", "mrp_from_sequence", "message", "body_bytes", "body_crc", "carries")
    entries = carried.select(*FRAME, *fields, F.explode(roles).alias("entry")).select("*", "entry.*")
    of_number = until_now("session", "side", "number")
    used = entries.withColumns(
        over(
            of_number,
            sent="count_if(role = 'sent' AND carries)",
            used_at="min(IF(role = 'sent' AND carries, at_ns, NULL))",
        )
    )
    of_side = until_now("session", "side")
    long_ago = until("session", "side", ago_ns=SLACK_NS)
    counted = used.withColumns(
        over(of_side, seen="count_if(role = 'sent' AND carries AND at_ns = used_at)")
        | over(long_ago, said="max_by(mrp_from_sequence, IF(role = 'answer', at_ns, NULL))")
    )
    of_message = until_now("session", "side", "role", "message")
    known = counted.withColumns(
        over(of_message, first="min(IF(role = 'sent' AND carries, struct(at_ns, body_bytes, body_crc), NULL))")
    )
    return known.select(*FRAME, *fields, "role", "sent", "seen", "said", "first")


_PIGGYBACK_RULES = (
    Rule(
        clause="MRP-3.8",
        where="role = 'sent' AND carries",
        holds=_SAME_BODY,
        found="concat('sequence ', mrp_sequence, ' again, with another payload')",
        expected="a sequence stands for one message",
    ),
    Rule(
        clause="MRP-5.1",
        where=f"role = 'answer' AND sent > 0 AND seen <= {WINDOW_MAX}",
        holds="mrp_from_sequence <= seen",
        found="concat('from_seq ', mrp_from_sequence, ' after only ', seen, ' messages')",
        expected="from_seq is the highest sequence with none missing below",
        needs_start=True,
    ),
    Rule(
        clause="MRP-5.6",
        where="role = 'answer' AND mrp_from_sequence <> 0",
        holds="sent > 0",
        found="concat('from_seq ', mrp_from_sequence, ', which was never sent')",
        expected="from_seq acknowledges what was sent",
        needs_start=True,
    ),
    Rule(
        clause="MRP-5.9",
        where="role = 'answer' AND said IS NOT NULL",
        holds="pmod(said - mrp_from_sequence, 65536) NOT BETWEEN 1 AND 32767",
        found="concat('from_seq ', mrp_from_sequence, ' after ', said)",
        expected="from_seq never goes back",
    ),
)

FORMAT_RULES = (
    format_rule(
        "MRP-1.1",
        "bad_magic unknown_type too_short",
        "MRP and a type from 0 to 4",
        where="(reason <> 'too_short' OR payload_bytes < 4)",
    ),
    format_rule("MRP-1.2", "wrong_size", "8 bytes of a connect, 12 of a con reply, 14 of an ack"),
    format_rule("MRP-1.3", "too_short", "at least 12 bytes of data", where="payload_bytes >= 4"),
    format_rule("MRP-1.4", "zero_conid", "connection ids other than 0"),
    format_rule("MRP-1.5", "bad_stat", "stat 1 or 2"),
)

CHECKS = (
    *mrp_opening.CHECKS,
    Check(screen=screens.mrp_stamped, context=_stamped, rules=_STAMPED_RULES),
    Check(screen=screens.mrp_piggyback, context=_piggyback, rules=_PIGGYBACK_RULES),
)
