"""The rules of rup that a capture can show broken; clauses of docs/wire/rup.md.

A message is an id and the side that sends its parts; requests and confirms of the id come from the other side. The
parts of one message and what is said of them are looked at together, in the order of time. Whether a peer is there is
judged by what it says of any message.
"""

from __future__ import annotations

from fairway.lake.violations.rule import (
    ALL,
    FRAME,
    SECOND_NS,
    SETTLED_S,
    SLACK_NS,
    Check,
    Rule,
    aged,
    columns,
    format_rule,
    over,
)

PARTS_MAX = 1 << 20
SILENCE_NS = 20 * SECOND_NS
"""10 s of RUP-5.9, and time for the last answer to arrive."""
PROGRESS_NS = 90 * SECOND_NS
"""60 s of RUP-5.9, and time for what is new to arrive."""

BEGUN_S = 15
"""A message that shows for the first time after so long is new: a sender that hears nothing for 10 s gives up."""

_SENDER = ["flow", "point", "side"]
_MESSAGE = [*_SENDER, "rup_id"]
_FITS = "rup_position + body_bytes <= rup_total AND (body_bytes > 0 OR rup_total = 0)"
_REGULAR = "kind = 'data' AND body_bytes > 0 AND rup_position + body_bytes < rup_total"
"""A part that does not end at the total: it shows the size of all but the last."""


VIEWS = {"rup_sided": "SELECT *, forward = (kind = 'data') AS side FROM rup_packets"}

_WHOLE = over(
    _MESSAGE,
    ALL,
    first_part="min(IF(kind = 'data', struct(at_ns, rup_position, rup_total), NULL))",
    first_regular=f"min(IF({_REGULAR}, struct(at_ns, body_bytes), NULL))",
    begun_by="min(at_ns)",
)
_UNTIL_NOW = over(
    _MESSAGE,
    parts="count_if(kind = 'data' AND at_ns = first_at_ns)",
    highest="max(IF(kind = 'data', rup_position, NULL))",
    begun="count_if(kind = 'data' AND rup_position = 0)",
    begun_at="max(IF(kind = 'data' AND rup_position = 0, at_ns, NULL))",
)
_LONG_AGO = over(
    _MESSAGE,
    aged(to_ns=SLACK_NS),
    confirmed="max(IF(kind = 'confirm', struct(rup_position, at_ns), NULL))",
)
_MESSAGES = f"""
    SELECT {FRAME}, kind, rup_position, rup_total, rup_start, body_bytes, differs, begun_by, parts, highest, begun,
        begun_at, confirmed, first_part.rup_total AS total, first_regular.body_bytes AS size,
        first_part.rup_position = 0 AND first_part.at_ns = begun_by AS begins
    FROM (SELECT *, {columns(_WHOLE | _UNTIL_NOW | _LONG_AGO)} FROM rup_sided)"""
"""The parts, requests and confirms of a message, with what is known of it by then.

The total and the part size are those of the first part that shows them, also for what came before it. `begins` says
that the first that was seen of it is the part at 0; it may be a retransmission, if the message began before the
capture.
"""

_PART = "concat('a part of ', body_bytes, ' bytes at ', rup_position, ' of ', rup_total)"
_ON_GRID = "(size IS NULL OR rup_position % nullif(size, 0) = 0)"

