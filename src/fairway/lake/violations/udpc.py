"""The rules of udpc that a capture can show broken; clauses of docs/wire/udpc.md.

numbers     an index and all that is said under it or of it, by session and side
handshakes  SYN, SYN+ACK and FIN, which are few
openings    sessions that begin or end in the wrong order
strangers   sessionIDs that nobody was given
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fairway.lake.violations import screens
from fairway.lake.violations.limits import FIN_NS, IMPORTANT_NS, JITTER_NS, NEARBY, REQUEST_NS, SLACK_NS
from fairway.lake.violations.limits import UDPC_TURN as TURN
from fairway.lake.violations.rule import (
    FRAME,
    Check,
    Rule,
    format_rule,
    of_protocol,
    over,
    until_now,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ASKS = "kind IN ('plain', 'important', 'request', 'answering_request', 'heartbeat')"
_RESPONDS = "kind IN ('response', 'answering_request')"
_ANSWERS = "kind IN ('important_ack', 'heartbeat_ack', 'response', 'answering_request')"

_ROLES = f"""filter(array(
    named_struct('role', 'sent', 'side', from_caller, 'number', udpc_index),
    IF({_ANSWERS}, named_struct('role', 'answer', 'side', NOT from_caller, 'number', udpc_ack), NULL)
    ), entry -> entry IS NOT NULL)"""
"""A packet speaks under its own index, and an answer also of one of the other side's."""


def _in_sessions(packets: DataFrame) -> DataFrame:
    return of_protocol(packets, "udpc").where("session IS NOT NULL")


def _numbers(packets: DataFrame) -> DataFrame:
    """Adds to what is said under or of an index the first packet that was sent under it, and its first response."""
    udpc = _in_sessions(packets)
    fields = ("kind", "from_caller", "udpc_index", "udpc_ack", "udpc_flag", "body_bytes", "body_crc")
    entries = udpc.select(*FRAME, *fields, F.explode(F.expr(_ROLES)).alias("entry")).select("*", "entry.*")
    sent = "struct(at_ns, kind, udpc_flag, udpc_ack, body_bytes, body_crc)"
    seen = over(
        until_now("session", "side", "number"),
        first=f"min(IF(role = 'sent', {sent}, NULL))",
        response=f"min(IF(role = 'answer' AND {_RESPONDS}, struct(at_ns, udpc_index), NULL))",
    )
    return entries.withColumns(seen)


_SAME_BODY = "first.body_bytes = body_bytes AND coalesce(first.body_crc = body_crc, true)"
_SAME_ACK = "coalesce(first.udpc_ack, 0) = coalesce(udpc_ack, 0)"
_EMPTY_ACK = "(kind = 'response' AND from_caller AND body_bytes = 0)"
_FRESH_ACK = f"first.udpc_flag = udpc_flag AND (kind IN ('important_ack', 'heartbeat_ack') OR {_EMPTY_ACK})"
_RESPONSE_COPY = f"first.udpc_flag = udpc_flag AND {_RESPONDS} AND {_SAME_ACK}"
_LATER = "concat('a copy ', (at_ns - first.at_ns) DIV 1000000, ' ms after the first')"
_NAMES = "concat(kind, ' of index ', udpc_ack, coalesce(concat(', which is a ', first.kind), ', which was never sent'))"

