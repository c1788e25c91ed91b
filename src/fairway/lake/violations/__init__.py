"""Which rules of the wire were broken, where, and what was expected: the table `violations`.

    rule.py     what a rule is, and how rows are judged
    udpc.py     the rules of a protocol, with the context that they look at; so have mrp.py, rup.py and pydevts.py

Only what a capture at its point can prove is reported. Losses, duplicates, reordering, restarts and moving addresses
break no rule.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fairway.core.tables import PROTOCOLS, VIOLATIONS
from fairway.lake.analysis.sessions import EPISODE, grouped, seconds_of, whole_sessions
from fairway.lake.violations import mrp, pydevts, rup, udpc
from fairway.lake.violations.rule import (
    FORWARD,
    FRAME,
    Check,
    Rule,
    Seen,
    judged,
    malformed,
    of_rules,
    strands_of,
    with_columns,
)

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


def _limited(seen: Seen) -> DataFrame:
    """Return the last packet of each side that sent more than the limit allows, with the bytes of both."""
    rows = seen.packets.where(f"protocol IN {PROTOCOLS} AND at_ns IS NOT NULL")
    both = grouped(seen.strands, ["point", "flow"], {"ahead": _side("forward"), "back": _side("NOT forward")})
    sides = both.selectExpr("point", "flow", "inline(array(ahead, back))")
    suspects = sides.where(f"limited AND sent > {LIMIT} * got")
    sent = rows.selectExpr(*FRAME, f"{FORWARD} AS forward")
    joined = sent.join(suspects, ["point", "flow", "forward"], "inner")
    return joined.where("at_ns = last_at").selectExpr(*FRAME, "sent", "got")


def _side(ours: str) -> str:
    theirs = f"NOT ({ours})"
    return f"""named_struct('forward', {ours == "forward"},
        'limited', bool_or(coalesce({theirs} AND ({_ASKS}), false))
            AND NOT bool_or(coalesce({theirs} AND {_PROVES}, false))
            AND NOT bool_or(coalesce({ours} AND NOT ({_ANSWERS}), false)),
        'sent', sum(IF({ours}, bytes, 0)), 'got', sum(IF({theirs}, bytes, 0)),
        'last_at', max(IF({ours}, last_at, NULL)))"""


_AMPLIFICATION = Check(
    context=_limited,
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
    context=malformed,
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


def rules(protocol: str) -> list[Rule]:
    """Return the rules of a protocol."""
    prefixes = (f"{protocol.upper()}-", "ALL-")
    return [rule for check in CHECKS for rule in check.rules if rule.clause.startswith(prefixes)]


def violations(
    packets: DataFrame,
    checks: tuple[Check, ...] = CHECKS,
    *,
    seconds: DataFrame | None = None,
    strands: DataFrame | None = None,
) -> DataFrame:
    """Return the table `violations`.

    Each check reads `packets` for itself: pass a stored table, not a plan that would be computed again each time; and,
    if somebody has kept them, what their sessions add up in each second, and their strands.
    Whether a rule that needs the beginning applies is asked of what was found, which is little, not of every packet.
    """
    seen = Seen(packets, strands or strands_of(packets))
    firsts = accumulate((len(check.rules) for check in checks), initial=1)
    each = [judged(seen, check, first) for check, first in zip(checks, firsts, strict=False)]
    found = with_columns(_together(each), of_rules([rule for check in checks for rule in check.rules]))
    names = ("first_us", "first_ns", "begun_ns", "packets_out", "packets_in")
    known = whole_sessions(seconds or seconds_of(packets), *names)
    whole = known.where("begun_ns = first_ns AND packets_out > 0 AND packets_in > 0").selectExpr(
        "flow", "session", f"{MICROSECOND_NS} * first_us AS first_ns"
    )
    joined = found.join(whole, ["flow", "session"], "left").where(
        "NOT needs_start OR coalesce(captured_by_ns >= first_ns, false)"
    )
    between = f"""point = spoilt_point AND flow = spoilt_flow AND spoilt_ns >= IF(needs_start, first_ns, all_since_ns)
        AND spoilt_ns DIV {MICROSECOND_NS} <= at_ns DIV {MICROSECOND_NS}"""
    # What is left of all checks is little: by this join it is brought into few tasks.
    kept = joined.join(_spoilt(packets).hint("shuffle_hash"), on=F.expr(between), how="left_anti")
    at = f"timestamp_micros(at_ns DIV {MICROSECOND_NS}) AS at"
    return kept.selectExpr("*", at).selectExpr(*VIOLATIONS.names, *EPISODE)


def _together(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of all frames; joined in halves, because every union goes through all that is below it."""
    if len(frames) == 1:
        return frames[0]
    half = len(frames) // 2
    return _together(frames[:half]).union(_together(frames[half:]))


def _spoilt(packets: DataFrame) -> DataFrame:
    """Return for each flow when it goes on behind a damaged stretch of its file.

    From then on the capture does not hold all that came before.
    """
    behind = packets.where("damages_before > 0 AND at_ns IS NOT NULL")
    spoilt = grouped(behind, ["file_id", "damages_before", "point", "flow"], {"spoilt_ns": "min(at_ns)"})
    return spoilt.selectExpr("point AS spoilt_point", "flow AS spoilt_flow", "spoilt_ns")
