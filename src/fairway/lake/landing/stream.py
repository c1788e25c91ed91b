"""The landing stream: from `landing/` to `tables/messages` and the typed tables, until it is told to stop.

Before it starts it takes the tables' lock and makes sure that table and checkpoint belong together: with the
checkpoint of another table, or none, everything would land again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING

from fairway.core.errors import FairwayError
from fairway.core.tables import MESSAGES
from fairway.lake.landing import wishes
from fairway.lake.landing.batch import Landed, Landing
from fairway.lake.landing.checkpoint import Checkpoint
from fairway.lake.landing.compaction import Compacted
from fairway.lake.landing.failures import StreamFailed, StreamStumbled, failure_of
from fairway.lake.landing.folders import table_files
from fairway.lake.landing.housekeeping import Removed, compact_tables, remove_landed
from fairway.lake.landing.names import parse
from fairway.lake.landing.typed import Wish, declared
from fairway.lake.session import is_jvm_gone
from fairway.lake.store import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

HOUSEKEEPING_S = 60.0
POLL_S = 0.2
END_S = 60.0
"""How long the end waits for a batch in the middle; what is cut off then is done again at the next start."""

JVM_END_S = 3.0
"""How long the JVM may take from its last answer to its end."""

SIGNAL_S = 1.0
"""How long the signal that the JVM got may take to us."""

RESTARTS_MAX = 8
"""How often a query that Spark stumbled over is started again without a batch in between. A Python worker has ten
seconds to answer, a constant of Spark's; on a machine with far more work than cores that fails again and again."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A typed table is new, and the lake has messages from before: they are not in it."""

    table: str
    batch: int


@dataclass(frozen=True, slots=True)
class Restarted:
    """Spark stumbled, and the query was started again."""

    reason: str


Happening = Begun | Restarted | Landed | Compacted | Removed


