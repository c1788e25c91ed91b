"""Fewer, larger files: the small files of a partition become one, and the partition's folder is exchanged in one step.

Only batches whose commit is on disk are merged, under names that were never there before. So a replayed batch never
meets its own rows in a merged file, and a reader that listed the old files finds them gone rather than rows twice.
Merging streams through Arrow with bounded memory; it needs no Spark.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fairway.core.errors import FairwayError
from fairway.lake.crashpoints import COMPACTION_STAGED, reach
from fairway.lake.landing.folders import replace_files
from fairway.lake.landing.names import FileName, parse

SMALL_BYTES = 64 << 20
"""What is smaller is merged."""

FILE_BYTES = 256 << 20
"""A merged file ends when it is this large."""

ROW_GROUP_BYTES = 32 << 20
"""What is held in memory until it is written, uncompressed."""

OPEN_DAY_FILES = 256
"""A day that is still growing is merged when it has this many small files; a closed one from two on."""

LATE = timedelta(minutes=30)
"""How long after midnight a day counts as growing."""


class DamagedTable(FairwayError):
    """A file under `tables/` cannot be read; the message names it."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did to one folder."""

    folder: Path
    files_before: int
    files_after: int
    rows: int


@dataclass(frozen=True, slots=True)
class Compactor:
    """What compaction needs to know: whose files, up to which batch, where to write, and when to stop."""

    query: str
    committed: int
    staging: Path
    folders_change: AbstractContextManager[object] = field(default_factory=nullcontext)
    stopped: Callable[[], bool] = lambda: False

    def compact(self, folder: Path, files_min: int = 2) -> Compacted | None:
        """Merges the small files of a partition, if there are at least so many; None if not, or if stopped."""
        small = self._small(folder)
        if len(small) < files_min:
            return None
        staged = self.staging / "merged"
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(parents=True)
        sources = [folder / str(name) for name in small]
        merged = self._merge(sources, staged)
        if merged is None or not merged:
            return None
        rows = _count(sources)
        if _count(merged) != rows:
            raise DamagedTable(f"Merging {folder} did not keep its {rows} rows: nothing was changed.")
        reach(COMPACTION_STAGED)
        with self.folders_change:
            before = set(os.listdir(folder))
            coming = self._named(small, merged, before)
            replace_files(folder, [str(name) for name in small], coming, self.staging / "exchange")
        return Compacted(folder, len(before), len(before) - len(small) + len(merged), rows)

    def _small(self, folder: Path) -> list[FileName]:
        names = [name for name in map(parse, os.listdir(folder)) if name is not None]
        mine = [name for name in names if name.query == self.query and name.last <= self.committed]
        small = [name for name in mine if (folder / str(name)).stat().st_size < SMALL_BYTES]
        return sorted(small, key=lambda name: (name.first, name.last, name.number))

    def _merge(self, sources: list[Path], staged: Path) -> list[Path] | None:
        """Writes the rows of all sources to new files; None if stopped on the way."""
        schema = pq.read_schema(sources[0])
        written: list[Path] = []
        writer: pq.ParquetWriter | None = None
        try:
            for rows in row_groups(sources, schema):
                if self.stopped():
                    return None
                if writer is None or written[-1].stat().st_size >= FILE_BYTES:
                    if writer is not None:
                        writer.close()
                    written.append(staged / str(len(written)))
                    writer = pq.ParquetWriter(written[-1], schema, compression="zstd")
                writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        finally:
            if writer is not None:
                writer.close()
        return written

    def _named(self, small: list[FileName], merged: list[Path], taken: set[str]) -> dict[str, Path]:
        first, last = min(name.first for name in small), max(name.last for name in small)
        names = (str(FileName(self.query, first, last, number, compacted=True)) for number in range(1 << 20))
        free = (name for name in names if name not in taken)
        return dict(zip(free, merged, strict=False))


def row_groups(sources: list[Path], schema: pa.Schema) -> Iterator[pa.Table]:
    """Gives the rows of the files in order, gathered to tables of about the size of a row group."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for source in sources:
        for batch in _batches(source, schema):
            held.append(batch)
            held_bytes += batch.nbytes
            if held_bytes >= ROW_GROUP_BYTES:
                yield pa.Table.from_batches(held, schema)
                held, held_bytes = [], 0
    if held:
        yield pa.Table.from_batches(held, schema)


def _batches(source: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(source) as file:
            if not file.schema_arrow.equals(schema):
                raise DamagedTable(f"{source} has other columns than the files beside it: move it out of the table.")
            size_bytes = sum(file.metadata.row_group(n).total_byte_size for n in range(file.metadata.num_row_groups))
            rows = max(1, (8 << 20) * int(file.metadata.num_rows) // max(1, size_bytes))
            yield from file.iter_batches(min(65_536, rows))
    except pa.ArrowException as error:
        raise DamagedTable(f"{source} cannot be read ({error}): restore it from a copy.") from error


def _count(files: list[Path]) -> int:
    return sum(pq.read_metadata(file).num_rows for file in files)


def is_closed(folder: Path, now: datetime) -> bool:
    """Tells whether the day of a partition is over."""
    day = next((part[4:] for part in folder.parts if part.startswith("day=")), None)
    return day is not None and date.fromisoformat(day) < (now.astimezone(UTC) - LATE).date()
