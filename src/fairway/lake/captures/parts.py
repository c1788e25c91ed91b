"""What one task reads: a file, or a verified range of it, as batches of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fairway.capture.columns.ranges import HEAD_BYTES, Range, cuts, form_of, records, walked
from fairway.capture.columns.records import CUT_OFF, NO_TIME, TROUBLES, Form, Gap, gap_record
from fairway.core.errors import DamagedCapture
from fairway.lake.captures.files import CaptureFile, number_of, opened
from fairway.lake.captures.merged import with_pieces
from fairway.lake.captures.rows import Batch

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
        return self.file.size_bytes if self.range is None else self.range.stop - self.range.place.offset

    @property
    def edges(self) -> tuple[int, int | None]:
        """The bytes that are read."""
        return (0, None) if self.range is None else (self.range.place.offset, self.range.stop)


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
        frames, gaps, trouble = span.frames_before, span.gaps_before, 0
        number = number_of(part.file_id)
        for found in records(form, data, span):
            numbers = frames + np.cumsum(found.counted)
            batch = Batch(data, found, numbers, number)
            batch.gaps = gaps + np.cumsum(~found.counted)
            frames, gaps, trouble = int(numbers[-1]), int(batch.gaps[-1]), int(found.trouble[-1])
            yield with_pieces(batch) if pieces else batch
        if problem is not None and not trouble:
            end = gap_record(Gap(len(data), 0, TROUBLES.index(CUT_OFF)))
            yield Batch(data, end, np.array([frames], dtype=np.int64), number)


def times(parts: Sequence[Part]) -> tuple[int | None, int | None, str | None]:
    """Return when a file begins and ends, in nanoseconds since 1970, and what is wrong with its packing, if anything.

    The parts are those of the file; of an object, which is somewhere else, only the first and the last are looked at.
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
