"""What the peer accepts: which packets that are lost again and again it may drop, although the path carries them.

A packet may be above the peer's buffer: it is larger than all that were acknowledged. Or the peer ignores packets
whatever their size: all retransmissions of late were lost, which a path that delivers the rest hardly does.
"""

from __future__ import annotations

from fairway.core.recovery.runs import Run

REFUSALS = 5
"""So many packets that were lost again, and none that was repaired in between, show a peer that ignores some; where one
was ever repaired, so many round trips of that."""
ANY_BYTES = 1 << 30


class Acceptance:
    """What one peer was seen to accept; `bounded` where it drops in silence what is above its buffer."""

    def __init__(self, *, bounded: bool) -> None:
        self._bounded = bounded
        self._taken_bytes_max = 0 if bounded else ANY_BYTES
        """The largest packet that was acknowledged, where that matters."""
        self._refusals = 0
        """How often packets were lost again since one was acknowledged that had been lost."""
        self._refused_us = 0
        """When the count last rose."""
        self._has_repaired = False
        """Whether a packet that was lost was ever acknowledged."""

    def may_refuse(self, run: Run) -> bool:
        """Return whether the peer may never accept a run."""
        return run.segment_bytes > self._taken_bytes_max or self._refusals >= REFUSALS

    def taken(self, run: Run) -> None:
        """Take that packets of a run were acknowledged."""
        if run.losses:
            self._refusals = 0
            self._has_repaired = True
        self._taken_bytes_max = max(self._taken_bytes_max, run.segment_bytes)

    def refused(self, count: int, round_trip_us: int, now_us: int) -> None:
        """Count packets that were lost again; from a peer that has taken others when they left again once a round trip,
        because they may have run over a queue together."""
        if not self._has_repaired or not self._bounded:
            self._refusals += count
        elif now_us >= self._refused_us + round_trip_us:
            self._refusals += 1
            self._refused_us = now_us