_NUMBER_RULES = (
    Rule(
        clause="UDPC-3.2",
        where=f"role = 'sent' AND NOT ({_FRESH_ACK}) AND NOT ({_RESPONSE_COPY})",
        holds=f"first.udpc_flag = udpc_flag AND {_SAME_ACK} AND {_SAME_BODY}",
        found="concat('index ', udpc_index, ' again, for another ', kind)",
        expected="every new packet takes the next index",
    ),
    Rule(
        clause="UDPC-3.4",
        where=f"role = 'sent' AND {_FRESH_ACK}",
        holds=_SAME_ACK,
        found="concat('index ', udpc_index, ' again, to acknowledge ', udpc_ack, ' after ', first.udpc_ack)",
        expected="each acknowledgement takes a new index",
    ),
    Rule(
        clause="UDPC-4.6",
        where="role = 'answer' AND first.kind = 'syn_ack'",
        holds="kind = 'response' AND body_bytes = 0",
        found="concat('an answer to the SYN+ACK with a body of ', body_bytes, ' bytes')",
        expected="the handshake's ACK has no body",
    ),
    Rule(
        clause="UDPC-6.1",
        where="role = 'sent' AND kind = 'plain'",
        holds=f"at_ns - first.at_ns < {SLACK_NS}",
        found=_LATER,
        expected="a plain message is sent once",
    ),
    Rule(
        clause="UDPC-7.2",
        severity="warning",
        where="role = 'sent' AND kind = 'important'",
        holds=f"at_ns - first.at_ns <= {IMPORTANT_NS}",
        found=_LATER,
        expected="an important message is repeated for 30 s at the most",
    ),
    Rule(
        clause="UDPC-7.3",
        where="role = 'answer' AND kind = 'important_ack'",
        holds="first.kind = 'important'",
        found=_NAMES,
        expected="an IMP+ACK names an important message that was sent",
        needs_start=True,
    ),
    Rule(
        clause="UDPC-8.2",
        severity="warning",
        where="role = 'sent' AND kind = 'request'",
        holds=f"at_ns - first.at_ns <= {REQUEST_NS}",
        found=_LATER,
        expected="a request is repeated for 5 s at the most",
    ),
    Rule(
        clause="UDPC-8.4",
        where=f"role = 'sent' AND {_RESPONSE_COPY} AND NOT {_EMPTY_ACK}",
        holds=_SAME_BODY,
        found="concat('response ', udpc_index, ' again, with another body')",
        expected="a response is sent again byte for byte",
    ),
    Rule(
        clause="UDPC-8.7",
        where=f"role = 'answer' AND {_RESPONDS}",
        holds="first.kind IN ('request', 'answering_request', 'syn_ack')",
        found=_NAMES,
        expected="an ACK answers a request that was sent, or the SYN+ACK",
        needs_start=True,
    ),
    Rule(
        clause="UDPC-8.9",
        where=f"role = 'answer' AND {_RESPONDS} AND first.kind IN ('request', 'answering_request')",
        holds="response.udpc_index = udpc_index",
        found="concat('request ', udpc_ack, ' answered by ', udpc_index, ' after ', response.udpc_index)",
        expected="a request is answered once",
    ),
    Rule(
        clause="UDPC-9.2",
        where="role = 'answer' AND kind = 'heartbeat_ack'",
        holds="first.kind = 'heartbeat'",
        found=_NAMES,
        expected="an HBT+ACK names a heartbeat that was sent",
        needs_start=True,
    ),
    Rule(
        clause="UDPC-10.4",
        severity="warning",
        where="role = 'sent' AND kind = 'fin'",
        holds=f"at_ns - first.at_ns <= {FIN_NS}",
        found=_LATER,
        expected="FIN is repeated for 3 s at the most",
    ),
)


def _by_id(udpc: DataFrame) -> DataFrame:
    """Gives for each sessionID that one side of a flow uses when it did."""
    return udpc.groupBy("point", "flow", "forward", "udpc_session").agg(
        F.expr("min(at_ns)").alias("begins_at"),
        F.expr("min(at_ns) FILTER (WHERE kind = 'syn')").alias("called_at"),
        F.expr("min(at_ns) FILTER (WHERE kind = 'syn_ack')").alias("given_at"),
        F.expr("min(at_ns) FILTER (WHERE kind <> 'syn')").alias("used_at"),
        F.expr("max(at_ns) FILTER (WHERE kind NOT IN ('syn', 'syn_ack'))").alias("spoken_at"),
    )


def _flows(by_id: DataFrame) -> DataFrame:
    """Gives for each flow whose first packet is a SYN, so that the capture holds its beginning, its first SYN+ACK."""
    flows = by_id.groupBy("point", "flow").agg(
        F.expr("min(begins_at) = min(called_at)").alias("whole"),
        F.expr("min(given_at)").alias("first_given_at"),
    )
    return flows.where("whole").select("point", "flow", "whole", "first_given_at")


