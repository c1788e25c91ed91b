"""Records by bucket: which part of the tables a record belongs to, and how a part finds its records again.

All records of a flow are in one bucket, so that a bucket is computed without the others. In `captures/` the records of
several buckets may share a row group, a *slice*: row groups of a few rows would cost more than they save. A file says
which slice each of its row groups holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fairway.core.columns import Integers
from fairway.core.tables import DATAGRAMS
from fairway.lake.arrays import Rows, word_of
from fairway.lake.schemas import arrow_schema

BUCKETS = 16
"""Into how many parts tables are cut, by flow: one part is replaced at a time, and computed by one task."""
SLICES_MAX = 16

DICTIONARIES = [column.name for column in DATAGRAMS.columns if column.type == "string" and column.name != "rup_id"]

_SLICES, _HELD = b"fairway.slices", b"fairway.held"


def buckets_of(rows: pa.RecordBatch | pa.Table, buckets: int) -> Integers:
    """Gives the bucket of each record; those without a flow go by their file."""
    read = Rows(rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows]))
    flow = read.numbers("flow")
    lost = read.missing("flow")
    if lost.any():
        places, files = read.texts("file_id")
        flow = np.where(lost, np.array([word_of(file) for file in files])[places], flow)
    return flow % buckets


def slices_for(buckets: int) -> int:
    """Gives into how many slices records are cut: the greatest divisor, so that a bucket lies in one of them."""
    return max(number for number in range(1, SLICES_MAX + 1) if buckets % number == 0)


def sliced(table: pa.Table, buckets: int) -> Iterator[tuple[int, pa.Table]]:
    """Cuts records into slices; each keeps the order of its records."""
    number = buckets_of(table, buckets) % slices_for(buckets)
    order = np.argsort(number.astype(np.uint16), kind="stable")
    ends = np.cumsum(np.bincount(number, minlength=1))
    ordered = table if bool((order[1:] > order[:-1]).all()) else table.take(pa.array(order))
    start = 0
    for which, end in enumerate(ends.tolist()):
        if end > start:
            yield which, ordered.slice(start, end - start)
        start = end


def metadata_of(slices: int, held: Sequence[int]) -> dict[bytes, bytes]:
    """Gives what a file says of its row groups."""
    return {_SLICES: str(slices).encode(), _HELD: " ".join(map(str, held)).encode()}


def read_bucket(files: Iterable[Path], bucket: int, buckets: int, columns: Sequence[str] | None = None) -> pa.Table:
    """Gives the records of a bucket; texts that repeat are dictionaries."""
    tables = [_of_bucket(file, bucket, buckets, columns) for file in files]
    found = [table for table in tables if table.num_rows]
    if not found:
        schema = arrow_schema(DATAGRAMS)
        return (schema if columns is None else pa.schema([schema.field(name) for name in columns])).empty_table()
    return pa.concat_tables(found).unify_dictionaries()


def _of_bucket(path: Path, bucket: int, buckets: int, columns: Sequence[str] | None) -> pa.Table:
    with pq.ParquetFile(path, read_dictionary=DICTIONARIES) as file:
        said = file.metadata.metadata or {}
        slices, held = int(said.get(_SLICES, 1)), [int(number) for number in said.get(_HELD, b"").split()]
        known = len(held) == file.metadata.num_row_groups and buckets % slices == 0
        wanted = [group for group, which in enumerate(held) if which == bucket % slices] if known else None
        if wanted == []:
            return arrow_schema(DATAGRAMS).empty_table()
        groups = range(file.metadata.num_row_groups) if wanted is None else wanted
        table = file.read_row_groups(list(groups), columns=columns, use_threads=False)
    if known and slices == buckets:
        return table
    return table.filter(pa.array(buckets_of(table, buckets) == bucket))
