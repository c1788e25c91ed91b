"""What the page shows of one session: its pictures, its timeline, its slowest messages and its broken rules."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from fairway.core.tables import TRANSFERS, VIOLATIONS
from fairway.report.drawings import ladder, packets_of, streams
from fairway.report.tables import Key, LakeTables, Row, by_session, key_of, rows_of
from fairway.report.traffic import over_time, step_us
from fairway.report.units import MICROSECONDS_PER_SECOND

MESSAGES_SHOWN = 15
VIOLATIONS_SHOWN = 60

_SUMS = (
    *("bytes_out", "bytes_in", "goodput_out", "goodput_in", "retransmissions_out", "retransmissions_in"),
    *("rtt_samples", "rtt_weight"),
)
_MESSAGE = (
    *("from_caller", "message", "kind", "size_bytes", "parts", "first_sent", "attempts", "copies", "latency_us"),
    "outcome",
)
_VIOLATION = ("rule", "severity", "file", "frame", "at", "found", "expected")


def details(tables: LakeTables, sessions: Sequence[Row]) -> dict[Key, dict[str, object]]:
    """Return the details of some rows of the sessions table; one pass a table for all of them."""
    kept = packets_of(tables, sessions)
    over_time = _timelines(tables, sessions)
    messages = _messages(tables, sessions)
    broken = _violations(tables, sessions)
    found: dict[Key, dict[str, object]] = {}
    for row in sessions:
        key = key_of(row)
        protocol, start_ns = row["protocol"], row["first"] * 1_000
        found[key] = {
            "streams": streams(protocol, kept[key].rows(), start_ns),
            "stride": kept[key].stride,
            "ladder": ladder(protocol, kept[key].ladder(), start_ns),
            "timeline": over_time[key],
            "messages": messages[key],
            "violations": broken[key],
        }
    return found


def _timelines(tables: LakeTables, sessions: Sequence[Row]) -> dict[Key, dict[str, object]]:
    """Return bytes and round trips over time, in steps that leave a few hundred of them."""
    steps = {key_of(row): step_us(tables, row["first"], row["last"]) for row in sessions}
    sums: dict[Key, dict[int, Row]] = {key: {} for key in steps}
    longer = _longer_ways(tables, [row for row in sessions if steps[key_of(row)] < MICROSECONDS_PER_SECOND])
    for step in set(steps.values()):
        mine = [row for row in sessions if steps[key_of(row)] == step]
        for batch in over_time(tables, step, mine):
            if step < MICROSECONDS_PER_SECOND:
                batch = _of_longer(batch, longer)  # noqa: PLW2901
            weight = pc.multiply(pc.fill_null(batch["rtt_p50_us"], 0), batch["rtt_samples"])
            start = batch["at_us"].to_numpy() // step * step
            rows = batch.append_column("rtt_weight", weight).append_column("step", pa.array(start))
            totals = [*((name, "sum") for name in _SUMS), ("rtt_p99_us", "max")]
            for row in rows.group_by(["session", "point", "step"]).aggregate(totals).to_pylist():
                if steps.get(key_of(row)) == step:
                    _merge(sums[key_of(row)], row)
    return {key_of(row): _as_columns(sums[key_of(row)], steps[key_of(row)], row["first"]) for row in sessions}


def _longer_ways(tables: LakeTables, sessions: Sequence[Row]) -> dict[Key, bool]:
    """Return of sessions that are shown packet by packet which way's round trips count: the longer ones."""
    trips: dict[tuple[Key, bool], list[int]] = {}
    for batch in over_time(tables, 1, sessions):
        sums = [("rtt_p50_us", "sum"), ("rtt_samples", "sum")]
        for row in batch.group_by(["session", "point", "from_caller"]).aggregate(sums).to_pylist():
            found = trips.setdefault((key_of(row), row["from_caller"]), [0, 0])
            found[0] += row["rtt_p50_us_sum"] or 0
            found[1] += row["rtt_samples_sum"]
    means = {way: total / count for way, (total, count) in trips.items() if count}
    # What travels from the caller is acknowledged by what comes back.
    return {key: means.get((key, True), -1) > means.get((key, False), -1) for key, _ in trips}


