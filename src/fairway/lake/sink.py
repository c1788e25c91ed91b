"""The one sink: a frame becomes data files of a Delta table, written by executors and committed once by the driver.

Each task writes Parquet through Arrow, a file for every partition of the table that it meets, under names that were
never there before, and returns a row for each file. A task that ran twice leaves files that no commit refers to;
vacuum removes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fairway.core.errors import FairwayError
from fairway.store import crashpoints
from fairway.store.delta import Advances, DataFile, Delta
from fairway.store.locations import Location

if TYPE_CHECKING:
    from deltalake.transaction import RemoveAction
    from pyspark.sql import DataFrame

ROW_GROUP_BYTES = 32 << 20
"""What a task holds of a file until it is written, uncompressed."""

FILES_OPEN_MAX = 64
"""Files that a task writes at a time; with more partitions than that, the oldest is closed and begun anew."""

TEXT_MAX = 64
"""Longer texts have no bounds in the log: cut ones would need care, and help little."""

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_RETURNED = "path string, size_bytes long, rows long, partition string, stats string, notes string"


class UnbalancedBatch(FairwayError):
    """What was written is not what should have been: nothing of it was committed."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a commit added."""

    version: int
    rows: int
    files: int


def write(
    frame: DataFrame,
    table: Delta,
    *,
    removes: Sequence[RemoveAction] = (),
    positions: Advances | None = None,
    expected_rows: int | None = None,
) -> Written:
    """Write the rows of a frame to a table in one commit, with removals and positions.

    `positions` has, by application, the position that the table must have and the one that it gets. With another
    number of rows than `expected_rows` nothing is committed.
    """
    return commit(put(frame, table, expected_rows=expected_rows), table, removes=removes, positions=positions)


class Work(Protocol):
    """What a task does with its batches before they are written, and what it has noted meanwhile."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return rows of the table."""

    def notes(self) -> str:
        """Return what was noted, when all batches are done."""


def put_through(frame: DataFrame, table: Delta, work: Work | None) -> tuple[list[DataFile], list[str]]:
    """Write what `work` makes of a frame to files as `put` does; return also what each task has noted.

    That is `mapInArrow(work)` and then `put`, but in one Python process: the rows that `work` makes, wide and full of
    texts, do not go through the JVM.
    """
    return _written(row.asDict() for row in frame.mapInArrow(_writer(table, work), _RETURNED).collect())


def put(frame: DataFrame, table: Delta, *, expected_rows: int | None = None) -> list[DataFile]:
    """Write the rows of a frame to durable files that the table does not refer to yet."""
    strange = sorted(set(frame.columns) - {field.name for field in table.open().schema().fields})
    if strange:
        raise FairwayError(f"{table.location} has no column {strange[0]}: add it to the table first.")
    found, _ = put_through(frame, table, None)
    rows = sum(file.rows for file in found)
    if expected_rows is not None and rows != expected_rows:
        raise UnbalancedBatch(
            f"{rows} rows were written for {table.location}, where {expected_rows} belong: "
            "see that every Spark node mounts the lake's file system at the same path."
        )
    crashpoints.reached("files-written")
    return found


def put_rows(rows: pa.Table, table: Delta) -> list[DataFile]:
    """Write few rows, which the driver has, as `put` does."""
    (written,) = _writer(table)(iter(rows.to_batches()))
    return _written(written.to_pylist())[0]


def _writer(table: Delta, work: Work | None = None) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    snapshot = table.open()
    schema, partitions = pa.schema(snapshot.schema()), snapshot.metadata().partition_columns
    return partial(write_batches, table.location.uri, schema, partitions, work=work)


def _written(rows: Iterable[dict[str, Any]]) -> tuple[list[DataFile], list[str]]:
    """Return the files that tasks have written, and what they have noted."""
    files, notes = [], []
    for row in rows:
        if row["path"] is not None:
            partition = json.loads(row["partition"])
            files.append(DataFile(row["path"], row["size_bytes"], row["rows"], partition, row["stats"]))
        if row["notes"] is not None:
            notes.append(row["notes"])
    return files, notes


def commit(
    files: Sequence[DataFile],
    table: Delta,
    *,
    removes: Sequence[RemoveAction] = (),
    positions: Advances | None = None,
) -> Written:
    """Commit files that `put` has written."""
    version = table.commit(table.open(), files, removes=removes, advances=positions)
    return Written(version, sum(file.rows for file in files), len(files))


def write_batches(
    uri: str,
    schema: pa.Schema,
    partitions: Sequence[str],
    batches: Iterator[pa.RecordBatch],
    *,
    work: Work | None = None,
) -> Iterator[pa.RecordBatch]:
    """Write the batches of one task to durable files; return a row for each, and one for what was noted."""
    files = _Files(Location(uri), schema, partitions)
    for batch in batches if work is None else work(batches):
        files.add(pa.Table.from_batches([batch]))
    done: list[tuple[object, ...]] = [
        (file.path, file.size_bytes, file.rows, json.dumps(file.partition), file.stats, None) for file in files.close()
    ]
    if work is not None:
        done.append((*[None] * 5, work.notes()))
    names = ("path", "size_bytes", "rows", "partition", "stats", "notes")
    columns = [[row[index] for row in done] for index in range(len(names))]
    types = (pa.string(), pa.int64(), pa.int64(), pa.string(), pa.string(), pa.string())
    yield pa.record_batch([pa.array(one, type_) for one, type_ in zip(columns, types, strict=True)], list(names))


