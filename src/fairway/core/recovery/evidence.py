"""What acknowledgements show: which transmissions arrived, and how long the round trip is.

An acknowledgement of a packet with several transmissions speaks of none that is much younger than the shortest round
trip, nor of one that the peer has asked for again. If it may still speak of more than one, it is *doubtful*: nothing is
concluded from the later one for a quarter of a round trip. Acknowledgements of other first transmissions in that time
show that a time-out was too short, not that something was lost.

A peer that takes only the next packet drops what is ahead of it, so every packet leaves at least twice, and Karn's rule
alone would never measure anything. There the first measurement is that of a retransmission which the peer has asked
for, but only if those before it left two delays ago: the request is inferred, and one of them may still be under way.
Where not even that is certain, the delay grows.
"""

from __future__ import annotations

from fairway.core.recovery.runs import NEVER, Acknowledged, Run
from fairway.core.recovery.timing import RoundTrip

OVERTAKEN_BY = 3
"""Later transmissions acknowledged before a packet counts as lost: reordering by less is common on real paths."""


class Evidence:
    """What is known of the transmissions of one recovery."""

    __slots__ = (
        "_cumulative", "_doubt_order", "_doubt_sent_us", "_doubts", "_most_us", "_sampled_us", "_timing", "doubt_us",
        "finals", "top", "top_sent_us",
    )  # fmt: skip

    def __init__(self, timing: RoundTrip, *, cumulative: bool, doubts: bool, most_us: int) -> None:
        self._timing = timing
        self._cumulative = cumulative
        self._doubts = doubts
        """Whether anything is concluded from which transmission arrived."""
        self._most_us = most_us
        """How far the delay grows where no round trip can be measured."""
        self.top = [-1] * OVERTAKEN_BY
        """The highest acknowledged orders, ascending."""
        self.finals = [-1] * OVERTAKEN_BY
        """The same of packets that were the last of their stream."""
        self.top_sent_us = -1
        """When the latest transmission left that is acknowledged."""
        self.doubt_us = NEVER
        """When to conclude from a doubtful acknowledgement."""
        self._doubt_order = self._doubt_sent_us = -1
        self._sampled_us = -1

    def which(self, run: Run, now_us: int) -> int:
        """Return the latest transmission that an acknowledgement may speak of; before any measurement the first.

        But a mark that waits for one retransmission after the other may never measure anything.
        """
        least_us = self._timing.least_us
        at = len(run.sent_us) - 1
        if not least_us:
            return at if self._cumulative else min(run.sure, at)
        # Some air for jitter; for marks more, because a lost acknowledgement is made up for by a later one.
        least_us -= least_us >> (1 if self._cumulative else 3)
        while at and now_us - run.sent_us[at] < least_us:
            at -= 1
        return at

    def take(self, run: Run, count: int, now_us: int, transmission: int) -> int:
        """Take the acknowledgement of the first packets of a run; return the transmission that it speaks of, or -1 if
        that is not certain."""
        alone, least_us = len(run.sent_us) == 1, self._timing.least_us
        at = 0 if alone else self.which(run, now_us) if transmission < 0 else transmission
        certain = alone or transmission >= 0 or (at <= run.sure and (least_us > 0 or run.sure > 0))
        sent = at if certain else run.sure
        offset = run.first - run.base
        order = run.orders[sent] + offset + count - 1
        raise_top(self.top, order, count)
        self.top_sent_us = max(self.top_sent_us, run.sent_us[sent])
        if run.first + count > run.stream.last:
            raise_top(self.finals, order, 1)
        if self._doubts and not certain and run.orders[at] + offset > self.top[-1]:
            self._doubt_order = max(self._doubt_order, run.orders[at] + offset)
            self._doubt_sent_us = run.sent_us[at]
            self.doubt_us = now_us + ((least_us or now_us - run.sent_us[sent]) >> 2)
        self._timing.settled(at if certain or least_us else 0, count)
        return at if certain else -1

    def take_one(self, run: Run) -> None:
        """Take the acknowledgement of a packet that left once and on its own."""
        order, top = run.orders[0] + run.first - run.base, self.top
        if order > top[-1]:
            del top[0]
            top.append(order)
        else:
            raise_top(top, order, 1)
        self._timing.settled(0, 1)

    def conclude(self) -> None:
        """Take the doubtful acknowledgement for one of the later transmission."""
        self.doubt_us = NEVER
        raise_top(self.top, self._doubt_order, 1)
        self.top_sent_us = max(self.top_sent_us, self._doubt_sent_us)

    def clear_doubt(self, run: Run) -> None:
        """Take that a first transmission was acknowledged: if it left before the doubtful one, that was needless."""
        if run.orders[-1] < self._doubt_order:
            self.doubt_us = NEVER

    def is_overtaken(self, run: Run) -> bool:
        """Return whether what was acknowledged left three packets later than the run, or a quarter of a round trip.

        With a small window a retransmission may leave less than three packets later.
        """
        top, late_us = self.top[-1], self._timing.least_us >> 2
        return run.order + OVERTAKEN_BY <= top or (run.order < top and run.sent_us[-1] + late_us < self.top_sent_us)

    # The round trip.

    def sample_one(self, sent_us: int, now_us: int) -> None:
        """Measure the round trip; what left together gives one sample, that of the first to come back."""
        if sent_us != self._sampled_us:
            self._sampled_us = sent_us
            self._timing.sample(now_us - sent_us)

    def sample(self, pieces: list[Acknowledged], transmission: int, now_us: int, *, prompt: bool) -> None:
        """Measure the round trip on what was acknowledged together.

        A mark waits for every packet below it, so where one of them was retransmitted, the time of the last packet is
        only an upper bound, as it is where the answer may have waited (not `prompt`): it may lower the estimate.
        """
        timing = self._timing
        several = self._cumulative and len(pieces) > 1
        waited = not prompt or (several and any(len(piece.run.sent_us) > 1 for piece in pieces))
        for run, _, _ in pieces[-1:] if self._cumulative else pieces:
            if len(run.sent_us) == 1 and not waited:
                self.sample_one(run.sent_us[0], now_us)
                continue
            at = self.which(run, now_us) if transmission < 0 else transmission
            elapsed_us = now_us - run.sent_us[at]
            only = self._is_only(run, at, now_us)
            if transmission >= 0 or (only and not waited):
                self.sample_one(run.sent_us[at], now_us)
            elif only:
                if elapsed_us < (timing.smoothed_us or timing.delay_us):
                    timing.bound(elapsed_us)
            elif (prompt or not timing.least_us) and (run.sure or not run.losses):
                # Most likely it speaks of a retransmission that left a measured round trip ago: if the delay followed
                # the first transmission however long ago that left, it would grow with each loss.
                fits = 0 < timing.least_us - (timing.least_us >> 3) <= elapsed_us <= timing.late_us
                elapsed_us = now_us - run.sent_us[min(run.sure, at)]
                timing.ambiguous(elapsed_us + (elapsed_us >> 3), 2 * timing.late_us if fits else self._most_us)

    def _is_only(self, run: Run, at: int, now_us: int) -> bool:
        """Return whether an acknowledgement can speak of this transmission only.

        Before any measurement that is the latest, if the peer has asked for those before it and they left more than two
        delays ago: the delay may still be shorter than the round trip, but it soon grows to half of it. Later a first
        transmission that left very long ago is unlikely: the shortest round trip may have been measured too long.
        """
        timing = self._timing
        if at == 0 or timing.least_us:
            soon = timing.least_us > 0 and now_us - run.sent_us[0] <= 4 * timing.late_us
            return at == 0 and (len(run.sent_us) == 1 or soon)
        return at == run.sure == len(run.sent_us) - 1 and now_us - run.sent_us[at - 1] > 2 * timing.delay_us


def raise_top(top: list[int], order: int, count: int) -> None:
    """Take `count` orders up to this one into the highest, ascending."""
    lowest = order - min(count, OVERTAKEN_BY) + 1
    if lowest > top[-1]:
        del top[: order - lowest + 1]
        top.extend(range(lowest, order + 1))
        return
    if order <= top[0]:
        return
    for one in range(order, lowest - 1, -1):
        if one > top[0] and one not in top:
            top[0] = one
            top.sort()


def asked_after_us(run: Run, least_us: int, now_us: int) -> int:
    """Return a bound of the round trip that the first request for a packet shows; 0 if it may have waited.

    A peer asks as soon as a few later packets are there, or after some time if they are not.
    """
    next_one, few_later = run.stream.find(run.first + 1), run.stream.find(run.first + OVERTAKEN_BY)
    if next_one is None or few_later is None or len(next_one.sent_us) > 1:
        return 0
    return now_us - next_one.sent_us[0] if few_later.sent_us[0] - run.sent_us[0] <= least_us >> 2 else 0
