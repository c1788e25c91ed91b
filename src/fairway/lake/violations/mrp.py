"""The rules of mrp about messages and their acknowledgements; clauses of docs/wire/mrp.md.

    numbers    data and acks, beside the first of their sequence and what they acknowledge
    stalled    retransmissions that come when the connection should have ended
    piggyback  what from_seq says of all sequences before

What concerns the opening of connections stands in `mrp_opening.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairway.lake.analysis.sessions import named
from fairway.lake.violations import mrp_opening
from fairway.lake.violations.rule import (
    BY_NOW,
    FRAME,
    SECOND_NS,
    SLACK_NS,
    WINDOW_MAX,
    Check,
    Rule,
    Seen,
    beside,
    format_rule,
    of_protocol,
    over,
    until,
    until_now,
    with_columns,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

UNACKNOWLEDGED_NS = 120 * SECOND_NS
"""30 s of MRP-7.3, and as long again for each of a few restarts that begin to count anew."""


def _spoken(seen: Seen) -> DataFrame:
    return of_protocol(seen, "mrp").where("session IS NOT NULL AND kind IN ('data', 'ack')")


def _numbers(seen: Seen) -> DataFrame:
    """Add to data and acks whether what they acknowledge, and the stamp that they repeat, was seen by now."""
    known = {
        "sent": f"coalesce(acknowledges_at_ns {BY_NOW}, false)",
        "stamped": f"coalesce(echoes_at_ns {BY_NOW}, false)",
    }
    fields = ("kind", "mrp_layout", "mrp_sequence", "mrp_stamp", "mrp_from_sequence", "differs")
    return _spoken(seen).selectExpr(*FRAME, *fields, *named(known))


_ACKNOWLEDGES = "kind = 'ack' AND mrp_layout = 'stamped' AND NOT (mrp_sequence = 0 AND mrp_stamp = 0)"
"""In a piggyback connection an ack is out of place, whatever it names: MRP-1.6."""

_NUMBER_RULES = (
    Rule(
        clause="MRP-3.8",
        where="kind = 'data'",
        holds="differs IS NULL",
        found="concat('sequence ', mrp_sequence, ' again, with another payload')",
        expected="a sequence stands for one message",
    ),
    Rule(
        clause="MRP-4.2",
        where=_ACKNOWLEDGES,
        holds="sent",
        found="concat('an ack of sequence ', mrp_sequence, ', which was never sent')",
        expected="an ack names a packet that was sent",
        needs_start=True,
    ),
    Rule(
        clause="MRP-4.3",
        where=f"{_ACKNOWLEDGES} AND sent",
        holds="stamped",
        found="concat('an ack of sequence ', mrp_sequence, ' with stamp ', mrp_stamp, ', which no transmission had')",
        expected="an ack repeats the stamp of the packet that it acknowledges",
        needs_start=True,
    ),
    Rule(
        clause="MRP-5.6",
        where="mrp_layout = 'piggyback' AND mrp_from_sequence <> 0",
        holds="sent",
        found="concat('from_seq ', mrp_from_sequence, ', which was never sent')",
        expected="from_seq acknowledges what was sent",
        needs_start=True,
    ),
)


def _stalled(seen: Seen) -> DataFrame:
    """Add to late retransmissions of stamped data when a sequence of its sender was last newly acknowledged."""
    rows = _spoken(seen).where("mrp_layout = 'stamped'")
    late = f"kind = 'data' AND NOT duplicate AND at_ns - first_at_ns > {UNACKNOWLEDGED_NS}"
    sessions = seen.strands.where(f"protocol = 'mrp' AND kind = 'data' AND late_ns > {UNACKNOWLEDGED_NS}")
    concerned = beside(rows, sessions.selectExpr("flow", "session"), ["flow", "session"], "left_semi")
    spoken = with_columns(concerned, {"side": "from_caller = (kind = 'data')"})
    newly = "max(IF(kind = 'ack' AND at_ns = first_at_ns, at_ns, NULL))"
    known = with_columns(spoken, over(until_now("flow", "session", "side"), advanced_at=newly)).where(late)
    return known.selectExpr(*FRAME, "first_at_ns", "advanced_at")


_STALLED_RULES = (
    Rule(
        clause="MRP-7.3",
        severity="warning",
        where="true",
        holds=f"advanced_at >= at_ns - {UNACKNOWLEDGED_NS}",
        found="concat('a retransmission ', (at_ns - first_at_ns) DIV 1000000, ' ms after the first, without progress')",
        expected="data outstanding and nothing newly acknowledged for 30 s ends the connection",
        reported=f"more than {UNACKNOWLEDGED_NS // SECOND_NS} s after the first, and after the last progress",
        needs_start=True,
    ),
)


def _piggyback(seen: Seen) -> DataFrame:
    """Add to piggyback data how much of the other side from_seq may speak of, and what it said long enough ago.

    `seen` counts the sequences that the other side has used up to now; beyond half a turn it no longer says anything.
    """
    rows = _spoken(seen).where("kind = 'data' AND mrp_layout = 'piggyback'")
    by_now = over(
        until_now("flow", "session"),
        of_caller="count_if(from_caller AND retransmission = 0)",
        of_callee="count_if(NOT from_caller AND retransmission = 0)",
    )
    long_ago = over(
        until("flow", "session", ago_ns=SLACK_NS),
        caller_said="max_by(mrp_from_sequence, IF(from_caller, at_ns, NULL))",
        callee_said="max_by(mrp_from_sequence, IF(from_caller, NULL, at_ns))",
    )
    return with_columns(rows, by_now, long_ago).selectExpr(
        *FRAME,
        "mrp_from_sequence",
        "acknowledges_at_ns",
        "IF(from_caller, of_callee, of_caller) AS seen",
        "IF(from_caller, caller_said, callee_said) AS said",
    )


_PIGGYBACK_RULES = (
    Rule(
        clause="MRP-5.1",
        where=f"acknowledges_at_ns {BY_NOW} AND seen <= {WINDOW_MAX}",
        holds="mrp_from_sequence <= seen",
        found="concat('from_seq ', mrp_from_sequence, ' after only ', seen, ' messages')",
        expected="from_seq is the highest sequence with none missing below",
        needs_start=True,
    ),
    Rule(
        clause="MRP-5.9",
        where="said IS NOT NULL",
        holds="pmod(said - mrp_from_sequence, 65536) NOT BETWEEN 1 AND 32767",
        found="concat('from_seq ', mrp_from_sequence, ' after ', said)",
        expected="from_seq never goes back",
        reported=f"{SLACK_NS // SECOND_NS} s after the higher one",
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
    Check(context=_numbers, rules=_NUMBER_RULES),
    Check(context=_stalled, rules=_STALLED_RULES),
    Check(context=_piggyback, rules=_PIGGYBACK_RULES),
)
