"""The landing stream: from `landing/` to `tables/messages` and the typed tables, until it is told to stop.

How far it is stands in the tables. A start reads it there and gives Spark a new, empty folder for the checkpoint that
it insists on: there is one way to start, and a checkpoint that is lost, old or half-written does not exist.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from fairway.core.errors import FairwayError
from fairway.core.layout import STAGING
from fairway.core.tables import MESSAGES
from fairway.lake.landing import segments, tables
from fairway.lake.landing.batch import Filled, Landed, Landing, TypedTable
from fairway.lake.landing.tables import Begun, Removed, remove_landed
from fairway.lake.landing.typed import TypedSpec
from fairway.lake.session import is_jvm_gone
from fairway.store.lakes import Lake
from fairway.store.tending import HISTORY_S, Compacted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FULL = "No space left on device"
TRACEBACK = "Traceback (most recent call last):"
_PYTHON = re.compile(r"^\w*Error: (.+)$", re.MULTILINE)
_OURS = re.compile(r"fairway\.[\w.]+: (.+)")


class StreamFailed(FairwayError):
    """Spark could not go on; the message says why."""


class StreamStumbled(StreamFailed):
    """Spark could not go on, for a reason that may pass: a worker that did not answer, an executor that is gone.

    What Fairway found wrong (a gap, a damaged segment) stays wrong, and so does what Spark cannot make a plan of.
    """


def failure_of(landing: Exception | None, query: Exception | None) -> Exception:
    """Return what to raise for a query that failed, from what went wrong in a batch, if there, and what Spark says."""
    from pyspark.errors import AnalysisException, PySparkException

    if isinstance(landing, FairwayError):
        return landing
    text = str(landing or query)
    found = _OURS.findall(text)
    if found:
        return StreamFailed(str(found[-1]))
    if FULL in text:
        return StreamFailed(
            "A disk is full, the lake's or the one for Spark's temporary files: make room, and start the stream again."
        )
    if isinstance(landing, OSError):
        return landing
    raised = _PYTHON.findall(text) if TRACEBACK in text else []
    lines = [*raised[-1:], *(line.strip() for line in text.splitlines() if line.strip())]
    passing = landing is None or isinstance(landing, PySparkException) or type(landing).__name__ == "Py4JJavaError"
    kind = StreamStumbled if passing and not isinstance(landing or query, AnalysisException) else StreamFailed
    who = "Spark stopped the stream" if passing else "The stream stopped"
    return kind(f"{who}: {lines[0] if lines else type(landing or query).__name__}")


CHECKPOINT = "stream-"
"""Begins the name of the folder below `staging/` that Spark has for one query."""

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
class Restarted:
    """Spark stumbled, and the query was started again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a power cut left half-written was removed from a table's log, and lands again."""

    table: str
    removed: str


Happening = Begun | Repaired | Restarted | Landed | Compacted | Removed


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """What a stream is asked for."""

    available_now: bool = False
    interval_s: float = 3.0
    keep_s: float = 7 * 86_400.0
    history_s: float = HISTORY_S
    specs: tuple[TypedSpec, ...] = ()


