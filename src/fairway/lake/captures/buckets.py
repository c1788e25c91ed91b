"""Records by bucket: which part of the tables a record belongs to, and how a part finds its records again.

All records of a flow are in one bucket, so that a bucket is computed without the others. In `captures/` the records of
several buckets may share a row group, a *slice*: row groups of a few rows would cost more than they save. A file says
which slice each of its row groups holds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fairway.core.columns import Integers
from fairway.core.tables import DATAGRAMS
from fairway.lake.arrays import Rows, word_of
from fairway.lake.captures.rows import Batch
from fairway.lake.schemas import arrow_schema

BUCKETS = 16
"""Into how many parts tables are cut, by flow: one part is replaced at a time, and computed by one task."""
SLICES_MAX = 16
PART_RECORDS = 250_000
"""So many records are computed at a time; more only where one flow has more."""

DICTIONARIES = [column.name for column in DATAGRAMS.columns if column.type == "string" and column.name != "rup_id"]

_SLICES, _HELD = b"fairway.slices", b"fairway.held"


def buckets_of_batch(batch: Batch, buckets: int) -> Integers:
    """Gives the bucket of each record; those without a flow go by their file."""
    return np.where(batch.no_datagram, word_of(batch.file_id), batch.flow) % buckets


def buckets_of(rows: pa.Table, buckets: int) -> Integers:
    """Gives the bucket of each record of a table."""
    read = Rows(rows)
    flow = read.numbers("flow")
    lost = read.missing("flow")
    if lost.any():
        places, files = read.texts("file_id")
        flow = np.where(lost, np.array([word_of(file) for file in files])[places], flow)
    return flow % buckets


def slices_for(buckets: int) -> int:
    """Gives into how many slices records are cut: the greatest divisor, so that a bucket lies in one of them."""
    return max(number for number in range(1, SLICES_MAX + 1) if buckets % number == 0)


def metadata_of(slices: int, held: Sequence[int]) -> dict[bytes, bytes]:
    """Gives what a file says of its row groups."""
    return {_SLICES: str(slices).encode(), _HELD: " ".join(map(str, held)).encode()}


def read_bucket(files: Iterable[Path], bucket: int, buckets: int) -> pa.Table:
    """Gives the records of a bucket; texts that repeat are dictionaries."""
    found = [table for file in files for table in _row_groups(file, bucket, buckets) if table.num_rows]
    if not found:
        return arrow_schema(DATAGRAMS).empty_table()
    return pa.concat_tables(found).unify_dictionaries().combine_chunks()


def records_of(files: Iterable[str], bucket: int, buckets: int) -> int:
    """Gives how many records a bucket has, without reading more of them than tells their bucket."""
    return sum(
        table.num_rows for file in files for table in _row_groups(Path(file), bucket, buckets, ["flow", "file_id"])
    )


def parted_bucket(files: Sequence[Path], bucket: int, buckets: int, folder: Path) -> Iterator[pa.Table]:
    """Gives the records of a bucket in parts that fit into memory, each with all records of its flows.

    A bucket of many records is first sorted into files below `folder`. One flow is never cut, however long it is.
    """
    records = sum(_records_at_most(file, bucket, buckets) for file in files)
    parts = -(-records // PART_RECORDS)
    if parts <= 1:
        yield read_bucket(files, bucket, buckets)
        return
    with tempfile.TemporaryDirectory(prefix=f"bucket-{bucket}-", dir=folder) as name:
        paths = [Path(name, str(part)) for part in range(parts)]
        _sort_into(paths, files, bucket, buckets)
        for path in paths:
            if path.exists():
                yield _read_back(path)
                path.unlink()


def _read_back(path: Path) -> pa.Table:
    with pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as reader:
        return reader.read_all().unify_dictionaries().combine_chunks()


def _sort_into(paths: Sequence[Path], files: Iterable[Path], bucket: int, buckets: int) -> None:
    with ExitStack() as opened:
        writers: dict[int, pa.RecordBatchStreamWriter] = {}
        for file in files:
            for table in _row_groups(file, bucket, buckets):
                part = Rows(table).numbers("flow") // buckets % len(paths)
                for number in np.unique(part).tolist():
                    rows = table.filter(pa.array(part == number)).combine_chunks()
                    if number not in writers:
                        sink = opened.enter_context(pa.OSFile(str(paths[number]), "wb"))
                        writers[number] = opened.enter_context(pa.ipc.new_stream(sink, rows.schema))
                    writers[number].write_table(rows)


def _row_groups(path: Path, bucket: int, buckets: int, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Gives the records of a bucket that one file holds, row group by row group."""
    with pq.ParquetFile(path, read_dictionary=DICTIONARIES) as file:
        held = _Held(file, buckets)
        for group in held.groups(bucket):
            table = file.read_row_group(group, columns=columns, use_threads=False)
            yield table if held.exact else table.filter(pa.array(buckets_of(table, buckets) == bucket))


class _Held:
    """What a file says of its row groups."""

    def __init__(self, file: pq.ParquetFile, buckets: int) -> None:
        said = file.metadata.metadata or {}
        self._slices = int(said.get(_SLICES, 1))
        self._count = file.metadata.num_row_groups
        self._held = [int(number) for number in said.get(_HELD, b"").split()]
        self._known = len(self._held) == self._count and buckets % self._slices == 0
        self.exact = self._known and self._slices == buckets
        """Whether a row group holds records of one bucket only."""

    def groups(self, bucket: int) -> list[int]:
        """Gives the row groups that may hold records of a bucket."""
        if not self._known:
            return list(range(self._count))
        return [group for group, which in enumerate(self._held) if which == bucket % self._slices]


def _records_at_most(path: Path, bucket: int, buckets: int) -> int:
    with pq.ParquetFile(path) as file:
        groups = _Held(file, buckets).groups(bucket)
        return sum(file.metadata.row_group(group).num_rows for group in groups)
