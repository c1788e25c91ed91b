"""Captures in, tables out: the work of `fairway analyze`.

    records    = the new captures, and the records of the episodes that they touch     (fairway.capture, fairway.delta)
    packets    = records.repartition("flow").sortWithinPartitions(...).mapInArrow(enrich)    written once, read back
    transfers, timeline, violations, sessions = functions of packets

The tables are a function of the set of captures and of the port map. A run replaces the episodes that its captures
touch, in one commit per table; each carries the number of the run, `captures` first and `sessions` last. A table that
another run has changed meanwhile refuses the commit. A run that did not reach `sessions` is made up for by the next.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from fairway.core.errors import FairwayError
from fairway.core.tables import PACKETS, PROTOCOLS, SESSIONS, TIMELINE, TRANSFERS, VIOLATIONS, Table
from fairway.lake.analysis.changes import Survey, Touched, everything, survey, touched
from fairway.lake.analysis.enrich import Counts, Enrich, records_of, sorted_by_flow
from fairway.lake.analysis.sessions import seconds_of, sessions, timeline
from fairway.lake.analysis.state import State
from fairway.lake.analysis.transfers import transfers
from fairway.lake.captures.files import number_of
from fairway.lake.captures.parts import PART_BYTES
from fairway.lake.captures.source import load_parts
from fairway.lake.reader import read_table
from fairway.lake.schemas import spark_schema
from fairway.lake.sink import put, put_through
from fairway.lake.violations import checks_of, strands_of, violations
from fairway.store.delta import DataFile
from fairway.store.lakes import Lake

FULL = os.strerror(errno.ENOSPC)


class AnalysisFailed(FairwayError):
    """Spark could not compute the tables, which are as they were; the message says why."""


def failure_of(error: Exception) -> AnalysisFailed:
    """Return what to raise for an error of Spark's."""
    text = str(error)
    if FULL in text:
        return AnalysisFailed(
            "A disk is full, the lake's or the one for Spark's temporary files (--conf spark.local.dir=DIR): "
            "make room and run it again; the tables are as they were."
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # Behind a line that says only where it happened stands what happened.
    lines = [line for line in lines if not line.endswith("Python worker:")]
    said = lines[0] if lines else type(error).__name__
    return AnalysisFailed(f"Spark could not compute the tables, which are as they were: {said}")


BEHIND = (TIMELINE, TRANSFERS, VIOLATIONS, SESSIONS)
"""The tables that are made of packets, in the order of their commits."""

Tell = Callable[[str, int], None]
"""Is told what begins, and of how many records."""


class Unbalanced(FairwayError):
    """Rows got lost or doubled on the way; nothing was committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What a run did."""

    files_added: int
    files_known: int
    problems: tuple[str, ...]
    """One sentence for every file that could not be read, or not to its end."""
    remapped: bool
    """The port map differs from the one before, so everything was computed again."""
    run: int
    """The number of the run that the tables hold."""
    records: int
    """How many records were computed for that."""


def analyze(
    spark: SparkSession,
    lake: Lake,
    files: Iterable[str],
    *,
    port_map: Mapping[int, str] | None = None,
    payload: bool = False,
    part_bytes: int = PART_BYTES,
    tell: Tell = lambda what, records: None,
) -> Analysis:
    """Read new captures into the lake and bring its tables up to date; without a port map the lake's own is kept."""
    tell("reading captures", 0)
    state = State.of(lake)
    ports = dict(port_map) if port_map is not None else state.port_map
    held = [one.file_id for one in state.captures if one.payload >= payload]
    found = survey(spark, [*state.unfinished, *files], held, part_bytes)
    remapped = bool(state.captures) and ports != state.port_map
    records = 0
    if found.new or remapped or not state.is_whole:
        try:
            records = _Run(spark, state, found, ports, payload, part_bytes, tell).run()
        except FairwayError:
            raise
        except Exception as error:
            raise failure_of(error) from error
    return Analysis(
        files_added=len(found.new),
        files_known=len(found.known),
        problems=tuple(found.problems),
        remapped=remapped,
        run=state.run,
        records=records,
    )


SMALL_BYTES = 16 << 20
SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}
"""What few records cost is not their computation, but tasks, stages, and compiling code that then runs once."""


