"""The rules of udpc that a capture can show broken; clauses of docs/wire/udpc.md.

numbers     packets, beside the first of their index and what they acknowledge
responses   responses, beside the first to the same request
handshakes  SYN, SYN+ACK and FIN, which are few
openings    sessions that begin or end in the wrong order
strangers   sessionIDs that nobody was given
"""

from __future__ import annotations

from fairway.lake.violations.rule import (
    BY_NOW,
    FRAME,
    JITTER_NS,
    SECOND_NS,
    SLACK_NS,
    Check,
    Rule,
    columns,
    format_rule,
    over,
)

TURN = 1 << 32
NEARBY = 16_384
"""A restored endpoint goes on 65,536 indices ahead; numbers of one life are compared within this distance."""

_ASKS = "kind IN ('plain', 'important', 'request', 'answering_request', 'heartbeat')"
_RESPONDS = "kind IN ('response', 'answering_request')"
_ANSWERS = "kind IN ('important_ack', 'heartbeat_ack', 'response', 'answering_request')"


_NAMED = f"IF({_ANSWERS} AND acknowledges_at_ns {BY_NOW}, acknowledges_kind, NULL)"
"""SQL of the kind of the packet that an answer names, if it was seen by now.

An index numbers all packets of a side, so that the first under an index is the one that all others repeat.
"""
_LATE_NS = "(at_ns - first_at_ns)"
_SAME_KIND = "NOT contains(differs, 'kind')"
_SAME_ACK = "NOT contains(differs, 'ack')"
_SAME_BODY = "NOT (contains(differs, 'size') OR contains(differs, 'body'))"
_EMPTY_ACK = "(kind = 'response' AND from_caller AND body_bytes = 0)"
_FRESH_ACK = f"({_SAME_KIND} AND (kind IN ('important_ack', 'heartbeat_ack') OR {_EMPTY_ACK}))"
_RESPONSE_AGAIN = f"({_SAME_KIND} AND {_RESPONDS} AND {_SAME_ACK})"
_LATER = f"concat('a copy ', {_LATE_NS} DIV 1000000, ' ms after the first')"
_NAMES = f"concat(kind, ' of index ', udpc_ack, coalesce(concat(', which is a ', {_NAMED}), ', which was never sent'))"

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
        where=f"{_NAMED} = 'syn_ack'",
        holds="kind = 'response' AND body_bytes = 0",
        found="concat('an answer to the SYN+ACK with a body of ', body_bytes, ' bytes')",
        expected="the handshake's ACK has no body",
    ),
    Rule(
        clause="UDPC-6.1",
        where="kind = 'plain'",
        holds=f"{_LATE_NS} < {SLACK_NS}",
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
            holds=f"{_LATE_NS} <= {limit_s * SECOND_NS}",
            found=_LATER,
            expected=expected,
            reported=f"more than {limit_s} s after the first",
        )
        for clause, kind, limit_s, expected in _REPEATED
    ),
    *(
        Rule(
            clause=clause,
            where=where,
            holds=f"{_NAMED} IN ({kinds})",
            found=_NAMES,
            expected=expected,
            needs_start=True,
        )
        for clause, where, kinds, expected in _NAMING
    ),
)


_BY_REQUEST = over(["flow", "session", "from_caller", "udpc_ack"], response="min(struct(at_ns, udpc_index))")
_RESPONSES = f"""
    SELECT {FRAME}, udpc_index, udpc_ack, acknowledges_at_ns, {columns(_BY_REQUEST)} FROM udpc_packets
    WHERE session IS NOT NULL AND {_RESPONDS} AND acknowledges_kind IN ('request', 'answering_request')"""
"""Responses, with the first one to the same request."""

_RESPONSE_RULES = (
    Rule(
        clause="UDPC-8.9",
        where=f"acknowledges_at_ns {BY_NOW}",
        holds="response.udpc_index = udpc_index",
        found="concat('request ', udpc_ack, ' answered by ', udpc_index, ' after ', response.udpc_index)",
        expected="a request is answered once",
    ),
)


_OF_CALL = over(
    ["point", "flow", "called_forward", "call"],
    calls="count_if(kind = 'syn')",
    answered="min(IF(kind = 'syn_ack', struct(at_ns, udpc_session), NULL))",
)
_OF_KIND = over(["point", "flow", "forward", "udpc_session", "kind"], first="min(struct(at_ns, udpc_index))")