class Stream:
    """A running landing stream."""

    def __init__(self, lake: Lake, options: StreamOptions, report: Callable[[Happening], None]) -> None:
        self._lake = lake
        self._options = options
        self._report = report
        self._kept_at_s = -HOUSEKEEPING_S
        self._current: Landing | None = None

    @property
    def activity(self) -> str:
        """What it is doing, in a few words."""
        if self._current is None:
            return "starting Spark"
        return "landing a batch" if self._current.busy else "looking for segments"

    def run(self, open_session: Callable[[], SparkSession], stop: Event) -> None:
        """Land until `stop` is set, or for one pass; the session is opened only when nothing speaks against it."""
        with self._lake.lock(MESSAGES.name, "fairway stream"):
            for table in tables.landed_tables(self._lake):
                for name in table.mend():
                    self._report(Repaired(table.location.uri.rpartition("/")[2], name))
            specs = tables.together(self._lake, self._options.specs)
            spark = open_session()
            try:
                if not stop.is_set():
                    self._persevere(spark, specs, stop)
            except Exception as error:
                self._explain(error, stop)

    def _explain(self, error: Exception, stop: Event) -> None:
        """Raise what ended the stream, unless that was asked for.

        Service managers may ask all processes of a service at once: then the JVM is gone before the driver is done, and
        the batch in the middle is done again at the next start.
        """
        if not is_jvm_gone(JVM_END_S if stop.is_set() else SIGNAL_S / 10):
            raise error
        if not stop.wait(SIGNAL_S):
            raise StreamFailed(
                "Spark's Java process is gone (killed, or for want of memory): start the stream again."
            ) from error

    def _persevere(self, spark: SparkSession, specs: tuple[TypedSpec, ...], stop: Event) -> None:
        """Run the query, and again where Spark stumbles for a reason that may pass."""
        staging, stumbles = self._staging(), 0
        while True:
            messages, typed, begun = tables.prepare(self._lake, specs, self._options.history_s)
            for one in begun:
                self._report(one)
            with tempfile.TemporaryDirectory(prefix=CHECKPOINT, dir=staging, ignore_cleanup_errors=True) as folder:
                self._current = landing = self._landing(messages, typed, Path(folder))
                try:
                    self._query(spark, landing, Path(folder), stop)
                    break
                except StreamStumbled as error:
                    stumbles = 1 if landing.batches else stumbles + 1
                    if stop.is_set():
                        return
                    if stumbles > RESTARTS_MAX:
                        raise
                    self._report(Restarted(str(error)))
                    stop.wait(stumbles)
                finally:
                    landing.end(END_S)
        if self._options.available_now and not stop.is_set():
            self._keep_house(landing, now=True)

    def _staging(self) -> Path | None:
        """Return the folder for Spark's checkpoint, without what a killed predecessor left; None is the system's."""
        if not self._lake.location.is_folder:
            return None
        staging = self._lake.path / STAGING
        for left in staging.glob(f"{CHECKPOINT}*"):
            shutil.rmtree(left, ignore_errors=True)
        return staging

    def _landing(self, messages: Filled, typed: list[TypedTable], checkpoint: Path) -> Landing:
        filled = (messages, *(one.fitting for one in typed))
        start = {
            gateway: min(one.position(gateway) for one in filled) for gateway in segments.gateways(self._lake.landing)
        }
        return Landing(messages, typed, checkpoint / "offsets", start, self._report)

    def _query(self, spark: SparkSession, landing: Landing, checkpoint: Path, stop: Event) -> None:
        from pyspark.errors import PySparkException

        try:
            query = self._start(spark, landing, checkpoint)
        except PySparkException as error:
            raise failure_of(None, error) from error
        try:
            while not stop.wait(POLL_S) and not self._ended(query, landing):
                self._keep_house(landing)
        finally:
            if stop.is_set():
                landing.end(END_S)
            query.stop()

    def _start(self, spark: SparkSession, landing: Landing, checkpoint: Path) -> StreamingQuery:
        from fairway.lake import register
        from fairway.lake.landing.source import NAME

        # What goes wrong in a batch is told once, by us: py4j would print its traceback first.
        logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
        register(spark)
        options = {"path": self._lake.landing.uri, "positions": json.dumps(landing.start)}
        rows = spark.readStream.format(NAME).options(**options).load()
        writer = rows.writeStream.option("checkpointLocation", checkpoint.as_uri()).foreachBatch(landing)
        if self._options.available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{round(self._options.interval_s * 1_000)} milliseconds").start()

    def _ended(self, query: StreamingQuery, landing: Landing) -> bool:
        """Return whether the query is over; raise why, if it failed."""
        if query.isActive:
            return False
        error = query.exception()
        if error is not None:
            raise failure_of(landing.failure, error) from error
        return True

    def _keep_house(self, landing: Landing, *, now: bool = False) -> None:
        if not now and time.monotonic() < self._kept_at_s + HOUSEKEEPING_S:
            return
        self._kept_at_s = time.monotonic()
        removed = remove_landed(self._lake, landing.landed, self._options.keep_s, time.time())
        if removed.segments:
            self._report(removed)