class _Files:
    """The files of one task, by partition."""

    def __init__(self, location: Location, schema: pa.Schema, partitions: Sequence[str]) -> None:
        self._location = location
        self._partitions = partitions
        self._types = {field.name: field.type for field in schema}
        self._schema = pa.schema([field for field in schema if field.name not in partitions])
        self._open: dict[tuple[str | None, ...], _File] = {}
        self._done: list[DataFile] = []

    def add(self, rows: pa.Table) -> None:
        if not self._partitions:
            self._file(()).add(rows)
            return
        keys = [pc.cast(rows[name].cast(self._types[name]), pa.string()) for name in self._partitions]
        combinations = pa.table(keys, names=list(self._partitions)).group_by(list(self._partitions)).aggregate([])
        for row in combinations.to_pylist():
            values = tuple(row[name] for name in self._partitions)
            chosen = pa.scalar(True)
            for key, value in zip(keys, values, strict=True):
                chosen = pc.and_(
                    chosen, pc.is_null(key) if value is None else pc.fill_null(pc.equal(key, value), False)
                )
            self._file(values).add(rows if len(combinations) == 1 else rows.filter(chosen))

    def _file(self, values: tuple[str | None, ...]) -> _File:
        found = self._open.get(values)
        if found is None:
            if len(self._open) >= FILES_OPEN_MAX:
                self._done.append(self._open.pop(next(iter(self._open))).close())
            partition = dict(zip(self._partitions, values, strict=True))
            found = self._open[values] = _File(self._location, self._schema, partition)
        return found

    def close(self) -> list[DataFile]:
        self._done += [file.close() for file in self._open.values()]
        return self._done


class _File:
    """A file that is being written."""

    def __init__(self, location: Location, schema: pa.Schema, partition: Mapping[str, str | None]) -> None:
        folders = [f"{name}={_escaped(value)}" for name, value in partition.items()]
        self._path = "/".join([*folders, f"part-{uuid4()}.zstd.parquet"])
        self._schema, self._partition = schema, partition
        self._opened = ExitStack()
        self._stream = self._opened.enter_context(location.create(self._path))
        self._footer: list[pq.FileMetaData] = []
        bounded = [field.name for field in schema if _has_bounds(field.type)]
        self._writer = pq.ParquetWriter(
            self._stream, schema, compression="zstd", write_statistics=bounded, metadata_collector=self._footer
        )
        self._held: list[pa.Table] = []
        self._held_bytes = 0

    def add(self, rows: pa.Table) -> None:
        columns = [
            rows[field.name].cast(field.type) if field.name in rows.schema.names else pa.nulls(len(rows), field.type)
            for field in self._schema
        ]
        self._held.append(pa.table(columns, schema=self._schema))
        self._held_bytes += rows.nbytes
        if self._held_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        rows = pa.concat_tables(self._held)
        self._writer.write_table(rows, row_group_size=max(1, len(rows)))
        self._held, self._held_bytes = [], 0

    def close(self) -> DataFile:
        with self._opened:
            if self._held:
                self._flush()
            self._writer.close()
            size_bytes = int(self._stream.tell())
        (footer,) = self._footer
        return DataFile(self._path, size_bytes, footer.num_rows, self._partition, statistics(footer))


def _escaped(value: str | None) -> str:
    return NULL_PARTITION if value is None else quote(value, safe=" ")


def _has_bounds(kind: pa.DataType) -> bool:
    """Whether minima and maxima of a type are worth writing and safe to skip by; NaN has no place among floats."""
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_temporal(kind))


def statistics(footer: pq.FileMetaData) -> str:
    """Return the number of rows, and the bounds of columns, as a Delta log has them."""
    found: dict[str, Any] = {"numRecords": footer.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for index in range(footer.num_columns):
        name = footer.schema.column(index).path
        groups = [footer.row_group(group).column(index).statistics for group in range(footer.num_row_groups)]
        if "." in name or not groups or any(one is None or not one.has_null_count for one in groups):
            continue
        found["nullCount"][name] = sum(one.null_count for one in groups)
        filled = [one for one in groups if one.num_values]
        if filled and all(one.has_min_max for one in filled):
            low, high = min(one.min for one in filled), max(one.max for one in filled)
            if not any(isinstance(one, str) and len(one) > TEXT_MAX for one in (low, high)):
                found["minValues"][name], found["maxValues"][name] = _noted(low), _noted(high)
    return json.dumps(found)


def _noted(value: Any) -> Any:
    if isinstance(value, datetime):
        zone = "Z" if value.tzinfo is not None else ""
        value = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo is not None else value
        return value.isoformat(timespec="microseconds") + zone
    return value.isoformat() if isinstance(value, date) else value
