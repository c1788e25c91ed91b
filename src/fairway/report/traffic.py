"""What happened over time and how long messages took, summed for each point and protocol in one pass a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairway.core.tables import PACKETS, TIMELINE, TRANSFERS
from fairway.report.tables import LakeTables, Row
from fairway.report.units import MICROSECONDS_PER_SECOND

BINS_MAX = 600
BUCKETS_PER_DECADE = 10
UNACKNOWLEDGED = ("unacknowledged", "refused")

Key = tuple[str, str]
"""Point and protocol."""

_BOTH_WAYS = ("bytes", "goodput", "retransmissions")


MEASURES = tuple(f"{name}_{way}" for name in _BOTH_WAYS for way in ("out", "in"))

FINE_US = 20_000_000
"""What lasts less is cut into steps shorter than the seconds of `timeline`, and summed from `packets`."""
STEPS_US = (
    *(lead * 10**zeros for zeros in range(1, 6) for lead in (1, 2, 5)),
    *(seconds * MICROSECONDS_PER_SECOND for seconds in (1, 2, 5, 10, 30, 60, 300, 600, 3_600, 21_600, 86_400, 604_800)),
)


@dataclass(slots=True)
class Traffic:
    """Bytes, goodput and retransmissions of each key in equal steps of time."""

    start_us: int = 0
    step_us: int = MICROSECONDS_PER_SECOND
    steps: int = 0
    by_key: dict[Key, dict[str, dict[int, int]]] = field(default_factory=dict)
    """By key, then by measure, then by step."""

    def series(self, key: Key, measure: str) -> list[float]:
        """Return a measure per second, step by step."""
        found = self.by_key.get(key, {}).get(measure, {})
        return [found.get(step, 0) * MICROSECONDS_PER_SECOND / self.step_us for step in range(self.steps)]

    def times_s(self, since_us: int = 0) -> list[float]:
        """Return the start of every step, in seconds since an instant, or since 1970."""
        starts = (self.start_us - since_us + step * self.step_us for step in range(self.steps))
        return [start / MICROSECONDS_PER_SECOND for start in starts]


@dataclass(slots=True)
class Messages:
    """How the messages of one key ended, and a histogram of their latencies."""

    outcomes: Counter[str] = field(default_factory=Counter)
    buckets: Counter[int] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        return self.outcomes.total()

    @property
    def unacknowledged(self) -> int:
        """Messages that nobody acknowledged though somebody should have."""
        return sum(self.outcomes[outcome] for outcome in UNACKNOWLEDGED)

    def quantile_us(self, share: float) -> float | None:
        """Return a quantile of latency, as exact as the buckets are (a quarter)."""
        wanted = share * self.buckets.total()
        for bucket in sorted(self.buckets):
            if wanted <= self.buckets[bucket]:
                return edge_us(bucket + wanted / self.buckets[bucket])
            wanted -= self.buckets[bucket]
        return None


def step_us(tables: LakeTables, first_us: int, last_us: int) -> int:
    """Return the step that cuts a range of time into at most `BINS_MAX`: 10 µs to 500 ms, then seconds and more."""
    span_us = last_us - first_us
    fine = span_us < FINE_US and PACKETS.name not in tables.missing()
    steps = (step for step in STEPS_US if fine or step >= MICROSECONDS_PER_SECOND)
    return next((step for step in steps if span_us / step < BINS_MAX), span_us // BINS_MAX + 1)


def over_time(tables: LakeTables, step: int, sessions: Sequence[Row] | None = None) -> Iterator[pa.Table]:
    """Return what has been measured at `at_us`: seconds of sessions, or single packets for a step that is shorter."""
    if step >= MICROSECONDS_PER_SECOND:
        rtt = ("rtt_samples", "rtt_p50_us", "rtt_p99_us")
        for batch in tables.batches(TIMELINE, ["session", "point", "protocol", "second", *MEASURES, *rtt], sessions):
            yield batch.append_column("at_us", batch["second"].cast(pa.int64()))
        return
    for batch in tables.batches(PACKETS, _PACKET, sessions):
        yield _measured(batch.filter(pc.and_(pc.is_valid(batch["session"]), pc.is_valid(batch["at_ns"]))))


_PACKET = (
    *("session", "point", "protocol", "at_ns", "from_caller", "kind", "message", "retransmission", "payload_bytes"),
    *("body_bytes", "udpc_ack", "acknowledged_sent_ns"),
)


def _measured(packets: pa.Table) -> pa.Table:
    """Return what each packet adds, as `timeline` adds it up (see `lake/analysis/sessions.py`)."""

    def numbers(name: str) -> NDArray[np.int64]:
        found: NDArray[np.int64] = pc.fill_null(packets[name].cast(pa.int64()), 0).to_numpy()
        return found

    def is_(mask: pa.ChunkedArray) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = pc.fill_null(mask, False).to_numpy()
        return found

    out, again = is_(packets["from_caller"]), numbers("retransmission") > 0
    ends_handshake = is_(pc.equal(packets["kind"], "response")) & (numbers("udpc_ack") == 1)
    carries = is_(pc.and_(pc.is_valid(packets["retransmission"]), pc.is_valid(packets["message"])))
    carries &= ~(ends_handshake & (numbers("body_bytes") == 0))
    each = {
        "bytes": numbers("payload_bytes"),
        "goodput": np.where(carries & ~again, numbers("body_bytes"), 0),
        "retransmissions": again.astype(np.int64),
    }
    ways = {
        f"{name}_{way}": np.where(mine, each[name], 0) for name in each for way, mine in (("out", out), ("in", ~out))
    }
    waits = is_(pc.is_in(packets["kind"], value_set=pa.array(["response", "answering_request"])))
    timed = is_(pc.is_valid(packets["acknowledged_sent_ns"])) & ~waits
    rtt_us = pa.array(numbers("at_ns") // 1_000 - numbers("acknowledged_sent_ns") // 1_000, mask=~timed)
    kept = {name: packets[name] for name in ("session", "point", "protocol", "from_caller")}
    rtt = {"rtt_samples": timed.astype(np.int64), "rtt_p50_us": rtt_us, "rtt_p99_us": rtt_us}
    return pa.table(kept | {"at_us": numbers("at_ns") // 1_000} | ways | rtt)


def traffic(tables: LakeTables, first_us: int, last_us: int) -> Traffic:
    """Sum up what all sessions did over time."""
    step = step_us(tables, first_us, last_us)
    start = first_us // step * step
    found = Traffic(start, step, last_us // step - start // step + 1)
    for batch in over_time(tables, step):
        rows = batch.append_column("step", pa.array((batch["at_us"].to_numpy() - start) // step))
        sums = [(name, "sum") for name in MEASURES]
        for row in rows.group_by(["point", "protocol", "step"]).aggregate(sums).to_pylist():
            measures = found.by_key.setdefault((row["point"], row["protocol"]), {})
            for name in _BOTH_WAYS:
                steps = measures.setdefault(name, {})
                steps[row["step"]] = steps.get(row["step"], 0) + row[f"{name}_out_sum"] + row[f"{name}_in_sum"]
    return found


def messages(tables: LakeTables) -> dict[Key, Messages]:
    """Count the outcomes and latencies of all messages."""
    found: dict[Key, Messages] = {}
    for batch in tables.batches(TRANSFERS, ["point", "protocol", "outcome", "latency_us"]):
        latency_us = pc.fill_null(batch["latency_us"].cast(pa.float64()), np.nan).to_numpy()
        bucket = np.floor(np.log10(np.maximum(latency_us, 1)) * BUCKETS_PER_DECADE)
        rows = batch.append_column("bucket", pa.array(bucket, pa.float64(), from_pandas=True).cast(pa.int64()))
        grouped = rows.group_by(["point", "protocol", "outcome", "bucket"]).aggregate([([], "count_all")])
        for row in grouped.to_pylist():
            of_key = found.setdefault((row["point"], row["protocol"]), Messages())
            of_key.outcomes[row["outcome"]] += row["count_all"]
            if row["bucket"] is not None:
                of_key.buckets[row["bucket"]] += row["count_all"]
    return found


def edge_us(bucket: float) -> float:
    return float(10 ** (bucket / BUCKETS_PER_DECADE))
