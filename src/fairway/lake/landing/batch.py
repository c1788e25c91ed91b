"""One micro-batch: from Spark's frame to commits in the tables.

Every table knows how much of each gateway it holds, because each commit says so. A batch is committed table by table;
each takes the rows at or above its own position. So dying between two commits, and landing the same messages again in
whatever batches, ends in the same rows.

What a typed table rejects is committed before what it takes: where `rejected` is ahead of the table, it is ahead by
what a batch that died has rejected already, and where it is behind, nothing was rejected in between.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fairway.core.errors import FairwayError
from fairway.core.layout import progress
from fairway.core.tables import MESSAGES
from fairway.lake import sink
from fairway.lake.landing import typed
from fairway.lake.landing.segments import Positions
from fairway.store import tending
from fairway.store.delta import Advances, Delta
from fairway.store.tending import Compacted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


class StreamEnded(FairwayError):
    """The stream was asked to end before the batch began."""


@dataclass(frozen=True, slots=True)
class Landed:
    """What became of a batch; `version` is that of `messages`."""

    version: int
    messages: int
    rejected: int
    files: int
    seconds: float


class Filled:
    """A table that the stream fills: how much of each gateway it holds, as this stream has left it."""

    def __init__(self, table: Delta, owner: str | None = None) -> None:
        """`owner` is the typed table whose positions are meant, in a table that several fill."""
        self.table = table
        self._owner = owner
        self._snapshot = table.open()
        self._positions: dict[str, int] = {}

    def position(self, gateway: str) -> int:
        """Return the first offset of a gateway that the table does not hold."""
        if gateway not in self._positions:
            self._positions[gateway] = self.table.position(self._snapshot, progress(gateway, self._owner))
        return self._positions[gateway]

    def advances(self, ends: Positions) -> Advances:
        """Return by application what the table lacks up to these ends."""
        lacking = {gateway: (self.position(gateway), end) for gateway, end in ends.items()}
        return {progress(name, self._owner): (own, end) for name, (own, end) in lacking.items() if own < end}

    def reached(self, ends: Positions, written: sink.Written) -> Compacted | None:
        """Record what a commit has reached, and do the housekeeping that it makes due."""
        self._positions |= {gateway: max(self.position(gateway), end) for gateway, end in ends.items()}
        return tending.tend(self.table, written.version)


@dataclass(frozen=True)
class TypedTable:
    """A typed table that the stream fills."""

    spec: typed.TypedSpec
    schema: StructType
    fitting: Filled
    rejected: Filled

    def ends(self, gateway: str) -> int:
        """Return how far `rejected` is for this table, at the least."""
        return max(self.rejected.position(gateway), self.fitting.position(gateway))


class Landing:
    """Lands batch after batch; Spark calls it from a thread of its own."""

    def __init__(
        self,
        messages: Filled,
        tables: Sequence[TypedTable],
        planned: Path,
        start: Positions,
        report: Callable[[Landed | Compacted], None],
    ) -> None:
        """`planned` is the folder in which Spark notes what a batch holds; `start` is where the first begins."""
        self.failure: Exception | None = None
        self.batches = 0
        """How many have landed."""
        self._messages = messages
        self._tables = tables
        self._planned = planned
        self.start = start
        self._report = report
        self._running = threading.Lock()
        self._ended = False

    def __call__(self, frame: DataFrame, batch: int) -> None:
        with self._running:
            if self._ended:
                raise StreamEnded("The stream is ending.")
            try:
                self._land(frame, batch)
                self.batches += 1
            except Exception as error:
                self.failure = error
                raise

    @property
    def busy(self) -> bool:
        """Whether a batch is landing now."""
        return self._running.locked()

    def end(self, timeout_s: float) -> None:
        """Wait for the batch that runs, and let no other begin."""
        self._ended = True
        if self._running.acquire(timeout=timeout_s):
            self._running.release()

    def landed(self, gateway: str) -> int:
        """Return the first offset of a gateway that some table does not hold."""
        return min(filled.position(gateway) for filled in (self._messages, *(one.fitting for one in self._tables)))

    def _land(self, frame: DataFrame, batch: int) -> None:
        began_s = time.monotonic()
        ends = self._ends(batch)
        if not ends:  # Spark begins every query with a batch, if need be an empty one
            return
        batch_rows = sum(end - self.start.get(gateway, 0) for gateway, end in ends.items())
        messages = landed(frame)
        if self._tables:
            messages = messages.persist()  # each table reads it, and a segment is read by Python
        try:
            written = self._fill(messages, ends)
            rejected = [self._fill_typed(messages, one, ends) for one in self._tables]
        finally:
            if self._tables:
                messages.unpersist()
        self.start = {**self.start, **ends}
        seconds = time.monotonic() - began_s
        self._report(Landed(written.version, batch_rows, sum(rejected), written.files, seconds))

    def _ends(self, batch: int) -> dict[str, int]:
        """Return where the batch ends, for each gateway of which it holds anything."""
        noted = json.loads((self._planned / str(batch)).read_text().splitlines()[2])
        ends = {gateway: int(position) for gateway, position in noted.items()}
        return {gateway: end for gateway, end in ends.items() if end > self.start.get(gateway, 0)}

    def _fill(self, messages: DataFrame, ends: Positions) -> sink.Written:
        filled = self._messages
        advances = filled.advances(ends)
        if not advances:  # a batch that died after this commit
            return sink.Written(filled.table.open().version(), 0, 0)
        rows = self._above(messages, {gateway: filled.position(gateway) for gateway in ends})
        expected_rows = sum(end - own for own, end in advances.values())
        written = sink.write(rows, filled.table, positions=advances, expected_rows=expected_rows)
        self._reached(filled, ends, written)
        return written

    def _fill_typed(self, messages: DataFrame, one: TypedTable, ends: Positions) -> int:
        """Fill one typed table, and `rejected` before it; return how many messages were rejected."""
        advances = one.fitting.advances(ends)
        if not advances:
            return 0
        rows = typed.routed(self._above(messages, {name: one.fitting.position(name) for name in ends}), one.spec.route)
        judged = typed.judged(rows, one.schema)
        files = sink.put(typed.fitting(judged, one.schema), one.fitting.table)
        unfit = (rows.count() if one.spec.route else sum(end - own for own, end in advances.values())) - sum(
            file.rows for file in files
        )
        refused = {gateway: end for gateway, end in ends.items() if one.ends(gateway) < end}
        if unfit and refused:
            again = {name for name in ends if one.ends(name) > one.fitting.position(name)}
            fresh = self._above(judged, {name: one.ends(name) for name in ends})
            written = sink.write(
                typed.rejected(fresh, one.spec.table),
                one.rejected.table,
                positions=one.rejected.advances(refused),
                expected_rows=None if again else unfit,
            )
            self._reached(one.rejected, refused, written)
        self._reached(one.fitting, ends, sink.commit(files, one.fitting.table, positions=advances))
        return unfit

    def _reached(self, filled: Filled, ends: Positions, written: sink.Written) -> None:
        compacted = filled.reached(ends, written)
        if compacted is not None:
            self._report(compacted)

    def _above(self, rows: DataFrame, positions: Mapping[str, int]) -> DataFrame:
        """Return the rows at or above positions, where those are not just where the batch begins."""
        for gateway, position in positions.items():
            if position > self.start.get(gateway, 0):
                rows = rows.where(~_below(gateway, position))
        return rows


def _below(gateway: str, position: int) -> Column:
    from pyspark.sql import functions as F

    return (F.col("gateway") == gateway) & (F.col("gateway_offset") < position)


def landed(segments: DataFrame) -> DataFrame:
    """Return the rows of `messages` from those of segments."""
    from pyspark.sql import functions as F

    return segments.withColumn("day", F.to_date("received")).select(*MESSAGES.names)
