"""When to send a packet again: after one and a half pings, sooner where much is lost.

    delay = 1.5 * ping / (loss + 1), from 10 ms to 3 s; 50 ms before the first ping is known

`ping` is the smoothed round-trip time. `loss` is a moving average, gain 1/16, of "this transmission was lost", kept in
parts of 65,536. A transmission is settled when its packet is acknowledged, never earlier: the stamp in the
acknowledgement names the transmission that arrived, so those before it were lost, and those after it, which
a resend that came too early has caused, are not counted at all.
"""

from __future__ import annotations

from fairway.core.rtt import RoundTrip

WHOLE = 65_536
"""A loss of one: every transmission is lost."""
_GAIN_BITS = 4
_DOUBLINGS_MAX = 16


class Resend:
    """Measures ping and loss, and gives the delay that follows from them."""

    __slots__ = ("_max_us", "_min_us", "_round_trip", "_sampled_us", "delay_us", "loss", "ping_us")

    def __init__(self, *, initial_us: int, min_us: int, max_us: int) -> None:
        self.delay_us = initial_us
        """How long to wait for an acknowledgement before the first repeat."""
        self._min_us = min_us
        self._max_us = max_us
        self._round_trip = RoundTrip(initial_us=initial_us, min_us=min_us, max_us=max_us)
        self._sampled_us = -1
        self.loss = 0
        self.ping_us = 0
        """The smoothed round-trip time; 0 before the first sample."""

    def sample(self, sent_us: int, now_us: int) -> None:
        """Takes the round trip of a transmission that left at `sent_us`.

        What left in one instant gives one sample, that of the first to come back: a batch is one measurement.
        """
        if sent_us != self._sampled_us:
            self._sampled_us = sent_us
            self._round_trip.sample(now_us - sent_us)
            self.ping_us = self._round_trip.smoothed_us
            self._renew()

    def ambiguous(self, elapsed_us: int) -> None:
        """Takes the time from the first transmission of a repeated packet to an acknowledgement without a stamp.

        It is no sample; before the first one the delay grows towards it, or no packet would ever be sent only once.
        """
        if not self.ping_us:
            self.delay_us = min(self._max_us, max(self.delay_us, min(3 * elapsed_us // 2, 2 * self.delay_us)))

    def lost(self, transmissions: int) -> None:
        """Settles transmissions that did not arrive."""
        for _ in range(transmissions):
            self.loss += (WHOLE - self.loss) >> _GAIN_BITS
        self._renew()

    def arrived(self, transmissions: int) -> None:
        """Settles transmissions that arrived."""
        while transmissions and self.loss:
            self.loss += -self.loss >> _GAIN_BITS
            transmissions -= 1
            self._renew()

    def _renew(self) -> None:
        if self.ping_us:
            delay_us = 3 * self.ping_us * WHOLE // (2 * (WHOLE + self.loss))
            self.delay_us = min(self._max_us, max(self._min_us, delay_us))

    def delay_after_us(self, transmissions: int) -> int:
        """Tells how long to wait after the n-th transmission of one packet: the delay, doubled for each repeat."""
        return min(self._max_us, self.delay_us << min(transmissions - 1, _DOUBLINGS_MAX))
