"""The rules of pydevts that a capture can show broken; clauses of docs/wire/pydevts.md.

A message id and the side that sends its packets are looked at together with the acks of the other side and the closes.
Ids come round again after 65,536 messages, so what is counted is counted within a minute.

This protocol expects damage: its CRC covers the body, and a damaged datagram may arrive. What damage explains is a
warning.
"""

from __future__ import annotations

from fairway.lake.violations.rule import (
    ECHOED,
    FRAME,
    NAMED,
    SECOND_NS,
    SETTLED_S,
    Check,
    Rule,
    aged,
    columns,
    format_rule,
    hexadecimal,
    over,
)

LIFE_NS = 33 * SECOND_NS
"""The life of a packet: ten repeats, and three seconds after the last."""
TRANSMISSIONS_MAX = 22
"""The original and ten repeats, each doubled on the way."""
LATE_NS = (85 * SECOND_NS, 45 * SECOND_NS)
"""A copy is late if one was seen in this range before it: longer ago than a packet lives, and not so long that the id
may be used again for the same body, 120 s after the first of perhaps eleven transmissions."""

MINUTE_NS = 60 * SECOND_NS

_MESSAGE = ["flow", "point", "side", "pydevts_id"]


_GOOD = "(kind = 'packet' AND coalesce(body_crc = pydevts_crc, true))"
_CRC = hexadecimal("pydevts_crc")

_ANSWER_RULES = (
    Rule(
        clause="PYDEVTS-1.5",
        severity="warning",
        where="kind = 'packet'",
        holds=_GOOD,
        found=f"concat('crc ', {_CRC}, ' over a body whose CRC is ', {hexadecimal('body_crc')})",
        expected="the CRC-32 of the body; it may have been damaged on the way",
    ),
    Rule(
        clause="PYDEVTS-1.6",
        severity="warning",
        where=f"kind = 'ack' AND pydevts_success = 1 AND pydevts_crc <> 0 AND {NAMED}",
        holds=ECHOED,
        found=f"concat('an ack of id ', pydevts_id, ' with crc ', {_CRC}, ', which no packet had')",
        expected="an ack repeats the packet's crc; it may have been damaged on the way",
        needs_start=True,
        settled_s=SETTLED_S,
    ),
    Rule(
        clause="PYDEVTS-1.6",
        severity="warning",
        where=f"kind = 'close' AND pydevts_crc <> 0 AND {NAMED}",
        holds=ECHOED,
        found=f"concat('a close of id ', pydevts_id, ' with crc ', {_CRC}, ', which nothing had')",
        expected="a close repeats the packet's crc; it may have been damaged on the way",
        needs_start=True,
        settled_s=SETTLED_S,
    ),
    Rule(
        clause="PYDEVTS-1.8",
        severity="warning",
        where="kind = 'close'",
        holds="pydevts_success = 0",
        found="'a close with success 1'",
        expected="the success of a close is sent as 0",
    ),
    Rule(
        clause="PYDEVTS-4.2",
        where="kind = 'close'",
        holds=NAMED,
        found="concat('a close of id ', pydevts_id, ', which the other side did not acknowledge')",
        expected="a close answers an ack",
        needs_start=True,
        settled_s=SETTLED_S,
    ),
    Rule(
        clause="PYDEVTS-10.1",
        where="kind = 'ack' AND (pydevts_success = 1 OR pydevts_crc = 0)",
        holds=NAMED,
        found="concat('an ack of id ', pydevts_id, ', which was never sent, with success ', pydevts_success,"
        f" ' and crc ', {_CRC})",
        expected="an ack without a packet is a question for a sign of life: success 0 and a crc other than 0",
        needs_start=True,
        settled_s=SETTLED_S,
    ),
)