def _handshakes(packets: DataFrame) -> DataFrame:
    """Adds to SYN, SYN+ACK and FIN the first of their kind, and to a SYN+ACK what it answers."""
    udpc = of_protocol(packets, "udpc")
    by_id = _by_id(udpc)
    spoken = by_id.select(
        "point", "flow", "forward", F.col("udpc_session").alias("answered_session"), F.col("spoken_at")
    )
    rows = udpc.where("kind IN ('syn', 'syn_ack', 'fin')").withColumns(
        {
            "call": F.expr("CASE kind WHEN 'syn' THEN udpc_index WHEN 'syn_ack' THEN udpc_ack END"),
            "called_forward": F.expr("IF(kind = 'syn', forward, NOT forward)"),
        }
    )
    of_kind = until_now("point", "flow", "forward", "udpc_session", "kind")
    of_call = until_now("point", "flow", "called_forward", "call")
    known = rows.withColumns(
        over(of_kind, first="min(struct(at_ns, udpc_index))")
        | over(
            of_call,
            calls="count_if(kind = 'syn')",
            answer="min(IF(kind = 'syn_ack', struct(at_ns, udpc_session), NULL))",
        )
    ).withColumn("answered_session", F.col("answer.udpc_session"))
    flows = _flows(by_id).select("point", "flow", "whole")
    joined = known.join(flows, on=["point", "flow"], how="left").join(
        spoken, on=["point", "flow", "forward", "answered_session"], how="left"
    )
    context = ("kind", "udpc_index", "udpc_ack", "udpc_session", "first", "calls", "answered_session")
    return joined.select(*FRAME, *context, "whole", "spoken_at")


_ANOTHER_INDEX = f"pmod(udpc_index - first.udpc_index, {TURN})"

_HANDSHAKE_RULES = (
    Rule(
        clause="UDPC-3.1",
        where="kind = 'syn'",
        holds=f"udpc_index < {TURN // 2}",
        found="concat('a SYN with index ', udpc_index)",
        expected="the caller's first index is from 1 to 2^31 - 1",
    ),
    Rule(
        clause="UDPC-3.1",
        where="kind = 'syn_ack'",
        holds="udpc_index = 1",
        found="concat('a SYN+ACK with index ', udpc_index)",
        expected="the called side's first index is 1",
    ),
    Rule(
        clause="UDPC-3.3",
        where="kind IN ('syn_ack', 'fin')",
        holds=f"{_ANOTHER_INDEX} = 0 OR {_ANOTHER_INDEX} BETWEEN {NEARBY} AND {TURN - NEARBY}",
        found="concat(kind, ' with index ', udpc_index, ' after ', first.udpc_index)",
        expected="SYN+ACK and FIN keep their index when repeated",
    ),
    Rule(
        clause="UDPC-4.2",
        where="kind = 'syn'",
        holds="udpc_index = first.udpc_index",
        found="concat('a SYN of the same call with index ', udpc_index, ' after ', first.udpc_index)",
        expected="a SYN is repeated byte for byte",
    ),
    Rule(
        clause="UDPC-4.3",
        where="kind = 'syn_ack' AND whole",
        holds="calls > 0",
        found="concat('a SYN+ACK for index ', udpc_ack, ', which is no SYN of the other side')",
        expected="ackIndex is the index of the SYN",
    ),
    Rule(
        clause="UDPC-4.5",
        where=f"kind = 'syn_ack' AND spoken_at > at_ns + {SLACK_NS}",
        holds="udpc_session = answered_session",
        found="concat('session ', udpc_session, ' for a SYN that got ', answered_session, ', which is still used')",
        expected="a repeated SYN gets the same SYN+ACK",
    ),
)


def _openings(packets: DataFrame) -> DataFrame:
    """Gives the packets of sessions whose sides seem to speak too early, or after their end."""
    udpc = of_protocol(packets, "udpc").where("session IS NOT NULL")
    facts = udpc.groupBy("session").agg(
        F.expr("min(at_ns) FILTER (WHERE kind = 'syn_ack')").alias("given_at"),
        F.expr("min(at_ns) FILTER (WHERE from_caller AND kind <> 'syn')").alias("caller_at"),
        F.expr("min(at_ns) FILTER (WHERE NOT from_caller AND kind <> 'syn_ack')").alias("called_at"),
        *(
            F.expr(f"{function}(udpc_index) FILTER (WHERE {side} AND {kinds})").alias(name)
            for name, function, side, kinds in (
                ("caller_fin", "min", "from_caller", "kind = 'fin'"),
                ("called_fin", "min", "NOT from_caller", "kind = 'fin'"),
                ("caller_newest", "max", "from_caller", _ASKS),
                ("called_newest", "max", "NOT from_caller", _ASKS),
            )
        ),
    )
    beyond = f"pmod({{0}}_newest - {{0}}_fin, {TURN}) BETWEEN 1 AND {NEARBY}"
    odd = f"""caller_at < given_at OR called_at < coalesce(caller_at, {1 << 62})
        OR {beyond.format("caller")} OR {beyond.format("called")}"""
    suspects = facts.where(odd).select("session", "given_at", "caller_at", "called_at", "caller_fin", "called_fin")
    joined = udpc.join(F.broadcast(suspects), on="session", how="inner")
    return joined.withColumn("fin", F.expr("IF(from_caller, caller_fin, called_fin)")).select(
        *FRAME, "kind", "from_caller", "udpc_index", "given_at", "caller_at", "called_at", "fin"
    )


