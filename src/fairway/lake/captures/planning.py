"""Large files cut into parts: walked over here, or each cut probed by a task and verified one against the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fairway.capture.columns.ranges import HEAD_BYTES, Probe, Range, form_of, joined, probe, probe_from
from fairway.capture.columns.records import Place
from fairway.capture.frames import Interface
from fairway.core.errors import DamagedCapture
from fairway.lake.captures.files import CaptureFile, opened
from fairway.lake.captures.jobs import each
from fairway.lake.captures.parts import Part, edges, exact_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Named = tuple[CaptureFile, str]
"""A file and the identity of its content."""


WALKED_BYTES_MAX = 2 << 30
"""Files that are longer together are probed by tasks; a walk over so much takes less than tasks take to start."""


def planned(spark: SparkSession, files: Sequence[Named], part_bytes: int) -> list[Part]:
    """Cuts files into parts that are together exactly the files; files of one part are not looked at."""
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
    answers = each(spark, pieces, _probed)
    probes: dict[str, list[Probe]] = defaultdict(list)
    for (file, _, _), answer in zip(pieces, answers, strict=True):
        if "start" in answer:
            probes[file.path].append(_probe(answer))
    parts: list[Part] = []
    for file, file_id in files:
        found = probes.get(file.path)
        parts += _verified(file, file_id, found) if found else [Part(file, file_id)]
    return parts


def _several(file: CaptureFile, part_bytes: int) -> list[tuple[int, int]]:
    pieces = edges(file, part_bytes)
    return pieces if len(pieces) > 1 else []


def _probed(piece: tuple[CaptureFile, int, int]) -> dict[str, Any]:
    file, cut, stop = piece
    with opened(file, cut, stop) as (data, _):
        try:
            return asdict(probe(form_of(bytes(data[:HEAD_BYTES])), data, cut, stop))
        except DamagedCapture:
            return {}  # whoever reads the file says what is wrong with it


def _verified(file: CaptureFile, file_id: str, probes: Sequence[Probe]) -> list[Part]:
    def again(place: Place, stop: int) -> Probe:
        with opened(file, place.offset, stop) as (data, _):
            return probe_from(form, data, place, stop)

    with opened(file, 0, 0) as (data, _):
        form = form_of(bytes(data[:HEAD_BYTES]))
    return [Part(file, file_id, found) for found in joined(form.start, probes, again)]


def _probe(answer: dict[str, Any]) -> Probe:
    return Probe(place(answer["start"]), answer["stop"], place(answer["end"]), answer["frames"], answer["gaps"])


def place(fields: dict[str, Any]) -> Place:
    """Return the place that was written as JSON."""
    interfaces = tuple(Interface(**interface) for interface in fields["interfaces"])
    return Place(fields["offset"], fields["order"], interfaces, fields["sections"])


def range_of(fields: dict[str, Any]) -> Range:
    """Return the range that was written as JSON."""
    return Range(place(fields["place"]), fields["stop"], fields["frames_before"], fields["gaps_before"])