@contextmanager
def _tuned(spark: SparkSession, size_bytes: int) -> Iterator[None]:
    """Cut shuffles by what is read, and let Spark join parts that turn out to be small; little is read in one part."""
    parts = max(spark.sparkContext.defaultParallelism, -(-size_bytes // PART_BYTES))
    small = size_bytes <= SMALL_BYTES and str(spark.sparkContext.master).startswith("local")
    chosen = SMALL if small else {"spark.sql.shuffle.partitions": str(parts)}
    before = {name: str(spark.conf.get(name)) for name in chosen}
    for name, value in chosen.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


@dataclass
class _Run:
    """One run: what it reads, computes and commits, table by table."""

    _spark: SparkSession
    _state: State
    _found: Survey
    _ports: dict[int, str]
    _payload: bool
    _part_bytes: int
    _tell: Tell

    def __post_init__(self) -> None:
        self._captures = self._state.joined(self._found.new, self._payload)
        self._enrich = Enrich({one.number: one.capture for one in self._captures}, self._ports)

    def run(self) -> int:
        """Compute and commit all tables; return the number of records that were computed."""
        replaced = sum(file.size_bytes for file in self._state.files(PACKETS)) if self._recomputes() else 0
        with _tuned(self._spark, replaced + sum(capture.file.size_bytes for capture in self._found.new)):
            self._tell("packets", 0)
            old = self._replaced()
            fresh, counts, protocols = self._packets(old)
            records = sum(one.rows for one in counts.values())
            kept = self._kept(PACKETS, old)
            self._check(old, kept, counts)
            self._commit_captures(counts)
            self._state.commit(PACKETS, [*fresh, *kept], old.files[PACKETS.name])
            self._derive(fresh, old, records, protocols)
        return records

    def _replaced(self) -> Touched:
        """Find what this run replaces; after one that did not commit its packets, or for another port map, all."""
        state, new = self._state, self._found.new
        if self._recomputes():
            reread = {one.file_id for one in new} & {one.file_id for one in state.captures}
            return everything(self._spark, state, [PACKETS, *BEHIND], sorted(reread))
        return touched(self._spark, state, new)

    def _recomputes(self) -> bool:
        return self._ports != self._state.port_map or not self._state.has_packets

    def _packets(self, old: Touched) -> tuple[list[DataFile], dict[int, Counts], set[str]]:
        """Write packets: those of the new captures, and of the episodes that they touch; return what they speak."""
        new = [part for capture in self._found.new for part in capture.parts]
        frames, stale = [], old.stale(PACKETS)
        if new:
            frames.append(load_parts(self._spark, new, payload=self._payload, pieces=True, part_bytes=self._part_bytes))
        if stale is not None:
            frames.append(records_of(stale))
        if not frames:
            return [], {}, set()
        records = reduce(DataFrame.unionByName, frames)
        files, notes = put_through(sorted_by_flow(records), self._state.delta(PACKETS), self._enrich)
        return files, *Enrich.noted(notes)

    def _kept(self, table: Table, old: Touched) -> list[DataFile]:
        """Write the rows of replaced files that stay as they are."""
        rows = old.kept(table)
        return [] if rows is None else put(rows, self._state.delta(table))

    def _check(self, old: Touched, kept: Sequence[DataFile], counts: Mapping[int, Counts]) -> None:
        """See that no row of the files that are replaced is lost or doubled."""
        if old.reread:
            return
        new = {number_of(one.file_id) for one in self._found.new}
        before = sum(file.rows for file in old.files[PACKETS.name])
        after = sum(file.rows for file in kept) + sum(one.rows for number, one in counts.items() if number not in new)
        if before != after:
            raise Unbalanced(f"{before} packets became {after}; nothing was committed (a defect of Fairway).")

    def _commit_captures(self, counts: Mapping[int, Counts]) -> None:
        rows = [one.counted(counts.get(one.number)) for one in self._captures]
        self._found.problems.extend(
            f"{one.path} is damaged or ends inside a record: what could be read is in the tables."
            for one in rows
            if one.is_new and one.damages and not any(one.path in said for said in self._found.problems)
        )
        self._state.commit_captures(rows, self._ports)

    def _derive(self, fresh: list[DataFile] | None, old: Touched, records: int, protocols: Collection[str]) -> None:
        """Compute the tables behind packets, of the episodes that were computed."""
        if not self._state.has_derived:
            fresh, protocols, old = None, PROTOCOLS, everything(self._spark, self._state, BEHIND)
        self._tell("messages", records)
        packets = self._read(PACKETS, fresh)
        if self._spark.conf.get("spark.sql.shuffle.partitions") == "1":
            packets = packets.coalesce(1)  # then nothing has to be brought together
        seconds = seconds_of(packets).persist()
        self._write(TIMELINE, timeline(packets, seconds), old)
        sent = self._write(TRANSFERS, transfers(packets, seconds), old)
        self._tell(VIOLATIONS.name, records)
        strands = strands_of(packets).persist()
        strands.count()  # whoever joins them knows then how few they are
        found = violations(packets, checks_of(protocols), seconds=seconds, strands=strands)
        broken = self._write(VIOLATIONS, found, old)
        strands.unpersist()
        self._tell(SESSIONS.name, records)
        told = sessions(packets, self._read(TRANSFERS, sent), self._read(VIOLATIONS, broken), seconds)
        self._write(SESSIONS, told, old)
        seconds.unpersist()

    def _write(self, table: Table, rows: DataFrame, old: Touched) -> list[DataFile]:
        files = put(rows, self._state.delta(table))
        self._state.commit(table, [*files, *self._kept(table, old)], old.files[table.name])
        return files

    def _read(self, table: Table, files: Sequence[DataFile] | None) -> DataFrame:
        """Read back what was committed; only some files if they are named."""
        paths = None if files is None else [file.path for file in files]
        version, schema = self._state.committed[table.name], spark_schema(table)
        return read_table(self._spark, self._state.delta(table), version=version, files=paths, schema=schema)
