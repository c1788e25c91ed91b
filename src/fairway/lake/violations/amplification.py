"""The three-times limit of docs/wire/common.md, as far as a capture can show it broken.

A side that only ever answered, to an address that only ever called, may send three times what it got. The network may
double what it got behind the point, and what it sends before the point: only more than twelve times proves anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairway.core.tables import PROTOCOLS
from fairway.lake.analysis.sessions import grouped
from fairway.lake.violations.rule import FORWARD, FRAME, Check, Rule, Seen, beside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LIMIT = 12
"""Three times, and what a network doubles on both ways."""

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
    judged = rows.selectExpr(*FRAME, f"{FORWARD} AS forward")
    joined = beside(judged, suspects, ["point", "flow", "forward"], "inner")
    return joined.where("at_ns = last_at").selectExpr(*FRAME, "sent", "got")


def _side(ours: str) -> str:
    theirs = f"NOT ({ours})"
    return f"""named_struct('forward', {ours == "forward"},
        'limited', bool_or(coalesce({theirs} AND ({_ASKS}), false))
            AND NOT bool_or(coalesce({theirs} AND {_PROVES}, false))
            AND NOT bool_or(coalesce({ours} AND NOT ({_ANSWERS}), false)),
        'sent', sum(IF({ours}, bytes, 0)), 'got', sum(IF({theirs}, bytes, 0)),
        'last_at', max(IF({ours}, last_at, NULL)))"""


_RULES = (
    Rule(
        clause="ALL-6.1",
        where="true",
        holds=f"sent <= {LIMIT} * got",
        found="concat(sent, ' bytes to an address from which ', got, ' came')",
        expected="at most three times the bytes that came from an address that has proved nothing",
        reported=f"more than {LIMIT} times",
        needs_start=True,
    ),
)

CHECKS = (Check(context=_limited, rules=_RULES),)
