"""A sweep: the chunks of its cells, spread over Spark, and what they leave on disk, in a folder of its own.

    cells.jsonl                 one cell a line: its chunk and what it consists of; the line is its number
    runs/chunk-000007.parquet   the rows of one chunk, there when the chunk is done
    staging/                    files that are being written

A chunk is fixed when its cells are added, and its file is written aside and renamed. So a chunk that is run twice (a
task that was tried again, a driver that was killed while its workers went on) replaces a file by the same one, and
what a reader sees is whole chunks, each once. Each task runs one chunk and publishes its file itself; the driver gets
nothing but counts. Whoever starts again, after whatever was killed, runs the chunks that have no file.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from fairway.core.errors import FairwayError
from fairway.core.tables import RUNS
from fairway.lake.lab.cells import Cell, measured
from fairway.lake.schemas import arrow_schema
from fairway.store.files import publish_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHUNK_S = 4.0
"""Estimated work of a chunk at the most: long beside the cost of a task, short beside a person's patience."""
CHUNKS_MIN = 16
"""A small sweep is cut finer, so that its last task does not leave the other cores idle for long."""
CHUNK_CELLS_MAX = 512


class BadLabFolder(FairwayError):
    """The folder cannot hold a sweep, or holds something else."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Cells that are run in one task."""

    number: int
    cells: tuple[tuple[int, Cell], ...]

    @property
    def name(self) -> str:
        return f"chunk-{self.number:06}.parquet"


class LabFolder:
    """The folder of a sweep."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs = path / "runs"
        self.staging = path / "staging"
        self._cells = path / "cells.jsonl"

    def prepare(self) -> None:
        """Make the folder, or raise `BadLabFolder` if it holds something else."""
        try:
            if self.path.exists() and not self._cells.exists() and any(self.path.iterdir()):
                raise BadLabFolder(f"{self.path} holds something that is not a sweep; name an empty or new folder.")
            self.runs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadLabFolder(f"{self.path} cannot be used: {error.strerror}.") from error

    def chunks(self) -> list[Chunk]:
        """Return all chunks; raise `BadLabFolder` if there is no sweep."""
        if not self._cells.exists():
            raise BadLabFolder(f"{self.path} holds no sweep; `fairway lab run GRID.toml --out {self.path}` makes one.")
        grouped: dict[int, list[tuple[int, Cell]]] = {}
        for number, entry in enumerate(map(json.loads, self._cells.read_text().splitlines())):
            grouped.setdefault(entry["chunk"], []).append((number, Cell.from_plain(entry["cell"])))
        return [Chunk(number, tuple(cells)) for number, cells in grouped.items()]

    def chunk(self, number: int, first: int, count: int) -> Chunk:
        """Return the chunk whose cells are these, without reading the others."""
        with self._cells.open() as file:
            entries = [json.loads(line) for line in islice(file, first, first + count)]
        return Chunk(
            number, tuple((first + index, Cell.from_plain(entry["cell"])) for index, entry in enumerate(entries))
        )

    def cell(self, number: int) -> Cell:
        """Return the cell of that number; raise `BadLabFolder` if there is none."""
        cells = {index: cell for chunk in self.chunks() for index, cell in chunk.cells}
        if number not in cells:
            raise BadLabFolder(f"{self.path} has the cells 0 to {len(cells) - 1}; there is no cell {number}.")
        return cells[number]

    def row(self, number: int) -> dict[str, object] | None:
        """Return what the table says of a cell, or None if it was not run yet."""
        import pyarrow.dataset as ds

        files = [str(self.runs / name) for name in sorted(self.done())]
        found = ds.dataset(files, format="parquet").to_table(filter=ds.field("cell") == number) if files else None
        return found.to_pylist()[0] if found else None

    def add(self, cells: Iterable[Cell]) -> int:
        """Append the cells that are not there yet, cut into chunks; return how many they are."""
        chunks = self.chunks() if self._cells.exists() else []
        known = {cell.key for chunk in chunks for _, cell in chunk.cells}
        fresh = [cell for cell in cells if cell.key not in known]
        if fresh or not chunks:
            kept = self._cells.read_text() if self._cells.exists() else ""
            lines = (
                json.dumps({"chunk": number, "cell": cell.plain()}, separators=(",", ":"))
                for number, cell in _chunked(fresh, len(chunks))
            )
            publish(self._cells, (kept + "".join(f"{line}\n" for line in lines)).encode(), self.staging)
        return len(fresh)

    def pending(self) -> list[Chunk]:
        """Return the chunks that have no file yet, the largest first: the last tasks to end are then short."""
        done = self.done()
        chunks = [chunk for chunk in self.chunks() if chunk.name not in done]
        return sorted(chunks, key=lambda chunk: -sum(cell.cost_s for _, cell in chunk.cells))

    def count(self) -> int:
        """Count the cells of all grids that were given to this folder."""
        return sum(len(chunk.cells) for chunk in self.chunks())

    def done(self) -> set[str]:
        """Return the names of the chunks that have a file."""
        return {file.name for file in self.runs.glob("chunk-*.parquet")}


def _chunked(cells: list[Cell], first: int) -> Iterator[tuple[int, Cell]]:
    chunk_s = min(CHUNK_S, sum(cell.cost_s for cell in cells) / CHUNKS_MIN)
    number, cost_s, count = first, 0.0, 0
    for cell in cells:
        if count and (cost_s + cell.cost_s > chunk_s or count == CHUNK_CELLS_MAX):
            number, cost_s, count = number + 1, 0.0, 0
        cost_s, count = cost_s + cell.cost_s, count + 1
        yield number, cell


def run_chunk(chunk: Chunk, folder: LabFolder) -> int:
    """Run the cells of a chunk and publish their rows; return how many they are."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [measured(cell, number) for number, cell in chunk.cells]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=arrow_schema(RUNS)), sink)
    publish(folder.runs / chunk.name, sink.getvalue().to_pybytes(), folder.staging)
    return len(rows)


def publish(target: Path, content: bytes, staging: Path) -> None:
    """Write a file aside, sync it and rename it: a reader sees the whole of it or nothing."""
    staging.mkdir(exist_ok=True)
    # Two tasks may publish one chunk at the same time: each needs a file of its own to write.
    descriptor, aside = tempfile.mkstemp(dir=staging)
    with open(descriptor, "wb") as file:
        file.write(content)
    publish_file(Path(aside), target)


def sweep(spark: SparkSession, folder: LabFolder) -> int:
    """Run what is missing; return the number of cells that were run."""
    pending = folder.pending()
    if not pending:
        return 0
    cells = sum(len(chunk.cells) for chunk in pending)
    spans = [(chunk.number, chunk.cells[0][0], len(chunk.cells)) for chunk in pending]
    total = spark.sparkContext.parallelize(spans, len(spans)).map(partial(_run_span, folder.path.absolute())).sum()
    if total != cells:
        raise FairwayError(f"{total} cells were run where {cells} were to be; run the same command again.")
    return cells


def _run_span(path: Path, span: tuple[int, int, int]) -> int:
    """Do the work of a task, which gets names, and reads the cells themselves from the folder."""
    folder = LabFolder(path)
    return run_chunk(folder.chunk(*span), folder)
