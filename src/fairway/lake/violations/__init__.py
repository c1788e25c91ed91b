"""Which rules of the wire were broken, where, and what was expected: the table `violations`.

    rule.py     what a rule is, and how rows are judged
    udpc.py     the rules of a protocol, with SQL of the rows that they look at; so have mrp.py, rup.py and pydevts.py

Only what a capture at its point can prove is reported. Losses, duplicates, reordering, restarts and moving addresses
break no rule.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from itertools import accumulate

from pyspark.sql import DataFrame

from fairway.core.tables import PROTOCOLS, VIOLATIONS
from fairway.lake.analysis.sessions import EPISODE, seconds_of, whole_sessions
from fairway.lake.violations import mrp, pydevts, rup, udpc
from fairway.lake.violations.rule import FORWARD, FRAME, Check, Rule, judged, of_rules, strands_of, views_of

__all__ = ["CHECKS", "Check", "Rule", "checks_of", "rules", "strands_of", "violations"]

MICROSECOND_NS = 1_000

LIMIT = 12
"""A side that only ever answered, to an address that only ever called, may send three times what it got (see
docs/wire/common.md). The network may double what it got behind the point, and what it sends before the point."""

_ASKS = "kind IN ('syn', 'connect', 'packet') OR (protocol = 'rup' AND kind = 'data')"
_PROVES = f"protocol IN ('udpc', 'mrp') AND NOT ({_ASKS})"
"""For rup and pydevts nothing proves."""
_ANSWERS = """kind IN ('syn_ack', 'con_reply', 'confirm', 'close') OR (protocol = 'rup' AND kind = 'request')
    OR (protocol = 'pydevts' AND kind = 'ack')"""


def _side(ours: str) -> str:
    theirs = f"NOT ({ours})"
    return f"""named_struct('forward', {ours == "forward"},
        'limited', bool_or(coalesce({theirs} AND ({_ASKS}), false))
            AND NOT bool_or(coalesce({theirs} AND {_PROVES}, false))
            AND NOT bool_or(coalesce({ours} AND NOT ({_ANSWERS}), false)),
        'sent', sum(IF({ours}, bytes, 0)), 'got', sum(IF({theirs}, bytes, 0)),
        'last_at', max(IF({ours}, last_at, NULL)))"""


_LIMITED = f"""
    SELECT {FRAME}, sent, got FROM (SELECT {FRAME}, {FORWARD} AS forward FROM {{packets}} WHERE protocol IN {PROTOCOLS})
    JOIN (SELECT point, flow, inline(array(ahead, back)) FROM (
            SELECT point, flow, {_side("forward")} AS ahead, {_side("NOT forward")} AS back
            FROM {{strands}} GROUP BY ALL)) USING (point, flow, forward)
    WHERE limited AND sent > {LIMIT} * got AND at_ns = last_at"""
"""The last packet of each side that sent more than the limit allows, with the bytes of both."""

_AMPLIFICATION = Check(
    rows=_LIMITED,
    rules=(
        Rule(
            clause="ALL-6.1",
            holds=f"sent <= {LIMIT} * got",
            found="concat(sent, ' bytes to an address from which ', got, ' came')",
            expected="at most three times the bytes that came from an address that has proved nothing",
            reported=f"more than {LIMIT} times",
            needs_start=True,
        ),
    ),
)
_FORMAT = Check(
    of="kind = 'malformed' AND NOT truncated",
    rules=(*udpc.FORMAT_RULES, *mrp.FORMAT_RULES, *rup.FORMAT_RULES, *pydevts.FORMAT_RULES),
)

CHECKS_OF = {
    None: (_FORMAT, _AMPLIFICATION),
    "udpc": udpc.CHECKS,
    "mrp": mrp.CHECKS,
    "rup": rup.CHECKS,
    "pydevts": pydevts.CHECKS,
}
"""By protocol; first those that concern all four."""


def checks_of(spoken: Collection[str]) -> tuple[Check, ...]:
    """Return the checks that concern all protocols, and those of the ones that are spoken."""
    return tuple(check for name, checks in CHECKS_OF.items() if name is None or name in spoken for check in checks)


CHECKS = checks_of(PROTOCOLS)


def _rules_of(checks: Collection[Check]) -> list[Rule]:
    return [rule for check in checks for rule in check.rules]


def rules(protocol: str) -> list[Rule]:
    """Return the rules of a protocol."""
    prefixes = (f"{protocol.upper()}-", "ALL-")
    return [rule for rule in _rules_of(CHECKS) if rule.clause.startswith(prefixes)]


_VIEWS = {
    name: query
    for protocol, views in (("udpc", udpc.VIEWS), ("mrp", mrp.VIEWS), ("rup", rup.VIEWS), ("pydevts", pydevts.VIEWS))
    for name, query in (views_of(protocol) | views).items()
} | {
    # When a flow goes on behind a damaged stretch of its file: from then on not all is held that came before.
    "spoilt": """
        SELECT point AS spoilt_point, flow AS spoilt_flow, min(at_ns) AS spoilt_ns
        FROM {packets} WHERE damages_before > 0 GROUP BY file_id, damages_before, point, flow"""
}
"""What checks look at, by name; each may be made of those before it."""


def violations(
    packets: DataFrame,
    checks: tuple[Check, ...] = CHECKS,
    *,
    seconds: DataFrame | None = None,
    strands: DataFrame | None = None,
) -> DataFrame:
    """Return the table `violations`.

    The query reads `packets` many times: pass a stored table, not a plan that would be computed again each time; and,
    if somebody has kept them, what their sessions add up in each second, and their strands.
    """
    names = ("first_us", "first_ns", "begun_ns", "packets_out", "packets_in")
    sessions = whole_sessions(seconds or seconds_of(packets), *names)
    # Spark would forget what is kept of a frame that is named here as it is.
    return packets.sparkSession.sql(
        _query(checks),
        packets=packets.where("at_ns IS NOT NULL"),
        strands=(strands or strands_of(packets)).where(f"protocol IN {PROTOCOLS}"),
        whole=sessions.where("begun_ns = first_ns AND packets_out > 0 AND packets_in > 0"),
    )


def _query(checks: tuple[Check, ...]) -> str:
    """Return SQL of the table `violations`.

    Whether a rule that needs the beginning applies is asked of what was found, which is little, not of every packet; by
    the last join it is brought into few tasks.
    """
    firsts = accumulate((len(check.rules) for check in checks), initial=1)
    found = " UNION ALL ".join(judged(check, first) for check, first in zip(checks, firsts, strict=False))
    judgements = f"""
        SELECT /*+ SHUFFLE_HASH(spoilt) */ {", ".join(VIOLATIONS.names)}, {", ".join(EPISODE)} FROM (
            SELECT *, timestamp_micros(at_ns DIV {MICROSECOND_NS}) AS at, {of_rules(_rules_of(checks))}
            FROM ({found}))
        LEFT JOIN (SELECT flow, session, {MICROSECOND_NS} * first_us AS first_ns FROM {{whole}}) USING (flow, session)
        LEFT ANTI JOIN spoilt ON point = spoilt_point AND flow = spoilt_flow
            AND spoilt_ns >= IF(needs_start, first_ns, all_since_ns)
            AND spoilt_ns DIV {MICROSECOND_NS} <= at_ns DIV {MICROSECOND_NS}
        WHERE NOT needs_start OR coalesce(captured_by_ns >= first_ns, false)"""
    views = ", ".join(f"{name} AS ({query})" for name, query in _needed(judgements).items())
    return f"WITH {views} {judgements}"


def _needed(text: str) -> Mapping[str, str]:
    """Return the views that a query names, and those that they are made of."""
    needed: dict[str, str] = {}
    for name, query in reversed(_VIEWS.items()):
        if re.search(rf"\b{name}\b", text):
            needed[name] = query
            text = f"{text} {query}"
    return dict(reversed(needed.items()))
