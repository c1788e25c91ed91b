"""Which of the named files are captures that a lake does not hold yet, and what must be known of them before."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fairway.core.errors import DamagedCapture
from fairway.lake.analysis.episodes import Span
from fairway.lake.captures.files import CaptureFile, identity, listed, seen
from fairway.lake.captures.parts import Part, times
from fairway.lake.captures.planning import planned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNTIMED = Span(0, 0)
"""Of a capture whose records have no times; their episodes are open anyway."""


@dataclass(frozen=True, slots=True)
class NewCapture:
    """A capture that is to be read."""

    file: CaptureFile
    file_id: str
    parts: Sequence[Part]
    span: Span


@dataclass(frozen=True, slots=True)
class Survey:
    """What became of the files that were named."""

    new: list[NewCapture] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    """Paths of files whose content the lake holds."""
    problems: list[str] = field(default_factory=list)
    """A sentence for every file that cannot be read, or not to its end."""


def survey(spark: SparkSession, paths: Iterable[str], held: Collection[str], part_bytes: int) -> Survey:
    """Look at files; `held` are the identities of those that need not be read."""
    found = Survey()
    files: dict[str, CaptureFile] = {}
    for path in listed(paths):
        try:
            file = seen(path)
            file_id = identity(file)
        except DamagedCapture as error:
            found.problems.append(str(error))
            continue
        if file_id in held or file_id in files:
            found.known.append(path)
        else:
            files[file_id] = file
    parts: dict[str, list[Part]] = {file_id: [] for file_id in files}
    for part in planned(spark, [(file, file_id) for file_id, file in files.items()], part_bytes):
        parts[part.file_id].append(part)
    for file_id, file in files.items():
        try:
            first_ns, last_ns, problem = times(parts[file_id])
        except DamagedCapture as error:
            found.problems.append(str(error))
            continue
        if problem is not None:
            found.problems.append(f"{file.path} was read as far as it goes: {problem}.")
        # In whole microseconds, as the table keeps them.
        span = (
            UNTIMED
            if first_ns is None or last_ns is None
            else Span(*(at // 1_000 * 1_000 for at in (first_ns, last_ns)))
        )
        found.new.append(NewCapture(file, file_id, parts[file_id], span))
    return found
