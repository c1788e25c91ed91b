"""One micro-batch: from Spark's frame to files in the tables.

The batch's offsets are on disk before anything happens. Everything is written to staging first, its rows are counted
against the offsets, and only then files get their names. Dying anywhere, and doing it all again, ends in the same
files; that is all that exactly-once needs.
"""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from fairway.core.errors import FairwayError
from fairway.core.tables import MESSAGES, REJECTED
from fairway.lake.crashpoints import AFTER_STAGING, PUBLISHED, reach
from fairway.lake.landing import typed
from fairway.lake.landing.checkpoint import Checkpoint
from fairway.lake.landing.folders import publish_batch
from fairway.lake.landing.names import of_batch
from fairway.lake.schemas import spark_schema
from fairway.lake.store import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

FILE_BYTES = 64 << 20
"""About what a file of a typed table holds at the most, before compaction, in bytes of the messages it comes from."""

_PART = re.compile(r"part-(\d+)-.*\.parquet")


class UnbalancedBatch(FairwayError):
    """What was written is not what the batch holds: nothing of it was published."""


class StreamEnded(FairwayError):
    """The stream was asked to end before the batch began."""


@dataclass(frozen=True, slots=True)
class Landed:
    """What became of a batch."""

    batch: int
    messages: int
    rejected: int
    files: int
    seconds: float


class Landing:
    """Lands batch after batch; Spark calls it from a thread of its own."""

    def __init__(
        self,
        lake: Lake,
        checkpoint: Checkpoint,
        staging: Path,
        schemas: Mapping[str, StructType],
        report: Callable[[Landed], None],
    ) -> None:
        self.folders_change = threading.Lock()
        """Held while files get names under `tables/`: a batch and a compaction take turns."""
        self.failure: Exception | None = None
        self.batches = 0
        """How many have landed."""
        self._lake = lake
        self._checkpoint = checkpoint
        self._staging = staging
        self._schemas = schemas
        self._report = report
        self._running = threading.Lock()
        self._ended = False

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Lands one batch, the same way however often it is asked to."""
        with self._running:
            if self._ended:
                raise StreamEnded("The stream is ending.")
            try:
                self._report(self._land(frame, batch))
                self.batches += 1
            except Exception as error:
                self.failure = error
                raise

    def end(self, timeout_s: float) -> None:
        """Waits for the batch that runs, and lets no other begin."""
        self._ended = True
        if self._running.acquire(timeout=timeout_s):
            self._running.release()

    def _land(self, frame: DataFrame, batch: int) -> Landed:
        began_s = time.monotonic()
        self._checkpoint.sync(batch)
        folder = self._staging / str(batch)
        shutil.rmtree(folder, ignore_errors=True)
        rows = self._rows(batch)
        stage(landed(frame), folder / MESSAGES.name, *MESSAGES.partitions)
        _balance(batch, rows, MESSAGES.name, written_rows(folder / MESSAGES.name))
        rejected_rows = sum(self._stage_typed(frame, folder, table, batch, rows) for table in self._schemas)
        reach(AFTER_STAGING)
        files = self._publish(folder, batch)
        reach(PUBLISHED)
        shutil.rmtree(folder)
        return Landed(batch, rows, rejected_rows, files, time.monotonic() - began_s)

    def _rows(self, batch: int) -> int:
        """Gives how many messages the batch holds, by its offsets."""
        begin, end = self._checkpoint.positions(batch - 1), self._checkpoint.positions(batch)
        return sum(position - begin.get(gateway, 0) for gateway, position in end.items())

    def _stage_typed(self, frame: DataFrame, folder: Path, table: str, batch: int, rows: int) -> int:
        """Stages one typed table and what it rejects, from the staged messages; gives how many were rejected."""
        staged = folder / MESSAGES.name
        messages = frame.sparkSession.read.schema(spark_schema(MESSAGES)).parquet(str(staged))
        files = -(-sum(path.stat().st_size for path in staged.rglob("*.parquet")) // FILE_BYTES)
        judgements = typed.judged(messages, self._schemas[table])
        stage(typed.fitting(judgements, self._schemas[table]).repartition(files, "offset"), folder / table, "day")
        fitting_rows = written_rows(folder / table)
        refused = folder / REJECTED.name / table
        if fitting_rows != rows:
            stage(typed.rejected(judgements, table).repartition(files, "offset"), refused, *REJECTED.partitions)
        refused_rows = written_rows(refused)
        _balance(batch, rows, f"{table} and {REJECTED.name}", fitting_rows + refused_rows)
        return refused_rows

    def _publish(self, folder: Path, batch: int) -> int:
        query = self._checkpoint.query()
        assert query is not None
        tables = {folder / name: self._lake.table(name) for name in (MESSAGES.name, *self._schemas)}
        tables |= {folder / REJECTED.name / name: self._lake.table(REJECTED.name) for name in self._schemas}
        files = 0
        for staged, table in tables.items():
            for partition in sorted({path.parent for path in staged.rglob("*.parquet")}):
                coming = {str(of_batch(query, batch, _part(path))): path for path in partition.glob("*.parquet")}
                target = table / partition.relative_to(staged)
                with self.folders_change:
                    files += publish_batch(coming, target, query, batch, folder / "aside")
        return files


def landed(segments: DataFrame) -> DataFrame:
    """Gives the rows of `messages` from those of segments."""
    from pyspark.sql import functions as F

    return segments.withColumn("day", F.to_date("received")).select(*MESSAGES.names)


def stage(frame: DataFrame, folder: Path, *partitions: str) -> None:
    """Writes a frame below `staging/`."""
    frame.write.partitionBy(*partitions).option("compression", "zstd").parquet(str(folder))


def written_rows(folder: Path) -> int:
    """Counts staged rows by the files' footers."""
    return sum(pq.read_metadata(path).num_rows for path in folder.rglob("*.parquet"))


def _part(path: Path) -> int:
    found = _PART.fullmatch(path.name)
    assert found is not None, path
    return int(found[1])


def _balance(batch: int, rows: int, table: str, written: int) -> None:
    if rows != written:
        raise UnbalancedBatch(
            f"Batch {batch} holds {rows} messages, but {written} rows were written for {table}: "
            "see that every Spark node mounts the lake's file system at the same path."
        )
