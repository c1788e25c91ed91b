"""How many packets may be in flight: a fixed window (`eager`, for closed networks), or one that follows losses.

`NewReno` is NewReno with pacing, in integers so that a simulated run has the same digest everywhere (the cube root of
CUBIC would depend on the machine's mathematics library). Both count
packets: the protocols number packets, and none mixes sizes enough to matter. `model.py` is the third.
"""

from __future__ import annotations

SCALE = 1_024
"""Windows and pacing credit are kept in 1/1024 of a packet."""
INITIAL_PACKETS = 10
MIN_PACKETS = 4
"""With fewer in flight too often all of them are lost, and only a time-out goes on."""
BURST_PACKETS_MIN = 10
BURST_US = 2_000
"""Timers of an event loop come about a millisecond late; a burst makes up for two."""


class Departure:
    """What had been delivered when packets left: their acknowledgement shows at which rate it has gone on since."""

    def __init__(
        self, sent_us: int, delivered: int, delivered_us: int, first_us: int, limited: bool, order: int = 0
    ) -> None:
        self.sent_us = sent_us
        self.delivered = delivered
        """Packets that were delivered by then."""
        self.delivered_us = delivered_us
        """When the latest of them was acknowledged."""
        self.first_us = first_us
        """When the latest of them had left."""
        self.limited = limited
        """The application had less to send than the path takes."""
        self.order = order
        """What left earlier has a lower one."""
        self.next_us = 0
        """When the next packets left; 0 if none have yet."""


class Controller:
    """Decides when the next packet may leave. By itself it is `eager`: a fixed window that never slows down."""

    gathers = True
    """Whether a sender may wait until the window has room for a whole burst."""
    certain_losses = 1
    """How many losses of one packet in a row are the path's doing; beyond, the peer may never take it."""
    measures = False
    """Whether `delivered` says anything to it."""
    cumulative = False
    """Acknowledgements are marks: nothing is known of what arrived behind a hole."""

    def __init__(self, window: int) -> None:
        self._window_max = window

    @property
    def window(self) -> int:
        """Packets in flight at the most, pacing left aside."""
        return self._window_max

    def room(self, in_flight: int, now_us: int) -> int:
        """Return how many packets may leave now, with so many in flight."""
        return max(0, self._window_max - in_flight)

    def next_room_us(self, in_flight: int, now_us: int) -> int | None:
        """Return when pacing will make room; None when only an acknowledgement can."""
        return None

    def sent(self, packets: int, in_flight: int, now_us: int) -> Departure | None:
        """Take packets that leave, retransmissions included, with so many in flight before; return what `delivered`
        wants to know when they are acknowledged."""
        return None

    def acknowledged(self, packets: int, in_flight: int, smoothed_rtt_us: int, now_us: int) -> None:
        """Take newly acknowledged packets; `in_flight` is how many there were when the latest packet left."""

    def delivered(
        self, packets: int, departure: Departure | None, order: int, in_flight: int, rtt_us: int, now_us: int
    ) -> None:
        """Take packets that arrived, each once: the departure of the latest of them, in which order it left, what is
        still in flight, and the round trip: negative where it was this at the most, 0 where nothing is known of it.
        Without a departure more may have arrived by now than is known."""

    def waited(self, order: int, rtt_us: int) -> None:
        """Take how long something took that may have waited at the peer for its application."""

    def missed(self, packets: int) -> None:
        """Take transmissions that count as lost, whoever is to blame."""

    def lost(self, sent_us: int, now_us: int) -> bool:
        """Take the loss of a packet sent at `sent_us`; return whether that cut the window."""
        return False

    def undo(self) -> None:
        """Take the latest cut back: no packet was lost after all."""

    def timed_out(self, sent_us: int, now_us: int) -> None:
        """Take that nothing at all was acknowledged for so long that the path must be judged anew."""