_OPENING_RULES = (
    Rule(
        clause="UDPC-4.8",
        where="NOT from_caller AND kind <> 'syn_ack' AND at_ns = called_at AND given_at IS NOT NULL",
        holds=f"caller_at <= at_ns + {JITTER_NS}",
        found="concat(kind, ' of the called side before any packet of the caller with this sessionID')",
        expected="the called side waits for the caller's ACK or first packet",
        needs_start=True,
    ),
    Rule(
        clause="UDPC-4.11",
        where="from_caller AND kind <> 'syn' AND at_ns = caller_at AND given_at IS NOT NULL",
        holds=f"given_at <= at_ns + {JITTER_NS}",
        found="concat(kind, ' of the caller before the SYN+ACK')",
        expected="the caller uses a sessionID after the SYN+ACK that gives it",
        needs_start=True,
    ),
    Rule(
        clause="UDPC-10.1",
        where=f"fin IS NOT NULL AND {_ASKS}",
        holds=f"pmod(udpc_index - fin, {TURN}) NOT BETWEEN 1 AND {NEARBY}",
        found="concat(kind, ' with index ', udpc_index, ', although the FIN had ', fin)",
        expected="after its FIN a side sends no new message",
    ),
)


def _strangers(packets: DataFrame) -> DataFrame:
    """Gives the first packet of each sessionID that came up in a known flow without a SYN+ACK."""
    udpc = of_protocol(packets, "udpc")
    by_id = _by_id(udpc)
    ids = by_id.groupBy("point", "flow", "udpc_session").agg(
        F.expr("min(used_at)").alias("used_at"), F.expr("min(given_at)").alias("given_at")
    )
    suspects = (
        ids.where("given_at IS NULL AND used_at IS NOT NULL")
        .join(_flows(by_id).select("point", "flow", "first_given_at"), on=["point", "flow"], how="inner")
        .where("used_at > first_given_at")
        .select("point", "flow", "udpc_session", "used_at", "first_given_at")
    )
    joined = udpc.join(F.broadcast(suspects), on=["point", "flow", "udpc_session"], how="inner")
    return joined.where("kind <> 'syn' AND at_ns = used_at").select(*FRAME, "kind", "udpc_session")


_STRANGER_RULES = (
    Rule(
        clause="UDPC-5.1",
        where="true",
        holds="false",
        found="concat(kind, ' with sessionID ', udpc_session, ', which no SYN+ACK of this flow gave')",
        expected="a packet carries the sessionID of its session",
    ),
)

FORMAT_RULES = (
    format_rule("UDPC-1.2", "zero_index", "index is never 0"),
    format_rule("UDPC-1.3", "zero_session", "sessionID is never 0"),
    format_rule("UDPC-1.5", "too_short", "at least 13 bytes"),
    format_rule("UDPC-1.6", "control_with_body", "SYN, SYN+ACK, FIN, HBT, HBT+ACK and IMP+ACK have no body"),
    format_rule("UDPC-2.2", "bad_flag", "one of the combinations of flags of UDPC-2.1"),
)

CHECKS = (
    Check(screen=screens.udpc_numbers, context=_numbers, rules=_NUMBER_RULES),
    Check(screen=screens.udpc_handshakes, context=_handshakes, rules=_HANDSHAKE_RULES),
    Check(screen=screens.udpc_openings, context=_openings, rules=_OPENING_RULES),
    Check(screen=screens.udpc_strangers, context=_strangers, rules=_STRANGER_RULES),
)
