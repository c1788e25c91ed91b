"""Round trips of one peer, and what they say about when a part has left the network."""

from __future__ import annotations

from fairway.core.rtt import RoundTrip


class Landing(RoundTrip):
    """A round-trip estimate that also knows the shortest one of late."""

    __slots__ = ("_shortest_us",)

    def __init__(self, *, initial_us: int, min_us: int, max_us: int) -> None:
        super().__init__(initial_us=initial_us, min_us=min_us, max_us=max_us)
        self._shortest_us = 0
        """It follows a rise by a thirty-second a sample."""

    def sample(self, rtt_us: int) -> None:
        super().sample(rtt_us)
        rising_us = self._shortest_us + (self._shortest_us >> 5) + 1
        self._shortest_us = min(rtt_us, rising_us) if self._shortest_us else rtt_us

    @property
    def landing_us(self) -> int:
        """How long a part or what it causes stays in the network: the shortest round trip of late, and some air."""
        return self._shortest_us + (self._shortest_us >> 4)

    @property
    def patient_us(self) -> int:
        """A round trip with some air for jitter."""
        smoothed_us = self.smoothed_us
        return smoothed_us + max(smoothed_us >> 3, self.variation_us)
