"""Which rules of the wire were broken, where, and what was expected: the table `violations`.

    rule.py           what a rule is, and how rows are judged
    udpc.py           the rules of a protocol, with the context that they look at
    mrp.py            so does each of the others; what concerns mrp's calls stands in mrp_opening.py
    rup.py
    pydevts.py
    screens.py        which flows are worth a closer look
    groups.py         what screens look at
    limits.py         durations and bounds
    amplification.py  the limit that all four share
    page.py           the list of all rules, docs/violations.md

Only what a capture at its point can prove is reported. Losses, copies, reordering, restarts and moving addresses break
no rule.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from fairway.core.tables import VIOLATIONS
from fairway.lake.analysis.sessions import beginnings
from fairway.lake.violations import amplification, mrp, pydevts, rup, screens, udpc
from fairway.lake.violations.groups import Seen
from fairway.lake.violations.rule import Check, Rule, judged, malformed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fairway.lake.analysis.packets import Packets

__all__ = ["CHECKS", "Check", "Rule", "rules", "suspects", "violations"]

LISTED_MAX = 500
"""So many flows are named in a plan; more are joined."""

_FORMAT = Check(
    screen=screens.malformed,
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


def suspects(packets: Packets) -> dict[str, list[int]]:
    """Gives the flows that are worth a closer look, by the name of the check; checks without any are left out."""
    seen = Seen(packets)
    found = {check.name: check.screen(seen).tolist() for check in CHECKS}
    return {name: flows for name, flows in found.items() if flows}


def violations(packets: DataFrame, suspected: Mapping[str, Collection[int] | None]) -> DataFrame:
    """Gives the table `violations`, and `bucket` behind its columns, of the table `packets`.

    `suspected` are the flows that each check looks at; None for all, and no entry for none.
    Each check reads `packets` for itself: hand over a stored table, not a plan that would be computed again each time.
    Whether a rule that needs the beginning applies is asked of what was found, which is little, not of every packet.
    """
    wanted = [check for check in CHECKS if suspected.get(check.name, ()) != ()]
    found = reduce(
        lambda one, other: one.unionByName(other),
        (judged(_of_flows(packets, suspected.get(check.name, ())), check) for check in wanted or [_FORMAT]),
    )
    whole = beginnings(packets).where("from_start AND packets_out > 0 AND packets_in > 0").select("session", "first")
    held = "coalesce(captured_by_ns >= 1000 * unix_micros(first), false)"
    joined = found.join(whole, on="session", how="left").where(f"NOT needs_start OR {held}")
    return joined.select(*VIOLATIONS.names, "bucket")


def _of_flows(packets: DataFrame, flows: Collection[int] | None) -> DataFrame:
    """Gives the packets of these flows."""
    if flows is None:
        return packets
    if len(flows) <= LISTED_MAX:
        return packets.where(F.col("flow").isin(*flows))
    wanted = packets.sparkSession.createDataFrame(pa.table({"flow": pa.array(sorted(flows), type=pa.int64())}))
    return packets.join(F.broadcast(wanted), on="flow", how="left_semi")
