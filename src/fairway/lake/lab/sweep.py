"""Spreads the chunks of a sweep over Spark.

Each task runs one chunk and publishes its file itself; the driver gets nothing but counts. What is on disk is the
progress: whoever starts again, after whatever was killed, runs the chunks that have no file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from fairway.core.errors import FairwayError
from fairway.lake.lab.folder import Chunk, LabFolder, run_chunk

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Report = Callable[[int, int], None]
"""Takes the cells that are done and all cells."""

POLL_S = 0.5


def sweep(spark: SparkSession, folder: LabFolder, report: Report | None = None) -> int:
    """Runs what is missing; gives the number of cells that were run."""
    pending = folder.pending()
    if not pending:
        return 0
    cells = sum(len(chunk.cells) for chunk in pending)
    spans = [(chunk.number, chunk.cells[0][0], len(chunk.cells)) for chunk in pending]
    places = spark.range(0, len(spans), numPartitions=len(spans))
    ran = places.mapInArrow(_runner(folder.path.absolute(), spans), "cells BIGINT")
    with _Watch(folder, pending, report):
        total = ran.groupBy().sum("cells").collect()[0][0]
    if total != cells:
        raise FairwayError(f"{total} cells were run where {cells} were to be; run the same command again.")
    return cells


def _runner(
    path: Path, spans: list[tuple[int, int, int]]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Makes the function that a task runs; it carries names, and reads the cells themselves from the folder."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        folder = LabFolder(path)
        for batch in batches:
            counts = [run_chunk(folder.chunk(*spans[place]), folder) for place in batch.column("id").to_pylist()]
            yield pa.RecordBatch.from_pydict({"cells": pa.array(counts, pa.int64())})

    return run


class _Watch:
    """Reports how many cells are done, by looking at the folder, until the sweep ends."""

    def __init__(self, folder: LabFolder, pending: list[Chunk], report: Report | None) -> None:
        self._folder = folder
        self._sizes = {chunk.name: len(chunk.cells) for chunk in pending}
        self._report = report
        self._thread: Thread | None = None
        self._ended = Event()

    def __enter__(self) -> None:
        if self._report is not None:
            self._thread = Thread(target=self._watch, daemon=True)
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        assert self._report is not None
        total = sum(self._sizes.values())
        while not self._ended.wait(POLL_S):
            done = {file.name for file in self._folder.runs.glob("chunk-*.parquet")}
            self._report(sum(size for name, size in self._sizes.items() if name in done), total)
