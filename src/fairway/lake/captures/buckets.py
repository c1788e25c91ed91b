"""Records by bucket: which part of the tables a record belongs to, and how a part finds its records again.

All records of a flow are in one bucket, so that a bucket is computed without the others. In `captures/` the records of
several buckets may share a *slice* (`slices.py`): pieces of a few rows would cost more than they save.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa

from fairway.core.columns import Integers
from fairway.core.tables import DATAGRAMS
from fairway.lake.arrays import Rows, word_of
from fairway.lake.captures.rows import Batch
from fairway.lake.captures.slices import Slices
from fairway.lake.schemas import arrow_schema

BUCKETS = 16
"""Into how many parts tables are cut, by flow: one part is replaced at a time, and computed by one task."""
SLICES_MAX = 16
PART_RECORDS = 250_000
"""So many records are computed at a time; more only where one flow has more."""


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


def read_bucket(files: Iterable[Path], bucket: int, buckets: int) -> pa.Table:
    """Gives the records of a bucket; texts that repeat are dictionaries."""
    found = [table for file in files for table in _held(file, bucket, buckets) if table.num_rows]
    if not found:
        return arrow_schema(DATAGRAMS).empty_table()
    return pa.concat_tables(found).unify_dictionaries().combine_chunks()


def records_of(files: Iterable[str], bucket: int, buckets: int) -> int:
    """Gives how many records a bucket has, without reading more of them than tells their bucket."""
    return sum(_records(Path(file), bucket, buckets) for file in files)


def _records(path: Path, bucket: int, buckets: int) -> int:
    with Slices(path) as file:
        if file.slices == buckets:
            return file.rows((bucket,))
    return sum(table.num_rows for table in _held(path, bucket, buckets, ["flow", "file_id"]))


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
            for table in _held(file, bucket, buckets):
                part = Rows(table).numbers("flow") // buckets % len(paths)
                for number in np.unique(part).tolist():
                    rows = table.filter(pa.array(part == number)).combine_chunks()
                    if number not in writers:
                        sink = opened.enter_context(pa.OSFile(str(paths[number]), "wb"))
                        writers[number] = opened.enter_context(pa.ipc.new_stream(sink, rows.schema))
                    writers[number].write_table(rows)


def _held(path: Path, bucket: int, buckets: int, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Gives the records of a bucket that one file holds, piece by piece."""
    with Slices(path) as file:
        exact = file.slices == buckets
        for number in _slices_with(file, bucket, buckets):
            for table in file.read(number, columns):
                yield table if exact else table.filter(pa.array(buckets_of(table, buckets) == bucket))


def _slices_with(file: Slices, bucket: int, buckets: int) -> Sequence[int]:
    """Gives the slices that may hold records of a bucket."""
    return (bucket % file.slices,) if buckets % file.slices == 0 else range(file.slices)


def _records_at_most(path: Path, bucket: int, buckets: int) -> int:
    with Slices(path) as file:
        return file.rows(_slices_with(file, bucket, buckets))
