"""At which rate a path delivers, from what was delivered while each transmission was under way.

A transmission remembers how much had been delivered when it left, and when. Its acknowledgement shows how much was
delivered since, and over which time: between the two acknowledgements, or between the two transmissions if that is
longer, so that acknowledgements which arrive together do not look like a fast path. The rate is the highest sample of
this cycle and the one before.

A sample that was taken while the application had less to send than the path takes says only what the path carries at
the least: it may raise the rate and never lowers it. Nobody needs to tell: what may leave and does not is a sign.

Where answers come in *bunches*, one of them may be missing at the begin of a sample and none at the end. Such a sample
goes back over so many bunches that one of them does not matter.
"""

from __future__ import annotations

from fairway.core.recovery.congestion import SCALE, Departure

BUNCHES = 8
"""A sample covers at least so many: it is then wrong by an eighth at the most."""
ANCHORS_MAX = 16
SECOND = 1_000_000


class Round:
    """What is known of the round trip under way. It is over when what left after its begin is acknowledged."""

    def __init__(self, delivered: int, lost: int, in_flight: int, now_us: int) -> None:
        self.delivered = delivered
        self.lost = lost
        """What had been delivered and lost at its begin."""
        self.enough = delivered + lost + in_flight
        """What is delivered or lost when as much as was in flight is."""
        self.begin_us = now_us
        self.least_us = 0
        """Its shortest sample; 0 if there was none."""
        self.limited = False


class DeliveryRate:
    """What one path has delivered. Rates are in 1/1024 packets a second."""

    def __init__(self) -> None:
        self.packets = 0
        """All that were delivered."""
        self.latest_us = 0
        """When the latest of them was acknowledged, or the first of a flight left."""
        self._left_us = 0
        """When the latest transmission left that was acknowledged."""
        self._latest = Departure(0, 0, 0, 0, limited=False)
        self._limited_to = -1
        """What leaves before so much is delivered left while the application had too little to send."""
        self._highest = [0, 0]
        """Of this cycle and of the one before."""
        self._bunches = [0, 0]
        """Likewise the most packets that were acknowledged at one time."""
        self._anchors: list[Departure] = []
        """What had been delivered at the end of the latest round trips."""
        self._believed_us = 0
        """What left before tells nothing new."""

    @property
    def rate(self) -> int:
        """What the path delivers; 0 before the first sample."""
        return max(self._highest)

    @property
    def bunch(self) -> int:
        """How many packets are acknowledged at one time."""
        return max(self._bunches)

    def depart(self, in_flight: int, now_us: int) -> Departure:
        """Return what a transmission that leaves now must remember."""
        if not in_flight:
            self.latest_us = self._left_us = now_us
        limited = self.packets < self._limited_to
        self._latest.next_us = now_us
        self._latest = Departure(
            now_us, self.packets, self.latest_us, self._left_us, limited, order=self._latest.order + 1
        )
        return self._latest

    def starved(self, in_flight: int) -> None:
        """Take that the application had nothing to send although more could have left."""
        self._limited_to = self.packets + max(1, in_flight)

    def take(self, packets: int, departure: Departure, least_us: int, bunches: int, now_us: int) -> None:
        """Take packets that were delivered, and a sample over at least a round trip and so many bunches."""
        self.latest_us = now_us
        self._bunches[0] = max(self._bunches[0], packets)
        self._left_us = max(self._left_us, departure.sent_us)
        if not least_us or departure.sent_us < self._believed_us:
            return
        start, enough = departure, self.packets - bunches * self.bunch
        for anchor in reversed(self._anchors):
            if start.delivered <= enough and now_us - start.delivered_us >= least_us:
                break
            if anchor.delivered < start.delivered:
                start = anchor
        elapsed_us = max(departure.sent_us - start.first_us, now_us - start.delivered_us)
        if elapsed_us >= least_us:
            rate = (self.packets - start.delivered) * SECOND * SCALE // elapsed_us
            if rate > self._highest[0] and (not departure.limited or rate > self.rate):
                self._highest[0] = rate

    def covers(self, delivered: int, bunches: int) -> bool:
        """Return whether so much was delivered since that a bunch more or less hardly matters."""
        return self.packets - delivered >= bunches * self.bunch

    def end_round(self, departure: Departure, now_us: int) -> None:
        """Remember where a round trip ended."""
        self._anchors.append(Departure(now_us, self.packets, now_us, departure.sent_us, departure.limited))
        del self._anchors[:-ANCHORS_MAX]

    def average(self, rounds: int, bunches: int, now_us: int) -> int:
        """Return what the latest round trips delivered, so many or more."""
        for anchor in self._anchors[-rounds::-1]:
            if self.covers(anchor.delivered, bunches):
                return (self.packets - anchor.delivered) * SECOND * SCALE // max(1, now_us - anchor.delivered_us)
        return self.rate

    def believe(self, rate: int, now_us: int) -> None:
        """Take that the path delivers no more than this, whatever was measured before."""
        self._believed_us = now_us
        self._highest = [min(one, rate) for one in self._highest]

    def restore(self, rate: int) -> None:
        """Take that the path delivers this much after all."""
        self._highest[0] = max(self._highest[0], rate)

    def turn(self) -> None:
        """Forget the cycle before the latest; not if all that was measured since is the application's doing."""
        if self._highest[0]:
            self._highest = [0, self._highest[0]]
            self._bunches = [0, self._bunches[0]]
