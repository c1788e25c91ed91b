"""Captures in, tables out: the work of `fairway analyze`.

The tables are a function of the set of captures in the lake and of the port map, both of which the lake keeps. A
run reads new files into `captures/`, finds the buckets that they touch, computes those buckets from all captures,
and exchanges them. A run that finds nothing new changes nothing.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.parquet as pq

from fairway.core.errors import BadOption, FairwayError
from fairway.core.tables import CAPTURE_TABLES, PACKETS, SESSIONS, TIMELINE, TRANSFERS, VIOLATIONS, Table
from fairway.lake.analysis.exchange import fresh_staging, locked
from fairway.lake.analysis.failures import failure_of
from fairway.lake.analysis.publishing import STAGING, finish, gather, publish, state_file
from fairway.lake.analysis.scale import Scale
from fairway.lake.analysis.sessions import sessions
from fairway.lake.analysis.task import Work, computed, write
from fairway.lake.analysis.timeline import timeline
from fairway.lake.analysis.transfers import transfers
from fairway.lake.captures.buckets import BUCKETS, records_of
from fairway.lake.captures.ingest import About, capture_files, ingest, known
from fairway.lake.captures.jobs import each
from fairway.lake.schemas import spark_schema
from fairway.lake.violations import violations
from fairway.store.lakes import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WRITTEN = "written"
"""Below staging: the tables as they are computed."""

Tell = Callable[[str, int], None]
"""Is told what begins, and of how many records."""


class Unbalanced(FairwayError):
    """Rows got lost or doubled on the way; nothing was published."""


@dataclass(frozen=True, slots=True)
class State:
    """What the tables are made of."""

    buckets: int = BUCKETS
    port_map: Mapping[int, str] = field(default_factory=dict)
    captures: Mapping[str, bool] = field(default_factory=dict)
    """File ids, and whether bodies were kept."""

    def text(self) -> str:
        """Gives the state as it is stored."""
        ports = {str(port): name for port, name in sorted(self.port_map.items())}
        captures = dict(sorted(self.captures.items()))
        return json.dumps({"buckets": self.buckets, "port_map": ports, "captures": captures}, indent=1) + "\n"

    @classmethod
    def of(cls, lake: Lake) -> State:
        """Reads the state of a lake; a lake without tables has none of it."""
        try:
            stored = json.loads(state_file(lake).read_text())
        except FileNotFoundError:
            return cls()
        ports = {int(port): name for port, name in stored["port_map"].items()}
        return cls(stored["buckets"], ports, stored["captures"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What a run did."""

    files_added: int
    files_known: int
    problems: tuple[str, ...]
    """One sentence for every file that could not be read, or not to its end."""
    remapped: bool
    """The port map differs from the one before, so everything was computed again."""
    buckets: int
    """How many parts of the tables were replaced."""
    records: int
    """How many records were read for that."""


def analyze(
    spark: SparkSession,
    lake: Lake,
    files: Iterable[str],
    *,
    port_map: Mapping[int, str] | None = None,
    payload: bool = False,
    buckets: int | None = None,
    tell: Tell = lambda what, records: None,
) -> Analysis:
    """Reads new captures into the lake and brings its tables up to date; without a port map the lake's own is kept."""
    with locked(lake, STAGING, "fairway analyze") as lock:
        lock.share_with_jvm(spark)
        finish(lake)
        before = State.of(lake)
        _check_buckets(before, buckets)
        tell("reading captures", 0)
        cut = buckets if buckets is not None else before.buckets
        taken = ingest(spark, files, lake, payload=payload, buckets=cut)
        abouts = known(lake)
        after = State(
            cut,
            dict(port_map) if port_map is not None else before.port_map,
            {about.file_id: about.payload for about in abouts},
        )
        remapped = bool(before.captures) and before.port_map != after.port_map
        stale = _stale(before, after, abouts)
        records = _Run(spark, lake, after, stale, abouts, tell).run() if stale else 0
    return Analysis(
        files_added=len(taken.added),
        files_known=len(taken.known),
        problems=tuple(taken.problems),
        remapped=remapped,
        buckets=len(stale),
        records=records,
    )


def _check_buckets(before: State, buckets: int | None) -> None:
    if buckets is not None and not 1 <= buckets <= 4_096:
        raise BadOption(f"buckets is {buckets}; it must be from 1 to 4096")
    if buckets is not None and before.captures and buckets != before.buckets:
        raise BadOption(f"the lake is cut in {before.buckets} buckets; that cannot change: leave --buckets out")


