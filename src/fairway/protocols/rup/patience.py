"""How long a sender waits: for a word about a message, for a repair to be confirmed, and for a peer that is silent."""

from __future__ import annotations

from fairway.core.rtt import RoundTrip
from fairway.protocols.rup.options import RupOptions
from fairway.protocols.rup.outgoing import Outgoing

QUICK_US_MIN = 3_000
"""A repair is not repeated sooner: on a short path the receiver's own work takes longer than the round trip."""


class Patience:
    """Times of one peer's messages, from the round trips that were measured."""

    __slots__ = ("_options", "rtt")

    def __init__(self, options: RupOptions) -> None:
        self._options = options
        self.rtt = RoundTrip(initial_us=options.rto_initial_us, min_us=options.rto_us_min, max_us=options.rto_us_max)

    def due_us(self, message: Outgoing) -> int | None:
        """Tells when something is to be done for a message without a word of the peer; None if nothing was sent."""
        if message.sent <= message.confirmed:
            return None
        due_us = min(message.heard_us + self._options.silence_us, self.time_out_us(message))
        quick_us = self.quick_us(message) if message.part_count > 1 else None
        return due_us if quick_us is None else min(due_us, quick_us)

    def time_out_us(self, message: Outgoing) -> int:
        """Tells when to take what is unconfirmed for lost: after the time-out and, once round trips are measured, how
        long a confirm may be held."""
        held_back_us = self._options.confirm_after_us if self.rtt.smoothed_us else 0
        return message.timer_us + self.rtt.backed_off_us(message.backoffs + 1) + held_back_us

    def quick_us(self, message: Outgoing) -> int | None:
        """Tells when to repeat the first unconfirmed part before the time-out, or None.

        A few repairs are always lost with what they repair. While parts flow the next confirm shows it; at the end of
        a message nothing flows, and the receiver is silent until its timer of 20 ms tells where it stands.
        """
        if not self.rtt.smoothed_us or message.quick_repeats_left <= 0 or self.is_worn_out(message, message.confirmed):
            return None
        wait_us = max(QUICK_US_MIN, 2 * self._round_trip_us) << message.quick_repeats
        return max(message.heard_us, message.repaired_us) + wait_us

    def repair_us(self, *, repeated: bool) -> int:
        """Tells how old a part at the mark is when a confirm shows that it, or its repair, was lost."""
        return max(QUICK_US_MIN, self._round_trip_us * (1 if repeated else 2))

    @property
    def _round_trip_us(self) -> int:
        """A round trip with some air for jitter."""
        smoothed_us = self.rtt.smoothed_us
        return smoothed_us + max(smoothed_us >> 3, self.rtt.variation_us)

    def is_worn_out(self, message: Outgoing, index: int) -> bool:
        """Tells whether a part was sent as often as is allowed."""
        times = message.repeats.get(index, (1, 0))[0]
        return times >= self._options.part_transmissions_max
