"""What the gateway knows about itself: counts, and whether it is well."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from fairway.gateway.journal import Row

_log = logging.getLogger("fairway.gateway")


BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Spread:
    """How durations are spread: counts by upper bound."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.total += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """Return each bound with the number of durations up to it."""
        bounds = [*map(str, BOUNDS_S), "+Inf"]
        return list(zip(bounds, map(float, accumulate(self.counts)), strict=True))


class Figures:
    """Counts since the start, kept by those who do the work and read by the metrics."""

    def __init__(self) -> None:
        self.commit_spread = Spread()
        self.ack_spread = Spread()
        self.messages: Counter[tuple[str, str]] = Counter()
        """Committed, by protocol and kind."""
        self.bytes: Counter[tuple[str, str]] = Counter()
        self.backlog_messages = 0
        self.backlog_bytes = 0
        """Committed and not yet sealed."""
        self.segments = 0
        self.segment_bytes = 0
        self.segment_messages = 0
        self.stalls = 0
        self.stall: str | None = None
        """Why nothing is acknowledged now, if so."""
        self.sealing_stall: str | None = None

    def committed(self, rows: Sequence[Row], seconds: float) -> None:
        self.commit_spread.add(seconds)
        for row in rows:
            key = row.protocol, row.kind
            size = row.body_bytes
            self.messages[key] += row.messages
            self.bytes[key] += size
            self.backlog_messages += row.messages
            self.backlog_bytes += size
        if self.stall is not None:
            _log.warning("acknowledging again")
            self.stall = None

    def stalled(self, reason: str) -> None:
        """Note that nothing is acknowledged, and says so once."""
        self.stalls += 1
        if self.stall != reason:
            _log.warning("not acknowledging: %s", reason)
            self.stall = reason

    def sealed(self, messages: int, size: int, file_bytes: int) -> None:
        self.segments += 1
        self.segment_messages += messages
        self.segment_bytes += file_bytes
        self.backlog_messages -= messages
        self.backlog_bytes -= size
        if self.sealing_stall is not None:
            _log.warning("sealing again")
            self.sealing_stall = None

    def sealing_failed(self, reason: str) -> None:
        """Note that no segment can be made, and says so once."""
        if self.sealing_stall != reason:
            _log.warning("not sealing: %s", reason)
            self.sealing_stall = reason
