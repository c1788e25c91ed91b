"""What a rule is, and how rows are judged by rules.

A rule is about the rows for which `where` is true, and says that `holds` is true for each of them. Both are SQL over a
row and the context that was prepared for it. A `holds` that is NULL counts as broken; so a rule that cannot be decided
without something that a capture may lack asks for it in `where`.

A capture sees a conversation from one place. What was sent there is seen, whatever becomes of it later; what passes
there may have been reordered, delayed or doubled before. So a rule compares in one of three ways only:

    with what passed before     an answer can be seen only after what it answers, wherever the point is; `JITTER_NS` is
                                for captures whose queues have clocks of their own
    with what passed long ago   `SLACK_NS` is longer than networks keep a datagram, so it was also sent before
    by counting                 with room for a network that doubles every datagram on both ways

Most rules compare a packet with the first under its number, or with what it acknowledges: columns of `packets`. Others
look at windows.

All rules together are one query, in which each check is a pass over its rows: code that Spark makes of the rules of
several grows beyond what Java takes as one method.

Durations and bounds are defaults that an endpoint may change: what breaks only these is a warning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import DataFrame

from fairway.core.tables import PACKETS, PROTOCOLS
from fairway.lake.analysis.sessions import EPISODE, grouped, named

SECOND_NS = 1_000_000_000
JITTER_NS = SECOND_NS // 1_000
"""Two datagrams closer than this may stand in a capture in either order."""
SLACK_NS = 3 * SECOND_NS
"""Two datagrams further apart than this have not overtaken one another."""

WINDOW_MAX = 32_767

Severity = Literal["error", "warning"]

SETTLED_S = 5
"""By then a message from before the capture has its answer, or will be repeated."""

FORWARD = "(source < destination OR (source = destination AND source_port < destination_port))"
"""A direction that does not depend on who was seen first."""

BY_NOW = f"<= at_ns + {JITTER_NS}"
"""SQL: what was seen by now, or at nearly the same instant."""

FRAME = ", ".join(("protocol", "session", "point", "flow", "file_id", "file", "offset", "frame", "at_ns", *EPISODE))
"""The columns of a packet that every check keeps: where a violation is, and when."""

NAMED = f"coalesce(acknowledges_at_ns {BY_NOW}, false)"
"""SQL: whether what a packet acknowledges was seen by now."""
ECHOED = f"coalesce(echoes_at_ns {BY_NOW}, false)"
"""SQL: whether the stamp or CRC that it repeats was."""

_SHARED = (
    *("source", "source_port", "destination", "destination_port", "kind", "from_caller", "retransmission", "duplicate"),
    *("first_at_ns", "differs", "acknowledges_kind", "acknowledges_at_ns", "echoes_at_ns", "body_bytes", "body_crc"),
)
"""What else the rules of all protocols look at. Spark's planner pays for every column, also one that it leaves out."""

MRP_CARRIES = "(kind = 'data' AND (mrp_layout = 'stamped' OR body_bytes > 0))"
"""SQL: a piggyback packet with an empty payload is a bare acknowledgement."""

_STRAND = (
    *("protocol", "flow", "point", "session", "forward", "from_caller", "kind", "udpc_session", "mrp_client"),
    *("mrp_server", "mrp_version", "mrp_status", "mrp_origin", "mrp_destination"),
)
_STRAND_TOLD = (
    *("at_ns", "first_at_ns", "payload_bytes", "body_bytes", "body_crc", "udpc_index", "mrp_layout", "mrp_sequence"),
    *("pydevts_success", "pydevts_crc"),
)
_STRAND_ADDS = {
    "first_at": "min(at_ns)",
    "last_at": "max(at_ns)",
    "bytes": "sum(payload_bytes)",
    "least_index": "min(udpc_index)",
    "most_index": "max(udpc_index)",
    "carried_at": f"min(at_ns) FILTER (WHERE {MRP_CARRIES})",
    "late_ns": "max(at_ns - first_at_ns)",
    "failed": "bool_or(pydevts_success = 1 OR (kind = 'packet' AND body_crc <> pydevts_crc))",
    "odd_at": f"min(at_ns) FILTER (WHERE {MRP_CARRIES} AND mrp_sequence NOT BETWEEN 1 AND {WINDOW_MAX})",
}


def views_of(protocol: str) -> dict[str, str]:
    """Return SQL of the well-formed packets of a protocol, with `forward`, and of what they add up to."""
    own = ", ".join((*_SHARED, *(name for name in PACKETS.names if name.startswith(f"{protocol}_"))))
    good = f"WHERE protocol = '{protocol}' AND kind <> 'malformed'"
    return {
        f"{protocol}_packets": f"SELECT {FRAME}, {own}, {FORWARD} AS forward FROM {{packets}} {good}",
        f"{protocol}_strands": f"SELECT * FROM {{strands}} {good}",
    }