class NewReno(Controller):
    """NewReno: doubles per round trip up to the threshold, then adds one packet per round trip, halves on loss.

    One loss cuts once per round trip: losses of packets sent before the latest cut say nothing new. The window does
    not grow while the application leaves it unused. Pacing spreads a window over the round trip.
    """

    __slots__ = (
        "_before", "_credit", "_credited_us", "_cut_us", "_known_us", "_rtt_us", "_threshold", "_window",
    )  # fmt: skip

    def __init__(self, window: int) -> None:
        super().__init__(window * SCALE)
        self._window = min(INITIAL_PACKETS * SCALE, self._window_max)
        self._threshold = self._window_max
        self._before = (self._window, self._threshold)
        """Window and threshold before the latest cut."""
        self._cut_us = -1
        self._known_us = -1
        """When the first sample came."""
        self._rtt_us = 0
        self._credit = self._burst()
        self._credited_us = 0

    @property
    def window(self) -> int:
        """The congestion window in whole packets."""
        return max(1, self._window // SCALE)

    def room(self, in_flight: int, now_us: int) -> int:
        by_window = self.window - in_flight
        if by_window <= 0:
            return 0
        if self._rtt_us == 0:
            return by_window
        self._earn(now_us)
        # With nothing in flight one may always leave: without it nothing would be measured any more.
        return max(not in_flight, min(by_window, self._credit // SCALE))

    def next_room_us(self, in_flight: int, now_us: int) -> int | None:
        missing_packets = min(self.window - in_flight, 1 + self.window // 16)
        if missing_packets <= 0 or self._rtt_us == 0:
            return None
        self._earn(now_us)
        missing = missing_packets * SCALE - self._credit
        return now_us + max(1, -(-missing * self._rtt_us // self._rate()))

    def sent(self, packets: int, in_flight: int, now_us: int) -> Departure | None:
        if self._rtt_us:
            self._earn(now_us)
            # What left beyond the credit (repairs do not wait for it) holds up the rest for a round trip at the most.
            self._credit = max(self._credit - packets * SCALE, -self._window)
        return None

    def acknowledged(self, packets: int, in_flight: int, smoothed_rtt_us: int, now_us: int) -> None:
        if self._rtt_us == 0:
            self._credited_us = self._known_us = now_us
        self._rtt_us = smoothed_rtt_us
        window = self._window
        if window == self._window_max or 2 * in_flight < self.window:
            return
        if window + packets * SCALE <= self._threshold:
            window += packets * SCALE
        else:
            # One by one, so that a batch of acknowledgements opens the window as far as its datagrams would.
            for _ in range(packets):
                window += SCALE if window < self._threshold else SCALE * SCALE // window
        self._window = min(self._window_max, window)

    def lost(self, sent_us: int, now_us: int) -> bool:
        if sent_us <= self._cut_us:
            return False
        self._before = (self._window, self._threshold)
        self._cut(now_us)
        self._window = self._threshold
        return True

    def undo(self) -> None:
        window, threshold = self._before
        self._window = max(self._window, window)
        self._threshold = max(self._threshold, threshold)

    def timed_out(self, sent_us: int, now_us: int) -> None:
        # What left before the first sample was timed by a guess, and a slow path is as likely as a loss.
        if self._rtt_us and sent_us > self._known_us and sent_us > self._cut_us:
            self._cut(now_us)
            self._window = min(MIN_PACKETS * SCALE, self._window_max)

    def _cut(self, now_us: int) -> None:
        self._threshold = min(self._window_max, max(MIN_PACKETS * SCALE, self._window // 2))
        self._cut_us = now_us

    def _rate(self) -> int:
        """Pacing rate per round trip, in 1/1024 packets: twice the window while it doubles, else a quarter more."""
        return self._window * 2 if self._window < self._threshold else self._window * 5 // 4

    def _burst(self) -> int:
        return max(BURST_PACKETS_MIN * SCALE, self._rate() * BURST_US // self._rtt_us if self._rtt_us else 0)

    def _earn(self, now_us: int) -> None:
        elapsed_us = now_us - self._credited_us
        if elapsed_us > 0:
            self._credit = min(self._burst(), self._credit + elapsed_us * self._rate() // self._rtt_us)
            self._credited_us = now_us


def make_controller(name: str, window: int, held_us: int = 0) -> Controller:
    """Return the controller of that name with at most `window` packets in flight, towards a peer that holds answers
    back for up to `held_us`."""
    if name == "model":
        from fairway.core.recovery.model import Model

        return Model(window, held_us)
    return Controller(window) if name == "eager" else NewReno(window)
