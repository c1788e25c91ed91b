"""Which captures are new, which episodes of the tables they touch, and which files hold those.

An episode is touched if a new packet of its flow lies within the silence that would have ended it. Only these are
computed again; a file that holds one is replaced, and its other rows are copied as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from fairway.core.errors import DamagedCapture
from fairway.core.tables import ANALYSIS_TABLES, CAPTURES, PACKETS, Table
from fairway.lake.analysis.episodes import SILENCE_NS
from fairway.lake.captures.files import CaptureFile, Span, identity, listed, seen
from fairway.lake.captures.parts import Part, planned, times
from fairway.lake.captures.source import load_parts
from fairway.lake.reader import FILE, read_table
from fairway.lake.schemas import spark_schema
from fairway.store.delta import DataFile

if TYPE_CHECKING:
    from fairway.lake.analysis.state import State

UNTIMED = Span(0, 0)
"""Of a capture whose records have no times; their episodes are open anyway."""


@dataclass(frozen=True, slots=True)
class NewCapture:
    """A capture that is to be read."""

    file: CaptureFile
    file_id: str
    parts: Sequence[Part]
    span: Span


@dataclass(frozen=True, slots=True)
class Survey:
    """What became of the files that were named."""

    new: list[NewCapture] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    """Paths of files whose content the lake holds."""
    problems: list[str] = field(default_factory=list)
    """A sentence for every file that cannot be read, or not to its end."""


def survey(spark: SparkSession, paths: Iterable[str], held: Collection[str], part_bytes: int) -> Survey:
    """Check files; `held` are the identities of those that need not be read."""
    found = Survey()
    files: dict[str, CaptureFile] = {}
    for path in listed(paths):
        try:
            file = seen(path)
            file_id = identity(file)
        except DamagedCapture as error:
            found.problems.append(str(error))
            continue
        if file_id in held or file_id in files:
            found.known.append(path)
        else:
            files[file_id] = file
    parts: dict[str, list[Part]] = {file_id: [] for file_id in files}
    for part in planned(spark, [(file, file_id) for file_id, file in files.items()], part_bytes):
        parts[part.file_id].append(part)
    for file_id, file in files.items():
        try:
            first_ns, last_ns, problem = times(parts[file_id])
        except DamagedCapture as error:
            found.problems.append(str(error))
            continue
        if problem is not None:
            found.problems.append(f"{file.path} was read as far as it goes: {problem}.")
        # In whole microseconds, as the table keeps them.
        span = (
            UNTIMED
            if first_ns is None or last_ns is None
            else Span(*(at // 1_000 * 1_000 for at in (first_ns, last_ns)))
        )
        found.new.append(NewCapture(file, file_id, parts[file_id], span))
    return found


_OF_EPISODES = [table for table in ANALYSIS_TABLES if table is not CAPTURES]
_STORED = {table.name: table for table in _OF_EPISODES}
"""The tables with all columns that are stored, also those that say to which episode a row belongs."""


@dataclass(frozen=True)
class Touched:
    """What a run replaces: files of each table, and which of their rows are computed again."""

    spark: SparkSession
    state: State
    files: Mapping[str, Sequence[DataFile]]
    """By table, the files that are replaced."""
    episodes: DataFrame | None
    """The episodes that are computed again; None for all."""
    reread: Sequence[str] = ()
    """Captures whose rows in packets are replaced by what is read of them now."""

    def stale(self, table: Table) -> DataFrame | None:
        """Return the rows of replaced files that are computed again; None if no file is replaced."""
        rows = self._rows(table)
        if rows is None or self.episodes is None:
            return rows
        return rows.join(F.broadcast(self.episodes), on="episode", how="left_semi")

    def kept(self, table: Table) -> DataFrame | None:
        """Return the rows of replaced files that stay as they are; None if no file is replaced, or all rows are."""
        rows = self._rows(table)
        if rows is None:
            return None
        if self.episodes is None:
            return rows.where("episode IS NULL") if table is PACKETS else None
        return rows.join(F.broadcast(self.episodes), on="episode", how="left_anti")

    def _rows(self, table: Table) -> DataFrame | None:
        paths = [file.path for file in self.files[table.name]]
        if not paths:
            return None
        version = self.state.versions[table.name]
        schema = spark_schema(_STORED[table.name])
        rows = read_table(self.spark, self.state.delta(table), version=version, files=paths, schema=schema)
        return rows.where(~F.col("file_id").isin(*self.reread)) if self.reread and table is PACKETS else rows


def everything(spark: SparkSession, state: State, tables: Sequence[Table], reread: Sequence[str] = ()) -> Touched:
    """Return that all rows of some tables are computed again."""
    names = {table.name for table in tables}
    files = {table.name: state.files(table) if table.name in names else [] for table in _OF_EPISODES}
    return Touched(spark, state, files, None, reread)


def touched(spark: SparkSession, state: State, new: Sequence[NewCapture]) -> Touched:
    """Find what new captures touch."""
    near = _files_near(state, new)
    held = {one.file_id for one in state.captures}
    reread = [one.file_id for one in new if one.file_id in held]
    if not near or not new:
        return everything(spark, state, ())
    stored = _with_file(spark, state, PACKETS, near, "episode", "flow", "at_ns", "file_id")
    episodes = (
        stored.where("episode IS NOT NULL")
        .groupBy("episode", "flow")
        .agg(F.min("at_ns").alias("first_ns"), F.max("at_ns").alias("last_ns"))
    )
    stale = episodes.join(_bins(spark, new), on="flow", how="inner").where(
        f"(least_ns <= last_ns + {SILENCE_NS} AND most_ns >= first_ns - {SILENCE_NS})"
        " OR (least_ns IS NULL AND first_ns IS NULL)"
    )
    numbers = stale.select("episode").distinct().toArrow()
    wanted = spark.createDataFrame(numbers)
    files = {PACKETS.name: _holding(stored, wanted, near, reread)}
    for table in _OF_EPISODES[1:]:
        there = state.files(table)
        rows = _with_file(spark, state, table, there, "episode")
        files[table.name] = _holding(rows, wanted, there) if there and len(numbers) else []
    return Touched(spark, state, files, wanted, reread)


def _files_near(state: State, new: Sequence[NewCapture]) -> list[DataFile]:
    """Return the files of packets that may hold touched episodes, by the bounds that the log has."""
    found = []
    for file, noted in state.delta(PACKETS).files(state.snapshots[PACKETS.name]):
        low, high = noted.get("min.at_ns"), noted.get("max.at_ns")
        unbounded = low is None or high is None or noted.get("null_count.at_ns") != 0
        if unbounded or any(_is_near(one, low, high) for one in new):
            found.append(file)
    return found


def _is_near(one: NewCapture, low: Any, high: Any) -> bool:
    if one.file.is_object:
        return True  # what lies in its middle is not known
    return bool(one.span.first_ns - SILENCE_NS <= high + 1_000 and low <= one.span.last_ns + 1_000 + SILENCE_NS)


def _bins(spark: SparkSession, new: Sequence[NewCapture]) -> DataFrame:
    """Return the first and last new packet of each flow in each stretch of time that is too short for a silence.

    So each stretch is within reach of an episode if and only if one of its packets is.
    """
    parts = [part for one in new for part in one.parts]
    records = load_parts(spark, parts, columns=["flow", "at_ns", "undecoded"]).where("undecoded = 0")
    return records.groupBy("flow", F.expr(f"at_ns div {SILENCE_NS}").alias("stretch")).agg(
        F.min("at_ns").alias("least_ns"), F.max("at_ns").alias("most_ns")
    )


def _with_file(spark: SparkSession, state: State, table: Table, files: Sequence[DataFile], *columns: str) -> DataFrame:
    fields = {field.name: field for field in spark_schema(PACKETS).fields}
    schema = StructType([fields[name] for name in columns]).add(FILE, "string")
    paths, version = [file.path for file in files], state.versions[table.name]
    return read_table(spark, state.delta(table), version=version, files=paths, schema=schema)


def _holding(
    rows: DataFrame, episodes: DataFrame, files: Sequence[DataFile], reread: Sequence[str] = ()
) -> list[DataFile]:
    """Return the files that hold rows of these episodes."""
    held = rows.join(F.broadcast(episodes), on="episode", how="left_semi").select(FILE)
    if reread:
        held = held.union(rows.where(F.col("file_id").isin(*reread)).select(FILE))
    paths = {row[0] for row in held.distinct().collect()}
    return [file for file in files if file.path in paths]
