"""The segments that gateways have sealed: which there are, in which order, and that none is missing.

A position is a gateway's next offset. Gateways seal in order and give a segment its name in one step, so whoever sees
a segment finds all earlier ones, unless the stream has removed them after landing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from fairway.core.errors import FairwayError
from fairway.core.layout import segment_name, segment_range

GROUP_BYTES = 64 << 20
"""What one Spark task reads; a Python task costs about 80 ms of a core, so small segments share one."""

Positions = Mapping[str, int]


class DamagedLanding(FairwayError):
    """A segment is missing or does not hold what its name says; the message names it."""


class Segment(NamedTuple):
    """One sealed file; both offsets are inclusive."""

    gateway: str
    first: int
    last: int
    path: str
    size_bytes: int


def gateways(landing: Path) -> list[str]:
    """Lists the gateways that have sealed anything, or will."""
    if not landing.is_dir():
        return []
    return sorted(entry.name for entry in os.scandir(landing) if entry.is_dir() and not entry.name.startswith("."))


def ranges(landing: Path, gateway: str) -> list[tuple[int, int]]:
    """Lists the offset ranges of a gateway's segments, in order."""
    found = (segment_range(name) for name in os.listdir(landing / gateway))
    return sorted(range_ for range_ in found if range_ is not None)


def chain(landing: Path, gateway: str, position: int, end: int | None = None) -> Iterator[Segment]:
    """Gives the segments from a position on, without a gap, up to `end` or to the newest."""
    known = _chainable(landing, gateway, position, end)
    while position in known and position != end:
        last = known[position]
        path = landing / gateway / f"{position:020}-{last:020}.parquet"
        yield Segment(gateway, position, last, str(path), path.stat().st_size)
        position = last + 1
    if end is not None and position != end:
        raise _gap(landing, gateway, position, end)


def _chainable(landing: Path, gateway: str, position: int, end: int | None) -> dict[int, int]:
    """Gives last offsets by first ones, of the segments from a position on; beyond it there is no gap."""
    for _ in range(2):
        found = ranges(landing, gateway)
        if end is None:
            check_landed(landing, gateway, position, found)
        later = [r for r in found if r[0] >= position and (end is None or r[1] < end)]
        known = dict(later)
        reached = position
        while reached in known:
            reached = known[reached] + 1
        beyond = [first for first, _ in later if first > reached]
        # A folder that changes while it is listed may show a later name and not an earlier one: look twice.
        if not beyond:
            return known
    raise _gap(landing, gateway, reached, min(beyond))


def _gap(landing: Path, gateway: str, first: int, end: int) -> DamagedLanding:
    return DamagedLanding(
        f"Offsets {first} to {end - 1} of gateway {gateway} are missing in {landing / gateway}: "
        "put the removed segments back, or restore the whole lake from one copy."
    )


def check_landed(landing: Path, gateway: str, position: int, found: Sequence[tuple[int, int]]) -> None:
    """Refuses segments, of those found, below a position that the stream cannot have landed; names are enough to tell.

    Those that it landed are removed from the oldest on, and never the newest: what is left of them joins, and ends at
    the position. Anything else comes from a journal that began anew.
    """
    below = [one for one in found if one[0] < position]
    for (first, last), (follower, _) in pairwise([*below, (position, position)]):
        # One that is gone by now was being removed while the folder was listed, and so was its follower.
        if last + 1 != follower and (landing / gateway / segment_name(first, last)).exists():
            raise _foreign(landing, gateway, (first, last), position)


def _foreign(landing: Path, gateway: str, found: tuple[int, int], position: int) -> DamagedLanding:
    return DamagedLanding(
        f"{landing / gateway / segment_name(*found)} holds offsets that were given before (gateway {gateway} has "
        f"landed up to {position - 1}): restart that gateway, which then goes on above, and move this segment to a "
        "lake of its own to land it there."
    )


def ends(landing: Path) -> dict[str, int]:
    """Gives the position behind each gateway's newest segment."""
    found = {gateway: ranges(landing, gateway) for gateway in gateways(landing)}
    return {gateway: max(last for _, last in listed) + 1 for gateway, listed in found.items() if listed}


def newest(
    landing: Path, start: Positions, *, target: Positions | None = None, bytes_max: int | None = None
) -> dict[str, int]:
    """Gives how far a batch from `start` goes: to the newest segments, to `target`, or until it holds `bytes_max`.

    Gateways take turns, so that one with a backlog does not hold up the others. At least one segment is taken.
    """
    positions = dict(start)
    waiting = {gateway: chain(landing, gateway, positions.get(gateway, 0)) for gateway in gateways(landing)}
    taken_bytes = 0
    while waiting and (bytes_max is None or taken_bytes < bytes_max):
        for gateway in list(waiting):
            segment = next(waiting[gateway], None)
            if segment is None or (target is not None and segment.last >= target.get(gateway, 0)):
                del waiting[gateway]
            else:
                positions[gateway] = segment.last + 1
                taken_bytes += segment.size_bytes
    return dict(sorted(positions.items()))


def groups(landing: Path, start: Positions, end: Positions) -> list[list[Segment]]:
    """Cuts what lies between two positions into groups of segments, one for each task; always in the same way."""
    found: list[list[Segment]] = []
    size_bytes = GROUP_BYTES
    # A gateway that has nothing new may be gone for good, folder and all.
    for gateway in sorted(name for name in end if end[name] != start.get(name, 0)):
        for segment in chain(landing, gateway, start.get(gateway, 0), end[gateway]):
            if size_bytes + segment.size_bytes > GROUP_BYTES:
                found.append([])
                size_bytes = 0
            found[-1].append(segment)
            size_bytes += segment.size_bytes
    return found