_RULES = (
    Rule(
        clause="RUP-2.1",
        where=f"kind = 'data' AND size IS NOT NULL AND body_bytes > 0 AND rup_total = total AND {_FITS}",
        holds=f"rup_position % nullif(size, 0) = 0 AND IF({_REGULAR}, body_bytes = size, body_bytes <= size)",
        found=f"concat({_PART}, ', where parts have ', size, ' bytes')",
        expected="all parts but the last have one size, and stand at multiples of it",
    ),
    Rule(
        clause="RUP-2.2",
        where="kind = 'data'",
        holds="(rup_start = 1) = (rup_position = 0)",
        found="concat('start ', rup_start, ' at position ', rup_position)",
        expected="start is 1 on the part at position 0 and 0 on all others",
    ),
    Rule(
        clause="RUP-2.3",
        where="kind = 'data'",
        holds="rup_total = total",
        found="concat('total ', rup_total, ' after ', total)",
        expected="all parts of a message have the same total",
    ),
    Rule(
        clause="RUP-2.3",
        where="kind = 'data'",
        holds="rup_position + body_bytes <= rup_total",
        found=_PART,
        expected="a part does not reach past the total",
    ),
    Rule(
        clause="RUP-2.3",
        where="kind = 'data' AND rup_position <= rup_total",
        holds="body_bytes > 0 OR rup_total = 0",
        found=_PART,
        expected="a part is empty only in an empty message",
    ),
    Rule(
        clause="RUP-2.5",
        where=_REGULAR,
        holds=f"rup_total <= body_bytes * {PARTS_MAX}",
        found=f"concat({_PART}, ', which makes ', rup_total DIV nullif(body_bytes, 0), ' parts')",
        expected="a message has at most 1,048,576 parts",
    ),
    Rule(
        clause="RUP-2.8",
        where="kind = 'data' AND differs IS NOT NULL",
        holds="NOT contains(differs, 'body')",
        found="concat('the part at ', rup_position, ' again, with another body')",
        expected="a part is repeated byte for byte",
    ),
    Rule(
        clause="RUP-3.1",
        where="kind = 'confirm' AND size IS NOT NULL AND rup_position <= total AND begins",
        holds="parts * size >= rup_position",
        found="concat('confirm ', rup_position, ' after ', parts, ' parts of ', size, ' bytes')",
        expected="everything below a confirm has arrived",
        needs_start=True,
        settled_s=BEGUN_S,
        since="begun_by",
    ),
    Rule(
        # A receiver that was started anew knows nothing: it counts again from the part at 0, which must come again. One
        # that was sent again shortly before the higher confirm may have come after it.
        clause="RUP-3.1",
        where=f"kind = 'confirm' AND rup_position > 0 AND begun_at < confirmed.at_ns - IF(begun > 1, {SLACK_NS}, 0)",
        holds="rup_position >= confirmed.rup_position",
        found="concat('confirm ', rup_position, ' after ', confirmed.rup_position)",
        expected="confirm never goes back",
        all_since="begun_by",
        reported="at 3 s after the higher one, where the part at 0 did not come again",
    ),
    Rule(
        clause="RUP-3.8",
        where="kind = 'confirm' AND total IS NOT NULL",
        holds=f"rup_position = total OR (rup_position < total AND {_ON_GRID})",
        found="concat('confirm ', rup_position, ' of ', total, coalesce(concat(' in parts of ', size), ''))",
        expected="a confirm names the start of a part, or the total",
    ),
    Rule(
        clause="RUP-4.3",
        where="kind = 'request' AND highest IS NOT NULL AND rup_position < total AND begins",
        holds="highest > rup_position",
        found="concat('request ', rup_position, ' while the last part seen is at ', highest)",
        expected="a part is requested after a later one has come",
        needs_start=True,
        settled_s=BEGUN_S,
        since="begun_by",
    ),
    Rule(
        clause="RUP-4.7",
        where="kind = 'request' AND total IS NOT NULL",
        holds=f"rup_position < total AND {_ON_GRID}",
        found="concat('request ', rup_position, ' of ', total, coalesce(concat(' in parts of ', size), ''))",
        expected="a request names the start of a part below the total",
    ),
    *(
        Rule(
            clause=clause,
            where=f"kind = '{kind}'",
            holds="highest IS NOT NULL",
            found=f"'a {kind} {of} an id of which no part was sent'",
            expected=f"a {kind} names a message of which a part has come",
            needs_start=True,
            settled_s=SETTLED_S,
        )
        for clause, kind, of in (("RUP-3.7", "confirm", "of"), ("RUP-4.6", "request", "for"))
    ),
)


_NEWS = "at_ns = first_at_ns AND (kind = 'request' OR (kind = 'confirm' AND rup_position >= mark))"
_HEARD = over(
    _SENDER,
    answered_at="max(IF(kind <> 'data', at_ns, NULL))",
    advanced_at=f"max(IF({_NEWS}, at_ns, NULL))",
)
_MARK = over(_MESSAGE, mark="max(IF(kind = 'confirm', rup_position, NULL))")
_STALLED = f"""
    SELECT {FRAME}, at_ns - first_at_ns AS late_ns, answered_at, advanced_at FROM (
        SELECT *, {columns(_HEARD)} FROM (
            SELECT *, {columns(_MARK)} FROM rup_sided LEFT SEMI JOIN (
                SELECT flow, point, forward AS side FROM rup_strands
                WHERE kind = 'data' AND late_ns > {SILENCE_NS}) USING (flow, point, side)))
    WHERE kind = 'data' AND at_ns - first_at_ns > {SILENCE_NS}"""
"""Late retransmissions, with when the peer last said something of any message, and when something new.

New is a confirm above all before it, and the first request for a part.
"""

_AGAIN = "concat('a retransmission ', late_ns DIV 1000000, ' ms after the first')"

_STALLED_RULES = (
    Rule(
        clause="RUP-5.9",
        severity="warning",
        holds=f"answered_at >= at_ns - {SILENCE_NS}",
        found=f"concat({_AGAIN}, ', without an answer')",
        expected="a send ends after 10 s without a request or confirm of any message",
        reported=f"after more than {SILENCE_NS // SECOND_NS} s",
        needs_start=True,
    ),
    Rule(
        clause="RUP-5.9",
        severity="warning",
        where=f"late_ns > {PROGRESS_NS} AND answered_at >= at_ns - {SILENCE_NS}",
        holds=f"advanced_at >= at_ns - {PROGRESS_NS}",
        found=f"concat({_AGAIN}, ', without progress')",
        expected="a send ends after 60 s in which nothing new was confirmed or requested of any message",
        reported=f"after more than {PROGRESS_NS // SECOND_NS} s",
        needs_start=True,
    ),
)

FORMAT_RULES = (
    format_rule("RUP-1.1", "bad_type", "d, r or c as the first byte"),
    format_rule("RUP-1.2", "too_short too_long", "at least 42 bytes of data, exactly 38 of a request or confirm"),
    format_rule("RUP-1.3", "bad_digit", "numbers in base 255"),
    format_rule("RUP-1.4", "bad_id", "32 lower-case hexadecimal digits"),
    format_rule("RUP-1.5", "bad_start", "start 0 or 1"),
    format_rule("RUP-1.6", "bad_separator", "a zero byte after the id"),
)

CHECKS = (Check(rows=_MESSAGES, rules=_RULES), Check(rows=_STALLED, rules=_STALLED_RULES))
