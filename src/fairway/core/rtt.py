"""Round-trip time and retransmission time-out as RFC 6298 computes them, in integer microseconds."""

from __future__ import annotations

GRANULARITY_US = 10_000
"""The least margin over the smoothed time: on a steady path the variation decays to nothing, and a queue of a few
milliseconds would look like a loss."""


class RoundTrip:
    """A smoothed round-trip time; feed it only samples of packets that were sent once (Karn's rule)."""

    __slots__ = ("_floor_us", "_max_us", "_min_us", "rto_us", "smoothed_us", "variation_us")

    def __init__(self, *, initial_us: int, min_us: int, max_us: int) -> None:
        self.rto_us = initial_us
        """How long to wait for an acknowledgement before the first repeat."""
        self._min_us = min_us
        self._max_us = max_us
        self.smoothed_us = 0
        """0 before the first sample."""
        self.variation_us = 0
        self._floor_us = 0

    def sample(self, rtt_us: int) -> None:
        """Takes one measured round trip."""
        rtt_us = max(rtt_us, 1)
        self._floor_us = 0
        smoothed_us, variation_us = self.smoothed_us, self.variation_us
        if smoothed_us == 0:
            smoothed_us, variation_us = rtt_us, rtt_us >> 1
        else:
            variation_us += (abs(smoothed_us - rtt_us) - variation_us) >> 2
            smoothed_us = max(1, smoothed_us + ((rtt_us - smoothed_us) >> 3))
        self.smoothed_us, self.variation_us = smoothed_us, variation_us
        self.rto_us = min(self._max_us, max(self._min_us, smoothed_us + max(GRANULARITY_US, 4 * variation_us)))

    def ambiguous(self, elapsed_us: int) -> None:
        """Takes the time from the first transmission of a repeated packet to its acknowledgement.

        It is no sample, but until there is one the time-out grows towards it: else every packet of a path that is
        slower than the time-out is repeated, and none ever gives a sample. It only doubles, because where packets are
        lost that time holds whole time-outs.
        """
        self._floor_us = min(self._max_us, max(self._floor_us, min(elapsed_us, 2 * self.rto_us)))
        self.rto_us = max(self.rto_us, self._floor_us)

    def backed_off_us(self, transmissions: int) -> int:
        """Tells how long to wait after the n-th transmission: the time-out, doubled for each repeat."""
        return min(self._max_us, self.rto_us << min(transmissions - 1, 16))
