"""Which rules of the wire were broken, where, and what was expected: the table `violations`.

    rule.py           what a rule is, and how rows are judged
    udpc.py           the rules of a protocol, with the context that they look at
    mrp.py            so does each of the others; what concerns mrp's calls stands in mrp_opening.py
    rup.py
    pydevts.py
    screens.py        which conversations are worth a closer look
    amplification.py  the limit that all four share
    page.py           the list of all rules, docs/violations.md

Only what a capture at its point can prove is reported. Losses, copies, reordering, restarts and moving addresses break
no rule.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from typing import TYPE_CHECKING

from fairway.core.tables import PROTOCOLS, VIOLATIONS
from fairway.lake.violations import amplification, mrp, pydevts, rup, udpc
from fairway.lake.violations.rule import Check, Rule, judged, malformed, signs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["CHECKS", "Check", "Rule", "rules", "signs", "violations"]

_FORMAT = Check(
    signs=tuple(f"{name} malformed" for name in PROTOCOLS),
    context=malformed,
    rules=(*udpc.FORMAT_RULES, *mrp.FORMAT_RULES, *rup.FORMAT_RULES, *pydevts.FORMAT_RULES),
)

CHECKS: tuple[Check, ...] = (
    _FORMAT,
    *udpc.CHECKS,
    *mrp.CHECKS,
    *rup.CHECKS,
    *pydevts.CHECKS,
    *amplification.CHECKS,
)


def rules(protocol: str) -> list[Rule]:
    """Gives the rules of a protocol."""
    prefixes = (f"{protocol.upper()}-", "ALL-")
    return [rule for check in CHECKS for rule in check.rules if rule.clause.startswith(prefixes)]


def violations(
    packets: DataFrame, sessions: DataFrame, occurring: Collection[str] | None = None, *, few: bool = False
) -> DataFrame:
    """Gives the table `violations`, and `bucket` behind its columns, of the tables `packets` and `sessions`.

    Each check reads `packets` for itself: hand over a stored table, not a plan that would be computed again each time.
    `occurring` are the `signs` of the packets, if they are known: checks that would find nothing are left out.
    Whether a rule that needs the beginning applies is asked of what was found, which is little, not of every packet.
    `few` says that the packets are few and in one partition: then the screens would cost more than they save.
    """
    wanted = [check for check in CHECKS if occurring is None or not set(occurring).isdisjoint(check.signs)]
    found = reduce(
        lambda one, other: one.unionByName(other),
        (judged(packets, check, screened=not few) for check in wanted or [_FORMAT]),
    )
    found = found.coalesce(1) if few else found
    whole = sessions.where("from_start AND packets_out > 0 AND packets_in > 0").select("session", "first")
    held = "coalesce(captured_by_ns >= 1000 * unix_micros(first), false)"
    joined = found.join(whole, on="session", how="left").where(f"NOT needs_start OR {held}")
    return joined.select(*VIOLATIONS.names, "bucket")
