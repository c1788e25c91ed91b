"""One bucket of all tables: what a task reads, computes and writes.

Rows go from files to arrays and to Parquet in the task; on the way through the JVM each would cost several times
what is computed of it. A task that runs twice writes the same files twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fairway.core.tables import PACKETS, SESSIONS, TIMELINE, TRANSFERS, Table
from fairway.lake.analysis.columns import table_of
from fairway.lake.analysis.exchanges import exchanges
from fairway.lake.analysis.packets import Packets, packets
from fairway.lake.analysis.sessions import sessions
from fairway.lake.analysis.sums import Facts
from fairway.lake.analysis.timeline import timeline
from fairway.lake.analysis.transfers import transfers
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
    """Whether the tables behind `packets` are left out; for measuring."""


def tables_of(seen: Packets) -> Iterator[tuple[Table, pa.Table]]:
    """Gives all tables but `violations`, one after the other: what is done with one need not be kept for the next."""
    yield PACKETS, table_of(seen)
    exchanged = exchanges(seen)
    messages = transfers(seen, exchanged)
    yield TRANSFERS, messages
    facts = Facts(seen, exchanged)
    yield SESSIONS, sessions(facts, messages)
    yield TIMELINE, timeline(facts)


def computed(work: Work, bucket: int) -> None:
    """Compute one bucket and write its tables."""
    target = Path(work.target)
    target.mkdir(parents=True, exist_ok=True)
    parts = parted_bucket([Path(file) for file in work.captures], bucket, work.buckets, target)
    # Not a loop over the parts themselves: a name for one would keep it, and it is copied when it is sorted.
    for part, seen in enumerate(map(partial(packets, port_map=work.port_map), parts)):
        made = islice(tables_of(seen), 1 if work.only_packets else None)
        for table, rows in made:
            write(rows, table, target / table.name / f"bucket={bucket}" / f"part-{part}.parquet")
            del rows
        del seen, made


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
