"""What one task reads: a file, or a verified range of it, as batches of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fairway.capture.columns.ranges import HEAD_BYTES, Range, cuts, form_of, records, walked
from fairway.capture.columns.records import CUT_OFF, TROUBLES, Gap, gap_record
from fairway.core.errors import DamagedCapture
from fairway.lake.captures.files import CaptureFile, opened
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


def edges(file: CaptureFile, part_bytes: int) -> list[tuple[int, int]]:
    """Cuts a plain file into byte ranges; a compressed one can only be read from its start."""
    return [(0, file.size_bytes)] if file.compressed else cuts(0, file.size_bytes, part_bytes)


def exact_parts(file: CaptureFile, file_id: str, part_bytes: int) -> list[Part]:
    """Cuts a file into parts by walking over all of it, if it is longer than one."""
    pieces = edges(file, part_bytes)
    if len(pieces) == 1:
        return [Part(file, file_id)]
    with opened(file) as (data, _):
        return [Part(file, file_id, found) for found in walked(form_of(bytes(data[:HEAD_BYTES])), data, pieces)]


def batches(part: Part, problems: list[str]) -> Iterator[Batch]:
    """Reads a part; raises `DamagedCapture` if it is none. What is wrong with its packing is a row and a sentence."""
    with opened(part.file) as (data, problem):
        try:
            form = form_of(bytes(data[:HEAD_BYTES]))
        except DamagedCapture as error:
            raise DamagedCapture(f"{part.file.path} is no capture that Fairway reads: {problem or error}.") from None
        span = part.range or Range(form.start, len(data), 0)
        frames, trouble = span.frames_before, 0
        for found in records(form, data, span):
            numbers = frames + np.cumsum(found.counted)
            frames, trouble = int(numbers[-1]), int(found.trouble[-1])
            yield with_pieces(Batch(data, found, numbers, part.file_id, part.file.name))
        if problem is not None:
            problems.append(f"{part.file.path} was read as far as it goes: {problem}.")
            if not trouble:
                end = gap_record(Gap(len(data), 0, TROUBLES.index(CUT_OFF)))
                yield Batch(data, end, np.array([frames], dtype=np.int64), part.file_id, part.file.name)
