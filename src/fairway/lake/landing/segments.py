"""The segments that gateways have sealed: which there are, in which order, and that none is missing.

A position is a gateway's next offset. Gateways seal in order and give a segment its name in one step, so whoever sees
a segment finds all earlier ones, unless the stream has removed them after landing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from fairway.core.errors import FairwayError
from fairway.core.layout import segment_name, segment_range
from fairway.lake import shared_out
from fairway.store.locations import Location

GROUP_BYTES = 64 << 20
"""What one Spark task reads; a Python task costs about 80 ms of a core, so small segments share one."""

SEGMENT_BYTES_MIN = 1 << 20
"""What a segment counts at the least in a batch and in a task: a small one takes as long to find and open."""

Positions = Mapping[str, int]


class DamagedLanding(FairwayError):
    """A segment is missing or does not hold what its name says; the message names it."""


class Segment(NamedTuple):
    """One sealed file; both offsets are inclusive."""

    gateway: str
    first: int
    last: int

    @property
    def name(self) -> str:
        """The name of the file below `landing/`."""
        return f"{self.gateway}/{segment_name(self.first, self.last)}"


def gateways(landing: Location) -> list[str]:
    """Return the names of the gateways that have sealed anything, or will."""
    return [name for name in landing.names() if not name.startswith(".")]


def listed(landing: Location, gateway: str, since: int = 0) -> list[Segment]:
    """Return a gateway's segments, in order; `since` leaves out those that begin below a position."""
    found = map(segment_range, (landing / gateway).names(f"{since:020}" if since else ""))
    return sorted(Segment(gateway, *range_) for range_ in found if range_ is not None)


def chain(landing: Location, gateway: str, position: int, end: int | None = None) -> Iterator[Segment]:
    """Return the segments from a position on, without a gap, up to `end` or to the newest."""
    known = _chainable(landing, gateway, position, end)
    while position in known and position != end:
        yield known[position]
        position = known[position].last + 1
    if end is not None and position != end:
        raise _gap(landing, gateway, position, end)


def _chainable(landing: Location, gateway: str, position: int, end: int | None) -> dict[int, Segment]:
    """Return segments by their first offsets, from a position on; beyond it there is no gap."""
    for _ in range(2):
        # A store lists from a name on: what lies below is checked by maintenance, not every few seconds.
        found = listed(landing, gateway, 0 if landing.is_folder else position)
        if end is None:
            check_landed(landing, gateway, position, found)
        later = [one for one in found if one.first >= position and (end is None or one.last < end)]
        known = {one.first: one for one in later}
        reached = position
        while reached in known:
            reached = known[reached].last + 1
        beyond = [one.first for one in later if one.first > reached]
        # A folder that changes while it is listed may show a later name and not an earlier one: look twice.
        if not beyond:
            return known
    raise _gap(landing, gateway, reached, min(beyond))


def _gap(landing: Location, gateway: str, first: int, end: int) -> DamagedLanding:
    return DamagedLanding(
        f"Offsets {first} to {end - 1} of gateway {gateway} are missing in {landing / gateway}: "
        "put the removed segments back, or restore the whole lake from one copy."
    )


def check_landed(landing: Location, gateway: str, position: int, found: Sequence[Segment]) -> None:
    """Refuse segments, of those found, below a position that the stream cannot have landed; names are enough to tell.

    Those that it landed are removed from the oldest on, and never the newest: what is left of them joins, and ends at
    the position. Anything else comes from a journal that began anew.
    """
    below = [(one.first, one.last) for one in found if one.first < position]
    for (first, last), (follower, _) in pairwise([*below, (position, position)]):
        # One that is gone by now was being removed while the folder was listed, and so was its follower.
        if last + 1 != follower and segment_name(first, last) in (landing / gateway).names():
            raise _foreign(landing, gateway, (first, last), position)


def _foreign(landing: Location, gateway: str, found: tuple[int, int], position: int) -> DamagedLanding:
    return DamagedLanding(
        f"{landing / gateway}/{segment_name(*found)} holds offsets that were given before (gateway {gateway} has "
        f"landed up to {position - 1}): restart that gateway, which then goes on above, and move this segment to a "
        "lake of its own to land it there."
    )


def ends(landing: Location) -> dict[str, int]:
    """Return the position behind each gateway's newest segment."""
    found = {gateway: listed(landing, gateway) for gateway in gateways(landing)}
    return {gateway: max(one.last for one in there) + 1 for gateway, there in found.items() if there}


def newest(
    landing: Location, start: Positions, *, target: Positions | None = None, bytes_max: int | None = None
) -> dict[str, int]:
    """Return how far a batch from `start` goes: to the newest segments, to `target`, or until it holds `bytes_max`.

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
                taken_bytes += _weight_bytes(landing, segment)
    return dict(sorted(positions.items()))


def _weight_bytes(landing: Location, segment: Segment) -> int:
    return max(SEGMENT_BYTES_MIN, landing.file(segment.name).size_bytes)


def groups(landing: Location, start: Positions, end: Positions) -> list[list[Segment]]:
    """Cut what lies between two positions into groups of segments, one for each task; always in the same way."""
    # A gateway that has nothing new may be gone for good, folder and all.
    names = sorted(name for name in end if end[name] != start.get(name, 0))
    between = (segment for name in names for segment in chain(landing, name, start.get(name, 0), end[name]))
    return shared_out(between, lambda segment: _weight_bytes(landing, segment), GROUP_BYTES)
