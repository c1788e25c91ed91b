"""Which rules of the wire were broken, where, and what was expected: the table `violations`.

    rule.py           what a rule is, and how rows are judged
    udpc.py           the rules of a protocol, with the context that they look at
    mrp.py            so does each of the others; what concerns mrp's calls stands in mrp_opening.py
    rup.py
    pydevts.py
    amplification.py  the limit that all four share
    limits.py         durations and bounds

Only what a capture at its point can prove is reported. Losses, duplicates, reordering, restarts and moving addresses
break no rule.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fairway.core.tables import VIOLATIONS
from fairway.lake.analysis.sessions import beginnings
from fairway.lake.analysis.sums import EPISODE
from fairway.lake.violations import amplification, mrp, pydevts, rup, udpc
from fairway.lake.violations.rule import Check, Rule, judged, malformed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["CHECKS", "Check", "Rule", "by_protocol", "rules", "violations"]

MICROSECOND_NS = 1_000

_FORMAT = Check(
    context=malformed,
    rules=(*udpc.FORMAT_RULES, *mrp.FORMAT_RULES, *rup.FORMAT_RULES, *pydevts.FORMAT_RULES),
)

CHECKS_OF = {
    None: (_FORMAT, *amplification.CHECKS),
    "udpc": udpc.CHECKS,
    "mrp": mrp.CHECKS,
    "rup": rup.CHECKS,
    "pydevts": pydevts.CHECKS,
}
"""By protocol; first those that concern all four."""
CHECKS: tuple[Check, ...] = tuple(check for checks in CHECKS_OF.values() for check in checks)


def rules(protocol: str) -> list[Rule]:
    """Return the rules of a protocol."""
    prefixes = (f"{protocol.upper()}-", "ALL-")
    return [rule for check in CHECKS for rule in check.rules if rule.clause.startswith(prefixes)]


def by_protocol(packets: DataFrame) -> list[DataFrame]:
    """Return the parts of `violations`, one for what concerns all protocols and one for each that is spoken.

    Every task of a job carries the job's whole plan with it: one of all checks is several megabytes.
    """
    spoken = {row.protocol for row in packets.select("protocol").distinct().collect()}
    return [violations(packets, checks) for name, checks in CHECKS_OF.items() if name is None or name in spoken]


def violations(packets: DataFrame, checks: tuple[Check, ...] = CHECKS) -> DataFrame:
    """Return the table `violations`.

    Each check reads `packets` for itself: pass a stored table, not a plan that would be computed again each time.
    Whether a rule that needs the beginning applies is asked of what was found, which is little, not of every packet.
    """
    found = reduce(lambda one, other: one.unionByName(other), (judged(packets, check) for check in checks))
    whole = (
        beginnings(packets)
        .where("from_start AND packets_out > 0 AND packets_in > 0")
        .select("session", F.expr(f"{MICROSECOND_NS} * unix_micros(first)").alias("first_ns"))
    )
    joined = found.join(whole, on="session", how="left").where(
        "NOT needs_start OR coalesce(captured_by_ns >= first_ns, false)"
    )
    between = f"""point = spoilt_point AND flow = spoilt_flow AND spoilt_ns >= IF(needs_start, first_ns, all_since_ns)
        AND spoilt_ns <= {MICROSECOND_NS} * unix_micros(at) + {MICROSECOND_NS - 1}"""
    kept = joined.join(_spoilt(packets), on=F.expr(between), how="left_anti")
    return kept.select(*VIOLATIONS.names, *EPISODE)


def _spoilt(packets: DataFrame) -> DataFrame:
    """Return for each flow when it goes on behind a damaged stretch of its file.

    From then on the capture does not hold all that came before.
    """
    behind = packets.where("damages_before > 0 AND at_ns IS NOT NULL")
    spoilt = behind.groupBy("file_id", "damages_before", "point", "flow").agg(F.min("at_ns").alias("spoilt_ns"))
    return spoilt.select(F.col("point").alias("spoilt_point"), F.col("flow").alias("spoilt_flow"), "spoilt_ns")
