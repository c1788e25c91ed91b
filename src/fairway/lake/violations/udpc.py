"""The rules of udpc that a capture can show broken; clauses of docs/wire/udpc.md.

numbers     packets, beside the first of their index and what they acknowledge
responses   responses, beside the first to the same request
handshakes  SYN, SYN+ACK and FIN, which are few
openings    sessions that begin or end in the wrong order
strangers   sessionIDs that nobody was given
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from fairway.lake.analysis.sessions import grouped
from fairway.lake.violations.rule import (
    BY_NOW,
    FRAME,
    JITTER_NS,
    SECOND_NS,
    SLACK_NS,
    Check,
    Rule,
    Seen,
    format_rule,
    over,
    with_columns,
)

TURN = 1 << 32
NEARBY = 16_384
"""A restored endpoint goes on 65,536 indices ahead; numbers of one life are compared within this distance."""

_ASKS = "kind IN ('plain', 'important', 'request', 'answering_request', 'heartbeat')"
_RESPONDS = "kind IN ('response', 'answering_request')"
_ANSWERS = "kind IN ('important_ack', 'heartbeat_ack', 'response', 'answering_request')"


def _in_sessions(seen: Seen) -> DataFrame:
    return seen.of("udpc").where("session IS NOT NULL")


def _numbers(seen: Seen) -> DataFrame:
    """Add the kind of the packet that an answer names, if it was seen by now, and `late_ns`, the time since the first.

    An index numbers all packets of a side, so that the first under an index is the one that all others repeat.
    """
    named = f"IF({_ANSWERS} AND acknowledges_at_ns {BY_NOW}, acknowledges_kind, NULL)"
    fields = ("kind", "from_caller", "udpc_index", "udpc_ack", "body_bytes", "differs")
    return _in_sessions(seen).selectExpr(*FRAME, *fields, f"{named} AS named", "at_ns - first_at_ns AS late_ns")


_SAME_KIND = "NOT contains(differs, 'kind')"
_SAME_ACK = "NOT contains(differs, 'ack')"
_SAME_BODY = "NOT (contains(differs, 'size') OR contains(differs, 'body'))"
_EMPTY_ACK = "(kind = 'response' AND from_caller AND body_bytes = 0)"
_FRESH_ACK = f"({_SAME_KIND} AND (kind IN ('important_ack', 'heartbeat_ack') OR {_EMPTY_ACK}))"
_RESPONSE_AGAIN = f"({_SAME_KIND} AND {_RESPONDS} AND {_SAME_ACK})"
_LATER = "concat('a copy ', late_ns DIV 1000000, ' ms after the first')"
_NAMES = "concat(kind, ' of index ', udpc_ack, coalesce(concat(', which is a ', named), ', which was never sent'))"

_REPEATED = (
    ("UDPC-7.2", "important", 40, "an important message is repeated for 30 s at the most"),
    ("UDPC-8.2", "request", 15, "a request is repeated for 5 s at the most"),
    ("UDPC-10.4", "fin", 10, "FIN is repeated for 3 s at the most"),
)
"""What is repeated for how long: until the limit, and time for the last retransmission to pass."""
_NAMING = (
    ("UDPC-7.3", "kind = 'important_ack'", "'important'", "an IMP+ACK names an important message that was sent"),
    ("UDPC-9.2", "kind = 'heartbeat_ack'", "'heartbeat'", "an HBT+ACK names a heartbeat that was sent"),
    (
        "UDPC-8.7",
        _RESPONDS,
        "'request', 'answering_request', 'syn_ack'",
        "an ACK answers a request that was sent, or the SYN+ACK",
    ),
)
"""What an answer names."""

_NUMBER_RULES = (
    Rule(
        clause="UDPC-3.2",
        where=f"differs IS NOT NULL AND NOT {_FRESH_ACK} AND NOT {_RESPONSE_AGAIN}",
        found="concat('index ', udpc_index, ' again, for another ', kind)",
        expected="every new packet takes the next index",
    ),
    Rule(
        clause="UDPC-3.4",
        where=f"differs IS NOT NULL AND {_FRESH_ACK}",
        holds=_SAME_ACK,
        found="concat('index ', udpc_index, ' again, to acknowledge ', udpc_ack)",
        expected="each acknowledgement takes a new index",
    ),
    Rule(
        clause="UDPC-4.6",
        where="named = 'syn_ack'",
        holds="kind = 'response' AND body_bytes = 0",
        found="concat('an answer to the SYN+ACK with a body of ', body_bytes, ' bytes')",
        expected="the handshake's ACK has no body",
    ),
    Rule(
        clause="UDPC-6.1",
        where="kind = 'plain'",
        holds=f"late_ns < {SLACK_NS}",
        found=_LATER,
        expected="a plain message is sent once",
        reported=f"{SLACK_NS // SECOND_NS} s after the first",
    ),
    Rule(
        clause="UDPC-8.4",
        where=f"differs IS NOT NULL AND {_RESPONSE_AGAIN} AND NOT {_EMPTY_ACK}",
        holds=_SAME_BODY,
        found="concat('response ', udpc_index, ' again, with another body')",
        expected="a response is sent again byte for byte",
    ),
    *(
        Rule(
            clause=clause,
            severity="warning",
            where=f"kind = '{kind}'",
            holds=f"late_ns <= {limit_s * SECOND_NS}",
            found=_LATER,
            expected=expected,
            reported=f"more than {limit_s} s after the first",
        )
        for clause, kind, limit_s, expected in _REPEATED
    ),
    *(
        Rule(clause=clause, where=where, holds=f"named IN ({kinds})", found=_NAMES, expected=expected, needs_start=True)
        for clause, where, kinds, expected in _NAMING
    ),
)


def _responses(seen: Seen) -> DataFrame:
    """Add to responses the first one to the same request."""
    rows = _in_sessions(seen).where(f"{_RESPONDS} AND acknowledges_kind IN ('request', 'answering_request')")
    first = over(["flow", "session", "from_caller", "udpc_ack"], response="min(struct(at_ns, udpc_index))")
    return with_columns(rows, first).selectExpr(*FRAME, "udpc_index", "udpc_ack", "acknowledges_at_ns", "response")


_RESPONSE_RULES = (
    Rule(
        clause="UDPC-8.9",
        where=f"acknowledges_at_ns {BY_NOW}",
        holds="response.udpc_index = udpc_index",
        found="concat('request ', udpc_ack, ' answered by ', udpc_index, ' after ', response.udpc_index)",
        expected="a request is answered once",
    ),
)


def _by_id(seen: Seen) -> DataFrame:
    """Return for each sessionID that one side of a flow uses when it did."""
    when = {
        "begins_at": "min(first_at)",
        "called_at": "min(first_at) FILTER (WHERE kind = 'syn')",
        "given_at": "min(first_at) FILTER (WHERE kind = 'syn_ack')",
        "used_at": "min(first_at) FILTER (WHERE kind <> 'syn')",
        "spoken_at": "max(last_at) FILTER (WHERE kind NOT IN ('syn', 'syn_ack'))",
    }
    return grouped(seen.strands_of("udpc"), ["point", "flow", "forward", "udpc_session"], when)


def _flows(by_id: DataFrame) -> DataFrame:
    """Return for each flow that begins with a SYN, so that the capture holds its beginning, its first SYN+ACK."""
    seen = {
        "whole": "min(begins_at) = min(called_at)",
        "flow_begins_at": "min(begins_at)",
        "first_given_at": "min(given_at)",
    }
    return grouped(by_id, ["point", "flow"], seen).where("whole")


def _handshakes(seen: Seen) -> DataFrame:
    """Add to SYN, SYN+ACK and FIN the first of their kind, and to a SYN+ACK what it answers."""
    udpc, by_id = seen.of("udpc"), _by_id(seen)
    spoken = by_id.selectExpr("point", "flow", "forward", "udpc_session AS answered_session", "spoken_at")
    call = {
        "call": "CASE kind WHEN 'syn' THEN udpc_index WHEN 'syn_ack' THEN udpc_ack END",
        "called_forward": "IF(kind = 'syn', forward, NOT forward)",
    }
    rows = with_columns(udpc.where("kind IN ('syn', 'syn_ack', 'fin')"), call)
    of_kind = ["point", "flow", "forward", "udpc_session", "kind"]
    of_call = ["point", "flow", "called_forward", "call"]
    first = over(of_kind, first="min(struct(at_ns, udpc_index))")
    answered = over(
        of_call,
        calls="count_if(kind = 'syn')",
        answered_session="min(IF(kind = 'syn_ack', struct(at_ns, udpc_session), NULL))",
    )
    answered["answered_session"] += ".udpc_session"
    flows = _flows(by_id).selectExpr("point", "flow", "whole", "flow_begins_at")
    known = with_columns(rows, first, answered).join(flows, ["point", "flow"], "left")
    joined = known.join(spoken, ["point", "flow", "forward", "answered_session"], "left")
    context = ("kind", "udpc_index", "udpc_ack", "udpc_session", *first, *answered)
    return joined.selectExpr(*FRAME, *context, "whole", "flow_begins_at", "spoken_at")


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
        all_since="flow_begins_at",
    ),
    Rule(
        clause="UDPC-4.5",
        where=f"kind = 'syn_ack' AND spoken_at > at_ns + {SLACK_NS}",
        holds="udpc_session = answered_session",
        found="concat('session ', udpc_session, ' for a SYN that got ', answered_session, ', which is still used')",
        expected="a repeated SYN gets the same SYN+ACK",
    ),
)


def _openings(seen: Seen) -> DataFrame:
    """Return the packets of sessions whose sides seem to speak too early, or after their end."""
    when = {
        "given_at": "min(first_at) FILTER (WHERE kind = 'syn_ack')",
        "caller_at": "min(first_at) FILTER (WHERE from_caller AND kind <> 'syn')",
        "called_at": "min(first_at) FILTER (WHERE NOT from_caller AND kind <> 'syn_ack')",
        "caller_fin": "min(least_index) FILTER (WHERE from_caller AND kind = 'fin')",
        "called_fin": "min(least_index) FILTER (WHERE NOT from_caller AND kind = 'fin')",
        "caller_newest": f"max(most_index) FILTER (WHERE from_caller AND {_ASKS})",
        "called_newest": f"max(most_index) FILTER (WHERE NOT from_caller AND {_ASKS})",
    }
    beyond = f"pmod({{0}}_newest - {{0}}_fin, {TURN}) BETWEEN 1 AND {NEARBY}"
    odd = f"""caller_at < given_at OR called_at < coalesce(caller_at, {1 << 62})
        OR {beyond.format("caller")} OR {beyond.format("called")}"""
    of_session = ["flow", "session"]
    told = grouped(seen.strands_of("udpc").where("session IS NOT NULL"), of_session, when)
    joined = _in_sessions(seen).join(told.where(odd), of_session, "inner")
    context = ("kind", "from_caller", "udpc_index", "given_at", "caller_at", "called_at")
    return joined.selectExpr(*FRAME, *context, "IF(from_caller, caller_fin, called_fin) AS fin")


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


def _strangers(seen: Seen) -> DataFrame:
    """Return the first packet of each sessionID that came up in a known flow without a SYN+ACK."""
    by_id = _by_id(seen)
    keys = ["point", "flow", "udpc_session"]
    ids = grouped(by_id, keys, {"used_at": "min(used_at)", "given_at": "min(given_at)"})
    nameless = ids.where("given_at IS NULL AND used_at IS NOT NULL")
    suspects = nameless.join(_flows(by_id), ["point", "flow"], "inner").where("used_at > first_given_at")
    named = suspects.selectExpr(*keys, "used_at", "flow_begins_at")
    joined = seen.of("udpc").join(named, keys, "inner")
    found = joined.where("kind <> 'syn' AND at_ns = used_at")
    return found.selectExpr(*FRAME, "kind", "udpc_session", "flow_begins_at")


_STRANGER_RULES = (
    Rule(
        clause="UDPC-5.1",
        found="concat(kind, ' with sessionID ', udpc_session, ', which no SYN+ACK of this flow gave')",
        expected="a packet carries the sessionID of its session",
        all_since="flow_begins_at",
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
    Check(context=_numbers, rules=_NUMBER_RULES),
    Check(context=_responses, rules=_RESPONSE_RULES),
    Check(context=_handshakes, rules=_HANDSHAKE_RULES),
    Check(context=_openings, rules=_OPENING_RULES),
    Check(context=_strangers, rules=_STRANGER_RULES),
)
