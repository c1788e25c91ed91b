"""How long to wait for an acknowledgement: three laws behind one interface, in integer microseconds.

    RoundTrip   RFC 6298: smoothed round trip plus four times its variation (udpc, rup)
    PingLoss    1.5 * ping / (loss + 1) (mrp)
    Fixed       always the same (pydevts)

All of them measure the round trip, for pacing and for telling which transmission an acknowledgement can speak of.
"""

from __future__ import annotations

GRANULARITY_US = 10_000
"""The least margin over the smoothed time: on a steady path the variation decays to nothing, and a queue of a few
milliseconds would look like a loss."""
DOUBLINGS_MAX = 16
ROUND_TRIP_US_MAX = 10_000_000
"""A longer time is that of a process that slept or of a peer that was gone: pacing by it would stand still."""
WHOLE = 65_536
"""A loss of one: every transmission is lost."""
_GAIN_BITS = 4


class RoundTrip:
    """The law of RFC 6298; feed it only samples of transmissions that are told apart from others (Karn's rule)."""

    def __init__(self, *, initial_us: int, min_us: int, max_us: int) -> None:
        self.delay_us = initial_us
        """How long to wait for an acknowledgement before the first retransmission."""
        self.smoothed_us = 0
        """0 before the first sample."""
        self.variation_us = 0
        self.late_us = GRANULARITY_US
        """How long nearly all acknowledgements take, as far as was measured."""
        self.least_us = 0
        """The shortest round trip measured: no acknowledgement speaks of a transmission that is younger."""
        self._min_us = min_us
        self.max_us = max_us
        self._floor_us = 0

    def sample(self, rtt_us: int) -> None:
        rtt_us = max(rtt_us, 1)
        if not self.least_us:
            self.smoothed_us = 0  # what came before was only a bound
        self.least_us = min(self.least_us or rtt_us, rtt_us)
        self.bound(rtt_us)

    def bound(self, rtt_us: int) -> None:
        """Take a time that was at least a round trip: the estimate follows, the shortest round trip does not."""
        rtt_us = min(rtt_us, ROUND_TRIP_US_MAX)
        smoothed_us, variation_us = self.smoothed_us, self.variation_us
        if smoothed_us == 0:
            smoothed_us, variation_us = rtt_us, rtt_us >> 1
        else:
            variation_us += (abs(smoothed_us - rtt_us) - variation_us) >> 2
            smoothed_us = max(1, smoothed_us + ((rtt_us - smoothed_us) >> 3))
        self.smoothed_us, self.variation_us = smoothed_us, variation_us
        self.late_us = smoothed_us + max(GRANULARITY_US, 4 * variation_us)
        self._floor_us = 0
        self.delay_us = min(self.max_us, max(self._min_us, self._law_us()))

    def _law_us(self) -> int:
        return self.late_us

    def ambiguous(self, elapsed_us: int, most_us: int) -> None:
        """Take the time from the first transmission of a packet that can have arrived to its acknowledgement, where a
        later one can have arrived as well.

        It is no sample, but until there is one the delay grows towards it: else every packet of a path that is slower
        than the delay is retransmitted, and none ever gives a sample. It only doubles, because where packets are lost
        that time holds whole time-outs, and not beyond where probes stop doubling.
        """
        self._floor_us = min(self.max_us, most_us, max(self._floor_us, min(elapsed_us, 2 * self.delay_us)))
        self.delay_us = max(self.delay_us, self._floor_us)

    def settled(self, lost: int, arrived: int) -> None:
        """Take how many transmissions were lost and how many arrived of packets that are now acknowledged."""

    def backed_off_us(self, backoffs: int, most_us: int) -> int:
        """Return the delay, doubled so many times, up to a bound that is never below the delay itself."""
        return min(max(most_us, self.delay_us), self.delay_us << min(backoffs, DOUBLINGS_MAX))


class PingLoss(RoundTrip):
    """One and a half pings, less where much is lost.

    `loss` is a moving average, gain 1/16, of "this transmission was lost", in parts of 65,536. A transmission is
    settled when its packet is acknowledged, never earlier: only then is it known which of them arrived.
    """

    def __init__(self, *, initial_us: int, min_us: int, max_us: int) -> None:
        super().__init__(initial_us=initial_us, min_us=min_us, max_us=max_us)
        self.loss = 0

    def _law_us(self) -> int:
        return 3 * self.smoothed_us * WHOLE // (2 * (WHOLE + self.loss))

    def settled(self, lost: int, arrived: int) -> None:
        if not lost and not self.loss:
            return
        for _ in range(lost):
            self.loss += (WHOLE - self.loss) >> _GAIN_BITS
        while arrived and self.loss:
            self.loss += -self.loss >> _GAIN_BITS
            arrived -= 1
        if self.smoothed_us:
            self.delay_us = min(self.max_us, max(self._min_us, self._law_us(), self._floor_us))


class Fixed(RoundTrip):
    """Always the same delay, whatever the round trip is."""

    def __init__(self, delay_us: int) -> None:
        super().__init__(initial_us=delay_us, min_us=delay_us, max_us=delay_us)

    def backed_off_us(self, backoffs: int, most_us: int) -> int:
        """Return the delay: it does not grow."""
        return self.delay_us