VIEWS = {
    # When one side of a flow uses a sessionID.
    "udpc_by_id": """
        SELECT point, flow, forward, udpc_session, min(first_at) AS begins_at,
            min(first_at) FILTER (WHERE kind = 'syn') AS called_at,
            min(first_at) FILTER (WHERE kind = 'syn_ack') AS given_at,
            min(first_at) FILTER (WHERE kind <> 'syn') AS used_at,
            max(last_at) FILTER (WHERE kind NOT IN ('syn', 'syn_ack')) AS spoken_at
        FROM udpc_strands GROUP BY ALL""",
    # Flows that begin with a SYN, so that the capture holds their beginning, with the first SYN+ACK.
    "udpc_flows": """
        SELECT point, flow, min(begins_at) = min(called_at) AS whole, min(begins_at) AS flow_begins_at,
            min(given_at) AS first_given_at
        FROM udpc_by_id GROUP BY ALL HAVING whole""",
    "udpc_calls": """
        SELECT *, CASE kind WHEN 'syn' THEN udpc_index WHEN 'syn_ack' THEN udpc_ack END AS call,
            IF(kind = 'syn', forward, NOT forward) AS called_forward
        FROM udpc_packets WHERE kind IN ('syn', 'syn_ack', 'fin')""",
}

_HANDSHAKES = f"""
    SELECT {FRAME}, kind, udpc_index, udpc_ack, udpc_session, first, calls, answered_session, whole, flow_begins_at,
        spoken_at
    FROM (SELECT *, answered.udpc_session AS answered_session FROM (
        SELECT *, {columns(_OF_KIND | _OF_CALL)} FROM udpc_calls))
    LEFT JOIN udpc_flows USING (point, flow)
    LEFT JOIN (SELECT point, flow, forward, udpc_session AS answered_session, spoken_at FROM udpc_by_id)
        USING (point, flow, forward, answered_session)"""
"""SYN, SYN+ACK and FIN with the first of their kind; a SYN+ACK with what it answers."""

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


_BEYOND = f"pmod({{0}}_newest - {{0}}_fin, {TURN}) BETWEEN 1 AND {NEARBY}"
_OPENINGS = f"""
    SELECT {FRAME}, kind, from_caller, udpc_index, given_at, caller_at, called_at,
        IF(from_caller, caller_fin, called_fin) AS fin
    FROM udpc_packets JOIN (
        SELECT flow, session, min(first_at) FILTER (WHERE kind = 'syn_ack') AS given_at,
            min(first_at) FILTER (WHERE from_caller AND kind <> 'syn') AS caller_at,
            min(first_at) FILTER (WHERE NOT from_caller AND kind <> 'syn_ack') AS called_at,
            min(least_index) FILTER (WHERE from_caller AND kind = 'fin') AS caller_fin,
            min(least_index) FILTER (WHERE NOT from_caller AND kind = 'fin') AS called_fin,
            max(most_index) FILTER (WHERE from_caller AND {_ASKS}) AS caller_newest,
            max(most_index) FILTER (WHERE NOT from_caller AND {_ASKS}) AS called_newest
        FROM udpc_strands WHERE session IS NOT NULL GROUP BY ALL
        HAVING caller_at < given_at OR called_at < coalesce(caller_at, {1 << 62})
            OR {_BEYOND.format("caller")} OR {_BEYOND.format("called")}) USING (flow, session)"""
"""The packets of sessions whose sides seem to speak too early, or after their end."""

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


_STRANGERS = f"""
    SELECT {FRAME}, kind, udpc_session, flow_begins_at
    FROM udpc_packets JOIN (
        SELECT point, flow, udpc_session, id_used_at, flow_begins_at FROM (
            SELECT point, flow, udpc_session, min(used_at) AS id_used_at, min(given_at) AS id_given_at
            FROM udpc_by_id GROUP BY ALL HAVING id_given_at IS NULL AND id_used_at IS NOT NULL)
        JOIN udpc_flows USING (point, flow)
        WHERE id_used_at > first_given_at) USING (point, flow, udpc_session)
    WHERE kind <> 'syn' AND at_ns = id_used_at"""
"""The first packet of each sessionID that came up in a known flow without a SYN+ACK."""

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
    Check(of="protocol = 'udpc' AND kind <> 'malformed' AND session IS NOT NULL", rules=_NUMBER_RULES),
    Check(rows=_RESPONSES, rules=_RESPONSE_RULES),
    Check(rows=_HANDSHAKES, rules=_HANDSHAKE_RULES),
    Check(rows=_OPENINGS, rules=_OPENING_RULES),
    Check(rows=_STRANGERS, rules=_STRANGER_RULES),
)
