"""One pass over all sessions: totals for each point and protocol, the worst sessions; and one over all broken rules.

How bad a session is, is one number, its *severity score*, so that a list begins with what needs a look first:

    100 · (broken rules, ten or more count as 1, one as 0.55)
    + 100 · (larger of both estimated losses) + 50 · (share of retransmissions) + 25 · (share of duplicates), damped
    + 40  when it was refused or never answered

Shares of a handful of packets say little: they are damped by packets / (packets + 20).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairway.core.tables import SESSIONS, VIOLATIONS
from fairway.report.tables import LakeTables, Row

REPEATS_TOO_MUCH = 0.05
"""From this share of retransmissions on a session needs attention."""
LOSES_TOO_MUCH = 0.02
"""The same, of estimated loss in either direction."""
BAD_ENDS = ("refused", "unanswered")
DAMPING_PACKETS = 20
POINTS_MAX = 8
"""Points that get an overview of their own, those with the most packets first."""

_SUMS = (
    *("packets_out", "packets_in", "bytes_out", "bytes_in", "transfers_out", "transfers_in"),
    *("retransmissions_out", "retransmissions_in", "duplicates", "violations", "rtt_samples"),
)
_MADE = ("sessions", "breaking", "repeating", "losing", "badly_ended", "in_need", "lost", "judged", "rtt_weight")


@dataclass(slots=True)
class Totals:
    """Sums over the sessions of one protocol at one point."""

    sums: dict[str, float] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        return self.sums.get(name, 0)

    def add(self, row: dict[str, float | None]) -> None:
        for name, value in row.items():
            self.sums[name] = self.sums.get(name, 0) + (value or 0)

    @property
    def packets(self) -> float:
        return self["packets_out"] + self["packets_in"]

    @property
    def bytes_(self) -> float:
        return self["bytes_out"] + self["bytes_in"]

    @property
    def retransmissions(self) -> float:
        return self["retransmissions_out"] + self["retransmissions_in"]

    @property
    def loss(self) -> float | None:
        """Estimated share of packets lost, weighted by packets; None where nothing could be estimated."""
        return self["lost"] / self["judged"] if self["judged"] else None

    @property
    def rtt_us(self) -> float | None:
        """Mean of the sessions' median round trips, weighted by samples."""
        return self["rtt_weight"] / self["rtt_samples"] if self["rtt_samples"] else None


@dataclass(slots=True)
class Survey:
    """What one pass over the sessions finds."""

    worst: pa.Table
    """The worst sessions, worst first, with all their columns and `severity_score`."""
    totals: dict[tuple[str, str], Totals] = field(default_factory=dict)
    """By point and protocol."""
    first_us: int | None = None
    last_us: int | None = None
    wanted: pa.Table | None = None
    """The sessions that were asked for by their key."""

    @property
    def sessions(self) -> int:
        """How many there are, those of all points together."""
        return int(sum(total["sessions"] for total in self.totals.values()))

    def points(self) -> list[str]:
        """Return the points, the one that saw most first."""
        packets: dict[str, float] = {}
        for (point, _), total in self.totals.items():
            packets[point] = packets.get(point, 0) + total.packets
        return sorted(packets, key=lambda point: (-packets[point], point))

    def of_point(self, point: str) -> dict[str, Totals]:
        return {protocol: total for (at, protocol), total in sorted(self.totals.items()) if at == point}


def survey(tables: LakeTables, listed: int, wanted: tuple[str, ...] = ()) -> Survey:
    """Go over all sessions once, keeping sums and the `listed` worst."""
    schema = pa.schema([])
    found = Survey(worst=schema.empty_table())
    kept: pa.Table | None = None
    asked: list[pa.Table] = []
    for batch in tables.batches(SESSIONS, SESSIONS.names):
        judged = batch.append_column("severity_score", pa.array(severity_scores(batch)))
        _add_totals(found, judged)
        _add_range(found, judged)
        kept = _worst(judged if kept is None else pa.concat_tables([kept, judged]), listed)
        if wanted:
            asked.append(judged.filter(pc.is_in(judged["session"], pa.array(wanted, pa.string()))))
    if kept is not None:
        found.worst = kept
    if asked:
        found.wanted = pa.concat_tables(asked)
    return found


def severity_scores(sessions: pa.Table) -> NDArray[np.float64]:
    packets = _numbers(sessions, "packets_out") + _numbers(sessions, "packets_in")
    broken = np.minimum(_numbers(sessions, "violations"), 10)
    shares = 100 * np.maximum(_numbers(sessions, "loss_out"), _numbers(sessions, "loss_in"))
    shares += 50 * _numbers(sessions, "retransmission_ratio") + 25 * _numbers(sessions, "duplicate_ratio")
    ended = pc.is_in(sessions["ending"], pa.array(BAD_ENDS)).to_numpy()
    rules = np.where(broken > 0, 50 + 5 * broken, 0.0)
    points: NDArray[np.float64] = rules + shares * packets / (packets + DAMPING_PACKETS) + 40 * ended
    return points