class CheckpointLost(FairwayError):
    """Table and checkpoint do not belong together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """What a stream is asked for."""

    available_now: bool = False
    interval_s: float = 3.0
    keep_s: float = 7 * 86_400.0
    wishes: tuple[Wish, ...] = ()


def check_table(lake: Lake, checkpoint: Checkpoint) -> None:
    """Refuses a table that was not filled with this checkpoint."""
    files = table_files(lake.table(MESSAGES.name))
    if not files:
        return
    if checkpoint.is_empty():
        raise CheckpointLost(
            f"{lake.table(MESSAGES.name)} is filled, but its checkpoint {checkpoint.folder} is empty: restore the "
            "checkpoint from a copy, or move the table away to land everything again."
        )
    queries = {name.query for name in (parse(path.name) for path in files) if name is not None}
    if queries and queries != {checkpoint.query()}:
        raise CheckpointLost(
            f"{lake.table(MESSAGES.name)} was not filled with the checkpoint {checkpoint.folder}: "
            "restore both from the same copy."
        )


class Stream:
    """A running landing stream."""

    def __init__(self, lake: Lake, options: StreamOptions, report: Callable[[Happening], None]) -> None:
        self._lake = lake
        self._options = options
        self._report = report
        self._checkpoint = Checkpoint(lake.checkpoints / MESSAGES.name)
        self._staging = lake.path
        self._kept_at_s = -HOUSEKEEPING_S
        self._tables: tuple[Wish, ...] = ()

    def run(self, open_session: Callable[[], SparkSession], stop: Event) -> None:
        """Lands until `stop` is set, or for one pass; the session is opened only when nothing speaks against it."""
        with self._lake.lock(MESSAGES.name, "fairway stream") as lock:
            self._checkpoint.repair()
            check_table(self._lake, self._checkpoint)
            self._tables = wishes.together(self._lake, self._options.wishes)
            self._staging = self._lake.fresh_staging(MESSAGES.name)
            spark = open_session()
            try:
                if not stop.is_set():
                    lock.share_with_jvm(spark)
                    self._land(spark, stop)
            except Exception as error:
                self._explain(error, stop)

    def _explain(self, error: Exception, stop: Event) -> None:
        """Raises what ended the stream, unless that was asked for.

        Service managers may ask all processes of a service at once: then the JVM is gone before the driver is done, and
        the batch in the middle is done again at the next start.
        """
        if not is_jvm_gone(JVM_END_S if stop.is_set() else SIGNAL_S / 10):
            raise error
        if not stop.wait(SIGNAL_S):
            raise StreamFailed(
                "Spark's Java process is gone (killed, or for want of memory): start the stream again."
            ) from error

    def _land(self, spark: SparkSession, stop: Event) -> None:
        schemas = {wish.table: declared(wish) for wish in self._tables}
        self._announce()
        wishes.remember(self._lake, self._tables)
        landing = Landing(self._lake, self._checkpoint, self._staging, schemas, self._report)
        try:
            self._persevere(spark, landing, stop)
        finally:
            landing.end(END_S)
        if self._options.available_now and not stop.is_set():
            self._keep_house(landing, stop, now=True)

    def _persevere(self, spark: SparkSession, landing: Landing, stop: Event) -> None:
        """Runs the query, and again where Spark stumbles for a reason that may pass."""
        stumbles, landed = 0, 0
        while True:
            try:
                self._query(spark, landing, stop)
                return
            except StreamStumbled as error:
                stumbles = stumbles + 1 if landing.batches == landed else 1
                landed = landing.batches
                if stop.is_set():
                    return
                if stumbles > RESTARTS_MAX:
                    raise
                self._report(Restarted(str(error)))
                stop.wait(stumbles)
                self._checkpoint.repair()

    def _query(self, spark: SparkSession, landing: Landing, stop: Event) -> None:
        from pyspark.errors import PySparkException

        landing.failure = None
        try:
            query = self._start(spark, landing)
        except PySparkException as error:
            raise failure_of(None, error) from error
        try:
            while not stop.wait(POLL_S) and not self._ended(query, landing):
                self._keep_house(landing, stop)
        finally:
            if stop.is_set():
                landing.end(END_S)
            query.stop()

    def _announce(self) -> None:
        known, batch = wishes.known(self._lake), self._checkpoint.committed()
        for wish in self._tables:
            if wish not in known and batch >= 0:
                self._report(Begun(wish.table, batch + 1))

    def _start(self, spark: SparkSession, landing: Landing) -> StreamingQuery:
        from fairway.lake.landing.source import NAME, LandingSource

        # What goes wrong in a batch is told once, by us: py4j would print its traceback first.
        logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
        spark.dataSource.register(LandingSource)
        segments = spark.readStream.format(NAME).option("path", str(self._lake.landing)).load()
        writer = segments.writeStream.option("checkpointLocation", str(self._checkpoint.folder)).foreachBatch(landing)
        if self._options.available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{round(self._options.interval_s * 1_000)} milliseconds").start()

    def _ended(self, query: StreamingQuery, landing: Landing) -> bool:
        """Tells whether the query is over; raises why, if it failed."""
        if query.isActive:
            return False
        error = query.exception()
        if error is not None:
            raise failure_of(landing.failure, error) from error
        return True

    def _keep_house(self, landing: Landing, stop: Event, *, now: bool = False) -> None:
        if not now and time.monotonic() < self._kept_at_s + HOUSEKEEPING_S:
            return
        self._kept_at_s = time.monotonic()
        removed = remove_landed(self._lake, self._checkpoint, self._options.keep_s, time.time())
        if removed.segments:
            self._report(removed)
        typed = tuple(wish.table for wish in self._tables)
        for done in compact_tables(
            self._lake,
            self._checkpoint,
            self._staging,
            typed,
            everything=False,
            folders_change=landing.folders_change,
            stopped=stop.is_set,
        ):
            self._report(done)


def compact(lake: Lake, report: Callable[[Compacted], None]) -> None:
    """Compacts every folder of the landed tables, where no stream runs."""
    with lake.lock(MESSAGES.name, "fairway compact"):
        checkpoint = Checkpoint(lake.checkpoints / MESSAGES.name)
        check_table(lake, checkpoint)
        typed = tuple(wish.table for wish in wishes.known(lake))
        for done in compact_tables(lake, checkpoint, lake.fresh_staging(MESSAGES.name), typed, everything=True):
            report(done)
