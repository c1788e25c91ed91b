"""The table of a sweep, averaged over seeds: what the lab's page is drawn from.

A point is what all runs say that differ in their seed only: the mean, and the interval that holds the true mean with
95 % confidence if means of so many runs are normally distributed (Student's t; none from a single run).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

import pyarrow.dataset as ds

from fairway.core.errors import BadOption
from fairway.core.tables import RUNS

METRICS = (
    *("latency_p50_us", "latency_p99_us", "acknowledgement_p99_us", "goodput_bytes_per_s", "datagrams_per_message"),
    *("bytes_per_message", "failed", "retransmissions", "duplicates", "fairness", "delivered", "datagrams"),
)
LINK_AND_LOAD = (
    *("burst_length", "jitter_ms", "bandwidth", "queue_bytes", "reorder", "duplicate", "corrupt"),
    *("messages", "size_bytes", "interval_ms", "flows"),
)
"""All of a run's surroundings but loss and delay, over which pictures are drawn."""

_KEYS = ("protocol", "variant", "controller", "window", "loss", "delay_ms", *LINK_AND_LOAD)
_STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131),
    *(2.12, 2.11, 2.101, 2.093, 2.086, 2.08, 2.074, 2.069, 2.064, 2.06, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""The 97.5th percentile of Student's t with 1, 2, ... degrees of freedom."""
_NORMAL = 1.96


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and how far the true one may be from it."""

    mean: float
    margin: float | None

    @property
    def low(self) -> float | None:
        return None if self.margin is None else max(0.0, self.mean - self.margin)

    @property
    def high(self) -> float | None:
        return None if self.margin is None else self.mean + self.margin

    def clear_of(self, other: Estimate) -> bool:
        """Return whether the two intervals do not touch; never of single runs."""
        if self.margin is None or other.margin is None:
            return False
        return abs(self.mean - other.mean) > self.margin + other.margin


Situation = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    protocol: str
    variant: str
    controller: str
    window: int
    loss: float
    delay_ms: float
    surroundings: Mapping[str, float]
    runs: int
    metrics: Mapping[str, Estimate | None]

    @property
    def situation(self) -> Situation:
        """What must be equal for points to stand in one picture."""
        return tuple(self.surroundings.items())

    def __getitem__(self, name: str) -> Estimate | None:
        return self.metrics[name]

    @property
    def sent(self) -> float:
        return self.surroundings["messages"] * self.surroundings["flows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    points: Sequence[Point]
    runs: int
    broken: int
    """Runs in which a promise was broken."""
    datagrams: int

    def situations(self) -> list[Situation]:
        return list(dict.fromkeys(point.situation for point in self.points))

    def of(self, situation: Situation) -> list[Point]:
        return [point for point in self.points if point.situation == situation]


def read_sweep(folder: Path) -> Sweep:
    """Read and average a sweep's table; raise `BadOption` if there is none."""
    runs = folder / "runs"
    found = ds.dataset(runs, format="parquet") if runs.is_dir() else None
    if found is None or not found.files:
        raise BadOption(f"{folder} holds no finished runs; `fairway lab run GRID.toml --out {folder}` makes them")
    lacking = [name for name in RUNS.names if name not in found.schema.names]
    if lacking:
        raise BadOption(f"{runs} has no column {lacking[0]}: another version of Fairway wrote it; run the sweep again")
    table = found.to_table(columns=["cell", "passed", *dict.fromkeys((*_KEYS, *METRICS))])
    wanted: list[tuple[str, str]] = [(name, how) for name in METRICS for how in ("mean", "stddev", "count")]
    grouped = table.group_by(list(_KEYS)).aggregate([*wanted, ("cell", "min"), ("cell", "count")])
    rows = sorted(grouped.to_pylist(), key=lambda row: int(row["cell_min"]))
    passed = table.column("passed").to_pylist()
    return Sweep(
        points=[_point(row) for row in rows],
        runs=table.num_rows,
        broken=passed.count(False),
        datagrams=sum(table.column("datagrams").to_pylist()),
    )


def _point(row: Mapping[str, object]) -> Point:
    return Point(
        protocol=str(row["protocol"]),
        variant=str(row["variant"]),
        controller=str(row["controller"]),
        window=_number(row["window"]).__trunc__(),
        loss=_number(row["loss"]),
        delay_ms=_number(row["delay_ms"]),
        surroundings={name: _number(row[name]) for name in LINK_AND_LOAD},
        runs=_number(row["cell_count"]).__trunc__(),
        metrics={name: _estimate(row, name) for name in METRICS},
    )


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)


def _estimate(row: Mapping[str, object], name: str) -> Estimate | None:
    mean, count = row[f"{name}_mean"], int(_number(row[f"{name}_count"]))
    if mean is None:
        return None
    if count < 2:
        return Estimate(_number(mean), None)
    # Arrow divides by n; a sample's variance has n - 1.
    deviation = _number(row[f"{name}_stddev"]) * sqrt(count / (count - 1))
    student = _STUDENT[count - 2] if count - 2 < len(_STUDENT) else _NORMAL
    return Estimate(_number(mean), student * deviation / sqrt(count))


def axis(points: Iterable[Point], name: str) -> list[float]:
    """Return the values of loss or delay that occur, in order."""
    return sorted({float(getattr(point, name)) for point in points})


def variants(points: Iterable[Point]) -> list[str]:
    """Return the variants that occur, in the order of the grid."""
    return list(dict.fromkeys(point.variant for point in points))