def _stale(before: State, after: State, abouts: list[About]) -> list[int]:
    """Gives the buckets that must be computed: all, or those with records that the tables do not hold yet."""
    changed = after.port_map != before.port_map
    new = [about for about in abouts if changed or before.captures.get(about.file_id) != about.payload]
    if any(about.buckets != after.buckets for about in new):
        return list(range(after.buckets))
    return sorted({bucket for about in new for bucket in about.touched})


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Changes settings of the session for a while."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)


class _Run:
    """One computation of some buckets of all tables."""

    def __init__(
        self, spark: SparkSession, lake: Lake, state: State, buckets: list[int], abouts: list[About], tell: Tell
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._state = state
        self._buckets = buckets
        self._scale = Scale(
            records=sum(about.rows for about in abouts),
            buckets=state.buckets,
            local=str(spark.sparkContext.master).startswith("local"),
        )
        self._tell = tell
        self._run = uuid.uuid4().hex[:12]
        self._staging = fresh_staging(lake, STAGING)

    def run(self) -> int:
        """Computes, checks and publishes; gives the number of records that were read."""
        try:
            with _settings(self._spark, self._scale.settings):
                records = self._write_all()
        except BaseException as error:
            # On a full disk what is of no use must not stay.
            shutil.rmtree(self._staging, ignore_errors=True)
            if not isinstance(error, Exception) or isinstance(error, FairwayError):
                raise
            raise failure_of(error) from error
        self._tell("publishing", records)
        publish(self._lake, self._staging, self._run, CAPTURE_TABLES, self._buckets, self._state.text())
        return records

    def _write_all(self) -> int:
        records = self._computed()
        self._derive(records)
        for table in CAPTURE_TABLES:
            gather(self._staging, table, self._written(table), self._run, self._buckets)
        return records

    def _computed(self) -> int:
        """Write `packets`, a task for each bucket, and check that every record is in it once."""
        self._tell("tables", self._scale.records)
        captures = capture_files(self._lake, self._state.captures)
        ports = dict(self._state.port_map)
        work = partial(computed, Work(tuple(captures), self._state.buckets, ports, str(self._staging / WRITTEN)))
        if self._scale.few:
            for bucket in self._buckets:
                work(bucket)
        else:
            each(self._spark, self._buckets, work)
        records = self._count(PACKETS)
        expected = self._scale.records
        if len(self._buckets) < self._state.buckets:
            expected = sum(records_of(captures, bucket, self._state.buckets) for bucket in self._buckets)
        if records != expected:
            raise Unbalanced(
                f"{expected} records became {records} packets; nothing was published (a defect of Fairway)."
            )
        return records

    def _derive(self, records: int) -> None:
        """Write the tables that are computed from `packets`."""
        packets = self._stored(PACKETS)
        self._write(TRANSFERS, transfers(packets))
        self._write(TIMELINE, timeline(packets))
        self._tell(VIOLATIONS.name, records)
        self._write(VIOLATIONS, violations(packets))
        self._write(SESSIONS, sessions(packets, self._stored(TRANSFERS), self._stored(VIOLATIONS)))

    def _write(self, table: Table, rows: DataFrame) -> None:
        if not self._scale.few:
            self._scale.spread(rows).write.partitionBy("bucket").parquet(str(self._written(table)))
            return
        # Spark's own writer takes longer for a folder of each bucket than a few rows take to compute.
        found = rows.toArrow()
        for bucket in pc.unique(found["bucket"]).to_pylist():
            mine = found.filter(pc.equal(found["bucket"], bucket)).drop("bucket")
            write(mine, table, self._written(table) / f"bucket={bucket}" / "part-0.parquet")

    def _count(self, table: Table) -> int:
        return sum(pq.read_metadata(file).num_rows for file in self._written(table).rglob("*.parquet"))

    def _written(self, table: Table) -> Path:
        return self._staging / WRITTEN / table.name

    def _stored(self, table: Table) -> DataFrame:
        """Reads back what was just written."""
        schema = spark_schema(table).add("bucket", "integer")
        if not self._written(table).exists():
            return self._spark.createDataFrame([], schema)
        return self._scale.together(self._spark.read.schema(schema).parquet(str(self._written(table))))
