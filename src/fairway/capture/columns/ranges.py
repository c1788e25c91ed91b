"""One capture cut into byte ranges that can be read apart, and the proof that together they are the whole.

A range begins at the first record from its cut on, which nobody can know without reading all before it. So each is
probed from a guess; a range whose guess is not where the one before ended is probed again from there. What comes out
depends on the file alone, wherever the cuts fall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from fairway.capture.columns.pcap import pcap_form
from fairway.capture.columns.pcapng import pcapng_form
from fairway.capture.columns.records import Form, Gap, Position, Records, Run, gap_record
from fairway.capture.pcapng import SECTION_HEADER
from fairway.core.errors import DamagedCapture

HEAD_BYTES = 24
"""The first bytes of a file, from which its form is known."""


@dataclass(frozen=True, slots=True)
class Range:
    """Records that start from `position` on and before `stop`; so many records and gaps of the file lie before them."""

    position: Position
    stop: int
    frames_before: int
    gaps_before: int = 0


@dataclass(frozen=True, slots=True)
class Probe:
    """What a walk over one range found: where it started and ended, and how many records and gaps it counted."""

    start: Position
    stop: int
    end: Position
    frames: int
    gaps: int = 0


def form_of(head: bytes) -> Form:
    """Return whether a file is pcap or pcapng, by its first bytes; raise `DamagedCapture` for anything else."""
    if not head:
        raise DamagedCapture("the file is empty")
    if head[:4] == SECTION_HEADER.to_bytes(4):
        return pcapng_form(head)
    return pcap_form(head)


def cuts(start: int, size: int, range_bytes: int) -> list[tuple[int, int]]:
    """Cut a file into ranges of about the same size, at least one."""
    count = max(1, -(-(size - start) // range_bytes))
    edges = [start + (size - start) * number // count for number in range(count + 1)]
    return list(pairwise(edges))


def probe(form: Form, data: memoryview, cut: int, stop: int) -> Probe:
    """Walk over a range from a guess; the file's first range needs none."""
    start = form.start if cut <= form.start.offset else form.guess(data, cut, stop)
    return probe_from(form, data, start, stop)


def probe_from(form: Form, data: memoryview, start: Position, stop: int) -> Probe:
    """Walk over a range from a known position."""
    frames = gaps = 0
    steps = form.walk(data, start, stop)
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            return Probe(start, stop, end.value, frames, gaps)
        if isinstance(step, Run):
            frames += len(step.offsets)
        else:
            gaps += 1


def joined(start: Position, probes: Sequence[Probe], again: Callable[[Position, int], Probe]) -> list[Range]:
    """Return the exact ranges, without those in which nothing starts; `again` walks one whose guess was wrong."""
    ranges: list[Range] = []
    position, frames, gaps = start, 0, 0
    for guessed in probes:
        if position.offset >= guessed.stop:
            continue
        right = guessed.start.key == position.key
        found = guessed if right else again(replace(position, sections=0), guessed.stop)
        ranges.append(Range(replace(position, sections=0), guessed.stop, frames, gaps))
        frames, gaps = frames + found.frames, gaps + found.gaps
        position = _carried(position, found.end) if right else found.end
    return ranges


def walked(form: Form, data: memoryview, edges: Sequence[tuple[int, int]]) -> list[Range]:
    """Return the exact ranges by walking over the whole file, without a guess."""
    nowhere = Position(-1, form.start.order)
    unknown = [Probe(nowhere, stop, nowhere, 0) for _, stop in edges]
    return joined(form.start, unknown, partial(probe_from, form, data))


def _carried(before: Position, end: Position) -> Position:
    """Return the position at a range's end with what the range could not know: the interfaces before it."""
    if end.sections:
        return end
    return replace(end, interfaces=(*before.interfaces, *end.interfaces))


def records(form: Form, data: memoryview, part: Range) -> Iterator[Records]:
    """Return the records of a range, batch by batch."""
    for step in form.walk(data, part.position, part.stop):
        yield gap_record(step) if isinstance(step, Gap) else form.records(data, step)
