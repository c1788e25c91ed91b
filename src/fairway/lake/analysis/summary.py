"""What a lake's tables say in a few lines, read without Spark."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pyarrow.compute as pc
import pyarrow.dataset as ds

from fairway.core.tables import PACKETS, SESSIONS, TRANSFERS, VIOLATIONS
from fairway.store.analyses import datasets
from fairway.store.lakes import Lake

WORST = 3
_OF_WORST = (
    *("session", "protocol", "point", "caller", "callee", "violations"),
    *("loss_out", "loss_in", "rtt_p50_us", "ending"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The size of the tables, and the sessions that went worst."""

    packets: dict[str, int] = field(default_factory=dict)
    """By protocol."""
    sessions: int = 0
    transfers: int = 0
    violations: int = 0
    worst: tuple[dict[str, object], ...] = ()
    """Most violations first, then most loss."""


def summary(lake: Lake) -> Summary:
    """Read the summary of a lake; a table that is not there yet counts as empty."""
    packets: Counter[str] = Counter()
    found = datasets(lake.location)
    for batch in found[PACKETS.name].to_batches(columns=["protocol"]) if PACKETS.name in found else ():
        counted = pc.value_counts(batch.column("protocol"))
        packets.update({row["values"]: row["counts"] for row in counted.to_pylist()})
    counts = {
        table.name: found[table.name].count_rows() if table.name in found else 0
        for table in (SESSIONS, TRANSFERS, VIOLATIONS)
    }
    return Summary(packets=dict(sorted(packets.items())), worst=_worst(found.get(SESSIONS.name)), **counts)


def _worst(sessions: ds.Dataset | None) -> tuple[dict[str, object], ...]:
    """Return the sessions to check first, keeping only so many at a time."""
    kept: list[dict[str, object]] = []
    for batch in sessions.to_batches(columns=list(_OF_WORST)) if sessions is not None else ():
        kept = sorted([*kept, *batch.to_pylist()], key=_badness)[:WORST]
    return tuple(kept)


def _badness(session: dict[str, object]) -> tuple[float, float, str]:
    def number(name: str) -> float:
        value = session[name]
        return float(value) if isinstance(value, int | float) else 0.0

    return -number("violations"), -number("loss_out") - number("loss_in"), str(session["session"])