def _numbers(sessions: pa.Table, name: str) -> NDArray[np.float64]:
    filled: NDArray[np.float64] = pc.fill_null(sessions[name].cast(pa.float64()), 0).to_numpy()
    return filled


def _worst(sessions: pa.Table, listed: int) -> pa.Table:
    """The key breaks ties, so that the same tables give the same page."""
    keys = [("severity_score", "descending"), ("session", "ascending"), ("point", "ascending")]
    return sessions.sort_by(keys).slice(0, listed)


def _add_totals(found: Survey, sessions: pa.Table) -> None:
    rows = _with_made(sessions)
    sums = [(name, "sum") for name in (*_SUMS, *_MADE)]
    for row in rows.group_by(["point", "protocol"]).aggregate(sums).to_pylist():
        total = found.totals.setdefault((row["point"], row["protocol"]), Totals())
        total.add({name: row[f"{name}_sum"] for name in (*_SUMS, *_MADE)})


def _with_made(sessions: pa.Table) -> pa.Table:
    """Add the columns that are summed but are not in the table."""
    breaking = _numbers(sessions, "violations") > 0
    repeating = _numbers(sessions, "retransmission_ratio") >= REPEATS_TOO_MUCH
    losing = np.maximum(_numbers(sessions, "loss_out"), _numbers(sessions, "loss_in")) >= LOSES_TOO_MUCH
    badly_ended = pc.is_in(sessions["ending"], pa.array(BAD_ENDS)).to_numpy()
    lost, judged = np.zeros(len(sessions)), np.zeros(len(sessions))
    for way in ("out", "in"):
        packets = _numbers(sessions, f"packets_{way}")
        lost += packets * _numbers(sessions, f"loss_{way}")
        judged += packets * pc.is_valid(sessions[f"loss_{way}"]).to_numpy()
    made = {
        "sessions": np.ones(len(sessions)),
        "breaking": breaking.astype(np.float64),
        "repeating": repeating.astype(np.float64),
        "losing": losing.astype(np.float64),
        "badly_ended": badly_ended.astype(np.float64),
        "in_need": (breaking | repeating | losing | badly_ended).astype(np.float64),
        "lost": lost,
        "judged": judged,
        "rtt_weight": _numbers(sessions, "rtt_p50_us") * _numbers(sessions, "rtt_samples"),
    }
    for name, values in made.items():
        sessions = sessions.append_column(name, pa.array(values))
    return sessions


def _add_range(found: Survey, sessions: pa.Table) -> None:
    first = pc.min(sessions["first"]).cast(pa.int64()).as_py()
    last = pc.max(sessions["last"]).cast(pa.int64()).as_py()
    found.first_us = first if found.first_us is None else min(first, found.first_us)
    found.last_us = last if found.last_us is None else max(last, found.last_us)


EXAMPLES_MAX = 5
"""Of each rule at each point."""

_RULE = ("rule", "severity", "protocol", "point")
_EXAMPLE = ("session", "file", "frame", "found", "expected")


@dataclass(slots=True)
class Broken:
    """A rule that was broken at a point: how often, and a few frames to look at."""

    rule: str
    severity: str
    protocol: str
    point: str
    count: int = 0
    examples: list[Row] = field(default_factory=list)


def broken_rules(tables: LakeTables) -> list[Broken]:
    """Count all breaches by rule; errors before warnings, the most frequent first."""
    found: dict[tuple[str, ...], Broken] = {}
    for batch in tables.batches(VIOLATIONS, (*_RULE, *_EXAMPLE)):
        for row in batch.group_by(list(_RULE)).aggregate([([], "count_all")]).to_pylist():
            key = tuple(row[name] for name in _RULE)
            found.setdefault(key, Broken(*key)).count += row["count_all"]
        _add_examples(found.values(), batch)
    return sorted(found.values(), key=lambda rule: (rule.severity != "error", -rule.count, rule.rule, rule.point))


def _add_examples(rules: Iterable[Broken], batch: pa.Table) -> None:
    """Look row by row only while some rule has too few examples."""
    lacking = {(rule.rule, rule.point): rule for rule in rules if len(rule.examples) < EXAMPLES_MAX}
    names = zip(batch["rule"].to_pylist(), batch["point"].to_pylist(), strict=True) if lacking else ()
    for number, key in enumerate(names):
        rule = lacking.get(key)
        if rule is not None and len(rule.examples) < EXAMPLES_MAX:
            rule.examples += batch.slice(number, 1).select(_EXAMPLE).to_pylist()
