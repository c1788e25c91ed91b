"""Broken rules: how often each, and a few places to look at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from fairway.core.tables import VIOLATIONS
from fairway.report.tables import LakeTables

PLACES_MAX = 5
"""Of each rule at each point."""

_COLUMNS = ("rule", "severity", "protocol", "session", "point", "file", "frame", "at", "found", "expected")


@dataclass(frozen=True, slots=True)
class Place:
    """One breach: the frame to open, and what is wrong there."""

    file: str
    frame: int
    at_us: int
    session: str | None
    found: str
    expected: str


@dataclass(slots=True)
class Broken:
    rule: str
    severity: str
    protocol: str
    point: str
    count: int = 0
    places: list[Place] = field(default_factory=list)


def broken_rules(tables: LakeTables) -> list[Broken]:
    """Counts all breaches by rule; errors before warnings, the most frequent first."""
    found: dict[tuple[str, ...], Broken] = {}
    for batch in tables.batches(VIOLATIONS, _COLUMNS):
        grouped = batch.group_by(["rule", "severity", "protocol", "point"]).aggregate([([], "count_all")])
        for row in grouped.to_pylist():
            key = (row["rule"], row["severity"], row["protocol"], row["point"])
            found.setdefault(key, Broken(*key)).count += row["count_all"]
        _add_places(found.values(), batch)
    return sorted(found.values(), key=lambda rule: (rule.severity != "error", -rule.count, rule.rule, rule.point))


def _add_places(rules: Iterable[Broken], batch: pa.Table) -> None:
    """Looks row by row only while some rule has too few places."""
    lacking = {(rule.rule, rule.point): rule for rule in rules if len(rule.places) < PLACES_MAX}
    names = zip(batch["rule"].to_pylist(), batch["point"].to_pylist(), strict=True) if lacking else ()
    for number, key in enumerate(names):
        rule = lacking.get(key)
        if rule is not None and len(rule.places) < PLACES_MAX:
            rule.places += places(batch.slice(number, 1))


def places(violations: pa.Table) -> list[Place]:
    columns = [violations[name] for name in ("file", "frame", "at", "session", "found", "expected")]
    columns[2] = columns[2].cast(pa.int64())
    return [Place(*row) for row in zip(*(column.to_pylist() for column in columns), strict=True)]
