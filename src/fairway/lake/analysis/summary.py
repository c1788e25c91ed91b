"""What a lake's tables say in a few lines, read without Spark."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.dataset as ds

from fairway.core.tables import PACKETS, SESSIONS, TRANSFERS, VIOLATIONS, Table

if TYPE_CHECKING:
    import pyarrow as pa

    from fairway.store.lakes import Lake

WORST = 3
_OF_WORST = (
    "session",
    "protocol",
    "point",
    "caller",
    "callee",
    "violations",
    "loss_out",
    "loss_in",
    "rtt_p50_us",
    "ending",
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
    """Reads the summary of a lake; a table that is not there yet counts as empty."""
    packets: Counter[str] = Counter()
    for batch in _batches(lake, PACKETS, ["protocol"]):
        counted = pc.value_counts(batch.column("protocol"))
        packets.update({row["values"]: row["counts"] for row in counted.to_pylist()})
    return Summary(
        packets=dict(sorted(packets.items())),
        sessions=_rows(lake, SESSIONS),
        transfers=_rows(lake, TRANSFERS),
        violations=_rows(lake, VIOLATIONS),
        worst=_worst(lake),
    )


def _dataset(lake: Lake, table: Table) -> ds.Dataset | None:
    folder = lake.table(table.name)
    return ds.dataset(folder, format="parquet", partitioning="hive") if folder.exists() else None


def _batches(lake: Lake, table: Table, columns: list[str]) -> list[pa.RecordBatch]:
    dataset = _dataset(lake, table)
    return dataset.to_batches(columns=columns) if dataset is not None else []


def _rows(lake: Lake, table: Table) -> int:
    dataset = _dataset(lake, table)
    return dataset.count_rows() if dataset is not None else 0


def _worst(lake: Lake) -> tuple[dict[str, object], ...]:
    """Gives the sessions to look at first, keeping only so many at a time."""
    kept: list[dict[str, object]] = []
    for batch in _batches(lake, SESSIONS, list(_OF_WORST)):
        kept = sorted([*kept, *batch.to_pylist()], key=_badness)[:WORST]
    return tuple(kept)


def _badness(session: dict[str, object]) -> tuple[float, float, str]:
    def number(name: str) -> float:
        value = session[name]
        return float(value) if isinstance(value, int | float) else 0.0

    return -number("violations"), -number("loss_out") - number("loss_in"), str(session["session"])
