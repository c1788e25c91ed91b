"""What happened over time and how long messages took, summed for each point and protocol in one pass a table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fairway.core.tables import TIMELINE, TRANSFERS
from fairway.report.tables import LakeTables
from fairway.report.units import MICROSECONDS_PER_SECOND

BINS_MAX = 600
BUCKETS_PER_DECADE = 10
UNACKNOWLEDGED = ("unacknowledged", "refused")

Key = tuple[str, str]
"""Point and protocol."""

_BOTH_WAYS = ("bytes", "goodput", "retransmissions")


@dataclass(slots=True)
class Traffic:
    """Bytes, goodput and copies of each key in equal steps of time."""

    start_s: int = 0
    step_s: int = 1
    steps: int = 0
    by_key: dict[Key, dict[str, dict[int, int]]] = field(default_factory=dict)
    """By key, then by measure, then by step."""

    def series(self, key: Key, measure: str) -> list[float]:
        """Gives a measure per second, step by step."""
        found = self.by_key.get(key, {}).get(measure, {})
        return [found.get(step, 0) / self.step_s for step in range(self.steps)]

    def times_s(self) -> list[int]:
        """Gives the start of every step, seconds since 1970."""
        return [self.start_s + step * self.step_s for step in range(self.steps)]


@dataclass(slots=True)
class Messages:
    """How the messages of one key ended, and a histogram of their latencies."""

    outcomes: dict[str, int] = field(default_factory=dict)
    buckets: dict[int, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """All messages."""
        return sum(self.outcomes.values())

    @property
    def unacknowledged(self) -> int:
        """Messages that nobody acknowledged though somebody should have."""
        return sum(self.outcomes.get(outcome, 0) for outcome in UNACKNOWLEDGED)

    def quantile_us(self, share: float) -> float | None:
        """Gives a quantile of latency, as exact as the buckets are (a quarter)."""
        wanted = share * sum(self.buckets.values())
        for bucket in sorted(self.buckets):
            if wanted <= self.buckets[bucket]:
                return edge_us(bucket + wanted / self.buckets[bucket])
            wanted -= self.buckets[bucket]
        return None


def step_seconds(first_us: int, last_us: int) -> int:
    """Gives the step that cuts a range of time into at most `BINS_MAX`: 1, 2, 5, 10, 30 s, minutes and so on."""
    seconds = (last_us - first_us) / MICROSECONDS_PER_SECOND
    steps = (1, 2, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 21_600, 86_400, 604_800)
    return next((step for step in steps if seconds / step < BINS_MAX), int(seconds / BINS_MAX) + 1)


def traffic(tables: LakeTables, first_us: int, last_us: int) -> Traffic:
    """Sums the timeline of all sessions."""
    step = step_seconds(first_us, last_us)
    start = first_us // MICROSECONDS_PER_SECOND // step * step
    found = Traffic(start, step, last_us // MICROSECONDS_PER_SECOND // step - start // step + 1)
    columns = ["point", "protocol", "second", *(f"{name}_{way}" for name in _BOTH_WAYS for way in ("out", "in"))]
    for batch in tables.batches(TIMELINE, columns):
        seconds = batch["second"].cast(pa.int64()).to_numpy() // MICROSECONDS_PER_SECOND
        rows = batch.append_column("step", pa.array((seconds - start) // step))
        sums = [(f"{name}_{way}", "sum") for name in _BOTH_WAYS for way in ("out", "in")]
        for row in rows.group_by(["point", "protocol", "step"]).aggregate(sums).to_pylist():
            measures = found.by_key.setdefault((row["point"], row["protocol"]), {})
            for name in _BOTH_WAYS:
                steps = measures.setdefault(name, {})
                steps[row["step"]] = steps.get(row["step"], 0) + row[f"{name}_out_sum"] + row[f"{name}_in_sum"]
    return found


def messages(tables: LakeTables) -> dict[Key, Messages]:
    """Counts the outcomes and latencies of all messages."""
    found: dict[Key, Messages] = {}
    for batch in tables.batches(TRANSFERS, ["point", "protocol", "outcome", "latency_us"]):
        latency_us = pc.fill_null(batch["latency_us"].cast(pa.float64()), np.nan).to_numpy()
        bucket = np.floor(np.log10(np.maximum(latency_us, 1)) * BUCKETS_PER_DECADE)
        rows = batch.append_column("bucket", pa.array(bucket, pa.float64(), from_pandas=True).cast(pa.int64()))
        grouped = rows.group_by(["point", "protocol", "outcome", "bucket"]).aggregate([([], "count_all")])
        for row in grouped.to_pylist():
            of_key = found.setdefault((row["point"], row["protocol"]), Messages())
            _add(of_key.outcomes, row["outcome"], row["count_all"])
            if row["bucket"] is not None:
                _add(of_key.buckets, row["bucket"], row["count_all"])
    return found


def _add(counts: dict[Any, int], key: object, count: int) -> None:
    counts[key] = counts.get(key, 0) + count


def edge_us(bucket: float) -> float:
    """Gives the latency at which a bucket begins."""
    return float(10 ** (bucket / BUCKETS_PER_DECADE))