VIEWS = {
    # Of the flows in which something was sent again or failed, what is said of ids.
    "pydevts_said": f"""
        SELECT *, IF(kind = 'ack', NOT forward, forward) AS side, {_GOOD} AS good
        FROM pydevts_packets LEFT SEMI JOIN (
            SELECT flow, point FROM pydevts_strands WHERE late_ns > 0 OR failed)
        USING (flow, point)
        WHERE kind <> 'close'""",
}
_FIELDS = ("kind", "pydevts_id", "pydevts_success", "pydevts_crc", "good")
_SAME = [*_MESSAGE, "pydevts_crc"]
_BEFORE = (
    over(
        _MESSAGE,
        failures="count_if(kind = 'ack' AND pydevts_success = 1)",
        acknowledged_at="max(IF(kind = 'ack' AND pydevts_success = 0, at_ns, NULL))",
    )
    # The frame ends before this instant: what is sent at the same time is no earlier use of the id.
    | over(
        _MESSAGE,
        aged(from_ns=LIFE_NS, to_ns=1),
        last_good="max(IF(good, struct(at_ns, pydevts_crc), NULL))",
    )
    | over(
        _SAME,
        same_sent="count_if(kind = 'packet')",
        same_good="count_if(good)",
        same_first_at="min(IF(good, at_ns, NULL))",
    )
    | over(
        _SAME,
        aged(from_ns=MINUTE_NS),
        recent_sent="count_if(kind = 'packet')",
        recent_acks="count_if(kind = 'ack' AND pydevts_success = 0)",
    )
    | over(_SAME, aged(from_ns=LATE_NS[0], to_ns=LATE_NS[1]), sent_long_ago="count_if(good)")
)
_IDS = f"""
    SELECT {FRAME}, {", ".join(_FIELDS)}, {columns(_BEFORE)}
    FROM pydevts_said LEFT SEMI JOIN (
        SELECT {", ".join(_MESSAGE)} FROM pydevts_said
        WHERE first_at_ns < at_ns OR pydevts_success = 1 OR (kind = 'packet' AND NOT good))
    USING ({", ".join(_MESSAGE)})"""
"""What is said of ids that were used more than once, or of which a CRC was bad, with what was said of them before: with
the same crc, and with any."""

_ID_RULES = (
    Rule(
        clause="PYDEVTS-3.3",
        where="kind = 'ack' AND pydevts_success = 0 AND same_sent > 0",
        holds="same_good > 0",
        found="concat('success for id ', pydevts_id, ', of which every copy had a bad CRC')",
        expected="a packet with a bad CRC is answered by an ack with success 1",
        needs_start=True,
        settled_s=SETTLED_S,
    ),
    Rule(
        clause="PYDEVTS-4.3",
        where="kind = 'packet' AND pydevts_success = 1",
        holds="failures > 0",
        found="concat('id ', pydevts_id, ' with success 1, although no CRC was said to have failed')",
        expected="success 1 marks the repeat that an ack with success 1 asked for",
        needs_start=True,
        settled_s=SETTLED_S,
    ),
    Rule(
        clause="PYDEVTS-6.1",
        severity="warning",
        where="kind = 'packet'",
        holds=f"recent_sent <= {TRANSMISSIONS_MAX}",
        found="concat('id ', pydevts_id, ' for the ', recent_sent, 'th time in a minute')",
        expected="a packet is repeated ten times at the most",
        reported=f"more than {TRANSMISSIONS_MAX} times in a minute",
    ),
    Rule(
        clause="PYDEVTS-6.1",
        severity="warning",
        where="good",
        holds="sent_long_ago = 0",
        found="concat('a copy of id ', pydevts_id, ' ', (at_ns - same_first_at) DIV 1000000, ' ms after the first')",
        expected="a packet is repeated for 30 s at the most, and its id not used again for the same body for 120 s",
        reported=f"{LATE_NS[1] // SECOND_NS} to {LATE_NS[0] // SECOND_NS} s after another",
    ),
    Rule(
        clause="PYDEVTS-6.2",
        severity="warning",
        where="kind = 'ack' AND pydevts_success = 0",
        holds=f"recent_acks <= {TRANSMISSIONS_MAX} + 2 * recent_sent",
        found="concat('id ', pydevts_id, ' acknowledged ', recent_acks, ' times in a minute')",
        expected="an ack is repeated ten times at the most, and sent once for each copy",
        reported=f"more than {TRANSMISSIONS_MAX} in a minute, and two for each packet",
    ),
    Rule(
        clause="PYDEVTS-7.2",
        where="good AND at_ns = same_first_at AND last_good.pydevts_crc <> pydevts_crc",
        holds=f"acknowledged_at >= at_ns - {LIFE_NS}",
        found="concat('id ', pydevts_id, ' for a new message ', (at_ns - last_good.at_ns) DIV 1000000,"
        " ' ms after another that was not acknowledged')",
        expected="the ids of open messages are skipped",
        needs_start=True,
    ),
)

FORMAT_RULES = (
    format_rule(
        "PYDEVTS-1.1", "too_short", "at least eight bytes; it may have been cut on the way", severity="warning"
    ),
    format_rule("PYDEVTS-1.2", "unknown_type", "type 0, 1 or 3"),
    format_rule("PYDEVTS-1.3", "bad_success", "success 0 or 1"),
    format_rule("PYDEVTS-1.4", "wrong_size", "exactly eight bytes of an ack or close"),
    format_rule("PYDEVTS-1.7", "too_long", "a body of at most 65,499 bytes"),
)

CHECKS = (
    Check(of="protocol = 'pydevts' AND kind <> 'malformed'", rules=_ANSWER_RULES),
    Check(rows=_IDS, rules=_ID_RULES),
)