def _of_longer(packets: pa.Table, longer: dict[Key, bool]) -> pa.Table:
    """Leave out the round trips of the other way."""
    keys = zip(packets["session"].to_pylist(), packets["point"].to_pylist(), strict=True)
    wanted = pc.equal(packets["from_caller"], pa.array([longer.get(key, False) for key in keys], pa.bool_()))
    for name, nothing in (("rtt_samples", 0), ("rtt_p50_us", None), ("rtt_p99_us", None)):
        left = pc.if_else(wanted, packets[name], pa.scalar(nothing, pa.int64()))
        packets = packets.set_column(packets.column_names.index(name), name, left)
    return packets


def _merge(steps: dict[int, Row], row: Row) -> None:
    before = steps.get(row["step"])
    if before is not None:
        for name in _SUMS:
            row[f"{name}_sum"] += before[f"{name}_sum"]
        longest = [value for value in (before["rtt_p99_us_max"], row["rtt_p99_us_max"]) if isinstance(value, int)]
        row["rtt_p99_us_max"] = max(longest, default=None)
    steps[row["step"]] = row


def _as_columns(steps: dict[int, Row], width_us: int, first_us: int) -> dict[str, object]:
    """Return columns over seconds since the session's start; rates per second."""
    order = sorted(steps)
    width_s = width_us / MICROSECONDS_PER_SECOND
    times = [max(0, step - first_us) / MICROSECONDS_PER_SECOND for step in order]
    found: dict[str, object] = {"step": width_s, "t": times}
    for name in _SUMS[:-2]:
        found[name] = [round(steps[step][f"{name}_sum"] / width_s, 3) for step in order]
    found["rtt_p50_us"] = [_mean_rtt(steps[step]) for step in order]
    found["rtt_p99_us"] = [steps[step]["rtt_p99_us_max"] for step in order]
    return found


def _mean_rtt(row: Row) -> int | None:
    samples = row["rtt_samples_sum"]
    return round(row["rtt_weight_sum"] / samples) if samples else None


def _messages(tables: LakeTables, sessions: Sequence[Row]) -> dict[Key, dict[str, object]]:
    """Return how a session's messages ended, and the worst of them: unacknowledged, then slowest."""
    worst: dict[Key, pa.Table] = {}
    outcomes: dict[Key, dict[str, int]] = {key_of(row): {} for row in sessions}
    for batch in tables.batches(TRANSFERS, ("session", "point", *_MESSAGE), sessions):
        counted = batch.group_by(["session", "point", "outcome"]).aggregate([([], "count_all")])
        for row in counted.to_pylist():
            if key_of(row) in outcomes:
                of_key = outcomes[key_of(row)]
                of_key[row["outcome"]] = of_key.get(row["outcome"], 0) + row["count_all"]
        for key, mine in by_session(batch, outcomes):
            together = pa.concat_tables([worst[key], mine]) if key in worst else mine
            worst[key] = _slowest(together)
    return {
        key: {"outcomes": ended, "worst": _plain(worst[key], _MESSAGE) if key in worst else []}
        for key, ended in outcomes.items()
    }


def _slowest(messages: pa.Table) -> pa.Table:
    failed = pc.is_in(messages["outcome"], pa.array(["unacknowledged", "refused"]))
    rank = pc.if_else(failed, 1 << 62, pc.fill_null(messages["latency_us"], -1))
    ranked = messages.append_column("rank", rank)
    keys = [("rank", "descending"), ("message", "ascending")]
    return ranked.sort_by(keys).slice(0, MESSAGES_SHOWN).drop_columns(["rank"])


def _violations(tables: LakeTables, sessions: Sequence[Row]) -> dict[Key, list[list[object]]]:
    """Return the first broken rules of each session, errors before warnings."""
    first: dict[Key, pa.Table] = {}
    known = [key_of(row) for row in sessions]
    for batch in tables.batches(VIOLATIONS, ("session", "point", *_VIOLATION), sessions):
        for key, mine in by_session(batch, known):
            together = pa.concat_tables([first[key], mine]) if key in first else mine
            keys = [("severity", "ascending"), ("at", "ascending"), ("frame", "ascending"), ("rule", "ascending")]
            first[key] = together.sort_by(keys).slice(0, VIOLATIONS_SHOWN)
    return {key: _plain(first[key], _VIOLATION) if key in first else [] for key in known}


def _plain(rows: pa.Table, columns: Sequence[str]) -> list[list[object]]:
    """Return rows as lists."""
    return [list(row.values()) for row in rows_of(rows, columns)]
