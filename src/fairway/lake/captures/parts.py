"""What one task reads: a file, or a range of it that was verified against its neighbours, as batches of rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairway.capture.columns.ranges import (
    HEAD_BYTES,
    Probe,
    Range,
    cuts,
    form_of,
    joined,
    probe,
    probe_from,
    records,
    walked,
)
from fairway.capture.columns.records import CUT_OFF, NO_TIME, Form, Gap, Position, gap_record
from fairway.core.errors import DamagedCapture
from fairway.lake.captures.files import CaptureFile, number_of, opened
from fairway.lake.captures.merged import with_pieces
from fairway.lake.captures.rows import Batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PART_BYTES = 96 << 20
"""How much of a plain file one task reads: enough to be worth a Python worker, little enough to be spread."""


@dataclass(frozen=True, slots=True)
class Part:
    """A range of a file; without one all of it."""

    file: CaptureFile
    file_id: str
    range: Range | None = None

    @property
    def size_bytes(self) -> int:
        """About how much is read."""
        return self.file.size_bytes if self.range is None else self.range.stop - self.range.position.offset

    @property
    def edges(self) -> tuple[int, int | None]:
        """The bytes that are read."""
        return (0, None) if self.range is None else (self.range.position.offset, self.range.stop)


def edges(file: CaptureFile, part_bytes: int) -> list[tuple[int, int]]:
    """Cut a plain file into byte ranges; a compressed one can only be read from its start."""
    return [(0, file.size_bytes)] if file.compressed else cuts(0, file.size_bytes, part_bytes)


def exact_parts(file: CaptureFile, file_id: str, part_bytes: int) -> list[Part]:
    """Cut a file into parts by walking over all of it, if it is longer than one."""
    pieces = edges(file, part_bytes)
    if len(pieces) == 1:
        return [Part(file, file_id)]
    with opened(file) as (data, _):
        return [Part(file, file_id, found) for found in walked(form_of(bytes(data[:HEAD_BYTES])), data, pieces)]


def batches(part: Part, *, pieces: bool = False) -> Iterator[Batch]:
    """Read a part; raise `DamagedCapture` if it is none. What is wrong with its packing is a row at its end.

    With `pieces` there are rows for the datagrams that a record may hold several of.
    """
    with opened(part.file, *part.edges) as (data, problem):
        form = _form(part, data, problem)
        span = part.range or Range(form.start, len(data), 0)
        frames, gaps, damage = span.frames_before, span.gaps_before, 0
        number = number_of(part.file_id)
        for found in records(form, data, span):
            numbers = frames + np.cumsum(found.counted)
            batch = Batch(data, found, numbers, number)
            batch.gaps = gaps + np.cumsum(~found.counted)
            frames, gaps, damage = int(numbers[-1]), int(batch.gaps[-1]), int(found.damage[-1])
            yield with_pieces(batch) if pieces else batch
        if problem is not None and not damage:
            end = gap_record(Gap(len(data), 0, CUT_OFF))
            yield Batch(data, end, np.array([frames], dtype=np.int64), number)


def times(parts: Sequence[Part]) -> tuple[int | None, int | None, str | None]:
    """Return when a file begins and ends, in nanoseconds since 1970, and what is wrong with its packing, if anything.

    The parts are those of the file; of an object, which is somewhere else, only the first and the last are checked.
    Raises `DamagedCapture` if it is no capture.
    """
    found: list[int] = []
    problems: list[str | None] = [None]
    for part in (parts[0], parts[-1]) if len(parts) > 1 and parts[0].file.is_object else parts:
        with opened(part.file, *part.edges) as (data, problem):
            problems.append(problem)
            form = _form(part, data, problem)
            for batch in records(form, data, part.range or Range(form.start, len(data), 0)):
                known = batch.at_ns[batch.at_ns != NO_TIME]
                if len(known):
                    found += [int(known.min()), int(known.max())]
    return min(found, default=None), max(found, default=None), problems[-1]


def _form(part: Part, data: memoryview, problem: str | None) -> Form:
    try:
        return form_of(bytes(data[:HEAD_BYTES]))
    except DamagedCapture as error:
        raise DamagedCapture(f"{part.file.path} is no capture that Fairway reads: {problem or error}.") from None


TASKS_PER_CORE = 4
"""More tasks than this share the work no better, and each takes a while to begin."""
Named = tuple[CaptureFile, str]
"""A file and the identity of its content."""


WALKED_BYTES_MAX = 2 << 30
"""Files that are longer together are probed by tasks; a walk over so much takes less than tasks take to start."""


def planned(spark: SparkSession, files: Sequence[Named], part_bytes: int) -> list[Part]:
    """Cut files into parts that are together exactly the files; files of one part are not opened."""
    if sum(file.size_bytes for file, _ in files) <= WALKED_BYTES_MAX and not any(file.is_object for file, _ in files):
        return [part for file, file_id in files for part in _walked(file, file_id, part_bytes)]
    return _probed_apart(spark, files, part_bytes)


def _walked(file: CaptureFile, file_id: str, part_bytes: int) -> list[Part]:
    try:
        return exact_parts(file, file_id, part_bytes)
    except DamagedCapture:
        return [Part(file, file_id)]  # whoever reads the file says what is wrong with it


def _probed_apart(spark: SparkSession, files: Sequence[Named], part_bytes: int) -> list[Part]:
    pieces = [(file, cut, stop) for file, _ in files for cut, stop in _several(file, part_bytes)]
    tasks = min(len(pieces), TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    answers = spark.sparkContext.parallelize(pieces, tasks).map(_probed).collect() if pieces else []
    probes: dict[str, list[Probe]] = defaultdict(list)
    for (file, _, _), answer in zip(pieces, answers, strict=True):
        if answer is not None:
            probes[file.path].append(answer)
    parts: list[Part] = []
    for file, file_id in files:
        found = probes.get(file.path)
        parts += _verified(file, file_id, found) if found else [Part(file, file_id)]
    return parts


def _several(file: CaptureFile, part_bytes: int) -> list[tuple[int, int]]:
    pieces = edges(file, part_bytes)
    return pieces if len(pieces) > 1 else []


def _probed(piece: tuple[CaptureFile, int, int]) -> Probe | None:
    file, cut, stop = piece
    with opened(file, cut, stop) as (data, _):
        try:
            return probe(form_of(bytes(data[:HEAD_BYTES])), data, cut, stop)
        except DamagedCapture:
            return None  # whoever reads the file says what is wrong with it


def _verified(file: CaptureFile, file_id: str, probes: Sequence[Probe]) -> list[Part]:
    def again(position: Position, stop: int) -> Probe:
        with opened(file, position.offset, stop) as (data, _):
            return probe_from(form, data, position, stop)

    with opened(file, 0, 0) as (data, _):
        form = form_of(bytes(data[:HEAD_BYTES]))
    return [Part(file, file_id, found) for found in joined(form.start, probes, again)]
