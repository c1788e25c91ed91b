"""One bucket of `packets`: what a task reads, computes and writes.

Rows go from files to arrays and to Parquet in the task; on the way through the JVM each would cost several times
what is computed of it. A task that runs twice writes the same files twice.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fairway.core.tables import PACKETS, Table
from fairway.lake.analysis.columns import table_of
from fairway.lake.analysis.packets import packets
from fairway.lake.captures.buckets import parted_bucket
from fairway.lake.schemas import arrow_schema

COMPRESSION = "zstd"
ROW_GROUP_ROWS = 1 << 18
STATISTICS = ("at", "first", "second", "first_sent")
"""Columns by which a reader may pass over row groups."""


@dataclass(frozen=True, slots=True)
class Work:
    """What the tasks of a run have in common."""

    captures: tuple[str, ...]
    """The files that hold the records of all captures."""
    buckets: int
    port_map: dict[int, str]
    target: str
    """The folder that tables are written to."""
    only_packets: bool = False
    """Whether nobody is suspected; for measuring."""


def computed(work: Work, bucket: int) -> None:
    """Compute one bucket of `packets` and write it."""
    target = Path(work.target)
    target.mkdir(parents=True, exist_ok=True)
    parts = parted_bucket([Path(file) for file in work.captures], bucket, work.buckets, target)
    # Not a loop over the parts themselves: a name for one would keep it, and it is copied when it is sorted.
    for part, seen in enumerate(map(partial(packets, port_map=work.port_map), parts)):
        write(table_of(seen), PACKETS, target / PACKETS.name / f"bucket={bucket}" / f"part-{part}.parquet")
        del seen


def write(rows: pa.Table, table: Table, file: Path) -> None:
    """Writes a table's rows; the file gets its name when it is complete."""
    file.parent.mkdir(parents=True, exist_ok=True)
    nullable = pa.schema(
        [field.with_nullable(True).with_type(rows.schema.field(field.name).type) for field in arrow_schema(table)]
    )
    folded = [field.name for field in nullable if pa.types.is_dictionary(field.type)]
    unnamed = file.with_suffix(f".{os.getpid()}")
    pq.write_table(
        rows.cast(nullable),
        unnamed,
        compression=COMPRESSION,
        use_dictionary=folded,
        write_statistics=[name for name in STATISTICS if name in rows.column_names],
        row_group_size=ROW_GROUP_ROWS,
        store_schema=False,
    )
    os.replace(unnamed, file)