def strands_of(packets: DataFrame) -> DataFrame:
    """Return what packets add up to that agree in all but times, numbers and sizes: as few as sessions and kinds.

    What is asked of whole flows and sessions is asked of these, many times: whoever has many packets keeps them.
    """
    rows = packets.where(f"protocol IN {PROTOCOLS} AND at_ns IS NOT NULL")
    told = {name: FORWARD if name == "forward" else name for name in (*_STRAND, *_STRAND_TOLD)}
    return grouped(rows.selectExpr(*named(told)), _STRAND, _STRAND_ADDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of a clause; a clause may have several."""

    clause: str
    severity: Severity = "error"
    where: str = "true"
    """SQL: the rows that the rule is about."""
    holds: str = "false"
    """SQL: what must be true for them."""
    found: str
    """SQL of what is found where it is broken."""
    expected: str
    """What the clause asks for, in words."""
    needs_start: bool = False
    """Whether it can be judged only where the capture holds the beginning of the conversation, and both directions."""
    all_since: str = "NULL"
    """SQL of the instant from which on the capture must hold everything; with `needs_start` the session's first."""
    reported: str = ""
    """From when on it is reported, where a network or a restart explains what comes sooner."""
    settled_s: int = 0
    """For how long the conversation must have been captured before `since`. rup and pydevts begin without a sign: a
    capture may start between a message and its answer, and then sees an answer to nothing."""
    since: str = "at_ns"
    """SQL of the first instant that the rule looks at; with `settled_s`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Rules that are judged on the same rows."""

    rows: str = "{packets}"
    """SQL: a table, or a query of `FRAME` and what the rules look at."""
    of: str = "true"
    """SQL: which of the rows."""
    rules: tuple[Rule, ...]


def judged(check: Check, first: int) -> str:
    """Return SQL of `FRAME` and what is wrong, a row for each rule that a row breaks; `first` numbers the rules.

    First the few rows are found that break any: to look for that costs a fraction of saying what is wrong.
    """
    source = f"({check.rows})" if " " in check.rows else check.rows
    verdicts = ", ".join(_verdict(rule, number) for number, rule in enumerate(check.rules, first))
    return f"""SELECT {FRAME}, inline(filter(array({verdicts}), verdict -> verdict IS NOT NULL))
        FROM {source} WHERE {check.of} AND ({" OR ".join(map(_broken, check.rules))})"""


def _broken(rule: Rule) -> str:
    return f"(coalesce(({rule.where}), false) AND NOT coalesce(({rule.holds}), false))"


def _verdict(rule: Rule, number: int) -> str:
    return f"""CASE WHEN {_broken(rule)} THEN named_struct(
        'number', {number}, 'found', coalesce(string({rule.found}), 'nothing'),
        'captured_by_ns', ({rule.since}) - {rule.settled_s * SECOND_NS},
        'all_since_ns', bigint({rule.all_since})) END"""


def of_rules(rules: Sequence[Rule]) -> str:
    """Return SQL of what a rule says whatever the packet, by the rule's number: once, and not in every verdict."""
    said = {
        "rule": [_quoted(rule.clause) for rule in rules],
        "severity": [_quoted(rule.severity) for rule in rules],
        "expected": [_quoted(rule.expected) for rule in rules],
        "needs_start": [str(rule.needs_start) for rule in rules],
    }
    return columns({name: f"element_at(array({', '.join(values)}), number)" for name, values in said.items()})


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def format_rule(clause: str, reasons: str, expected: str, *, where: str = "true", severity: Severity = "error") -> Rule:
    """Return the rule that no datagram of the clause's protocol is malformed for these reasons."""
    protocol = clause.partition("-")[0].lower()
    listed = ", ".join(f"'{reason}'" for reason in reasons.split())
    return Rule(
        clause=clause,
        severity=severity,
        where=f"protocol = '{protocol}' AND reason IN ({listed}) AND {where}",
        found="concat('a datagram of ', payload_bytes, ' bytes: ', replace(reason, '_', ' '))",
        expected=expected,
    )


def hexadecimal(number: str) -> str:
    """Return SQL of a number's digits. Not lower(): that loads the case rules of all languages, for seconds."""
    return f"translate(hex({number}), 'ABCDEF', 'abcdef')"


UNTIL_NOW = f"RANGE BETWEEN UNBOUNDED PRECEDING AND {JITTER_NS}L FOLLOWING"
"""Of a window: what was seen at nearly the same instant counts as seen before."""
ALL = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
"""All rows; in the order of the other windows, so that one sort serves them all."""


def aged(from_ns: int | None = None, to_ns: int = 0) -> str:
    """Return the rows of a window whose age lies in this range; without a bound all that are at least so old."""
    return f"RANGE BETWEEN {'UNBOUNDED' if from_ns is None else f'{from_ns}L'} PRECEDING AND {to_ns}L PRECEDING"


def over(keys: Sequence[str], rows: str = UNTIL_NOW, **expressions: str) -> dict[str, str]:
    """Return SQL of columns computed over some of the rows with equal keys, in the order of time, by name."""
    window = f"PARTITION BY {', '.join(keys)} ORDER BY at_ns {rows}"
    return {name: f"{text} OVER ({window})" for name, text in expressions.items()}


def columns(expressions: Mapping[str, str]) -> str:
    """Return SQL of columns with their names."""
    return ", ".join(named(expressions))
