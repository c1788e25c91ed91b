"""What a receiver tells a sender, and when: confirms of what is here, requests for what is missing.

*Confirms* are close together at first, and again when the sender stands still.
A sender's window is for all its messages together, starts small and doubles, so the first parts of a conversation are
confirmed one by one and later ones further and further apart, up to the 64 that the wire allows. A confirm that leaves
by time and not by number says that the sender perhaps waits for it: its window is smaller than the distance, as after
losses. It would stand still for 20 ms window after window; the distance goes down to half of what came, and grows again
by one with every other confirm by number. Many messages at once share the window, and so the distance.

*Requests.* New gaps open only above the highest part, so parts are asked for in rising order: one cursor says how far.
How long a request waits before it is repeated depends on the round trip measured by then and on how often it was sent.
So requests are kept by their back-off, in the order in which they were last sent: the first of each row is due first,
whatever the round trip is by now, and neither an arrival nor a repeat looks at the others.
"""

from __future__ import annotations

from collections import OrderedDict

from fairway.core.recovery.timing import PingLoss
from fairway.protocols.rup.options import RupOptions
from fairway.protocols.rup.parts import Parts

QUICK_CONFIRMS = 16
"""So many parts are confirmed one by one. The distance is a parabola in what has arrived, and 64 at the 127th part."""
BACKLOG_PARTS = 256
"""Parts that wait for a confirm by number at the most, over all messages: a quarter of the default window."""


class AckPolicy:
    """The distance between confirms, for all messages of one peer."""

    __slots__ = ("_arrived", "_half_steps", "_half_steps_max")

    def __init__(self, every_parts_max: int) -> None:
        self._arrived = 0
        self._half_steps = self._half_steps_max = 2 * every_parts_max
        """Twice the largest distance, now and ever."""

    def step(self, messages: int) -> int:
        """Return how many arrivals there are from one confirm of a message to the next, with so many under way."""
        quick = 1 + self._arrived * self._arrived // (QUICK_CONFIRMS * QUICK_CONFIRMS)
        step = min(quick, self._half_steps // 2)
        return step if step * messages <= BACKLOG_PARTS else max(1, BACKLOG_PARTS // messages)

    def left(self, arrivals: int) -> None:
        """Note that a confirm of so many arrivals leaves."""
        self._arrived += arrivals

    def kept_pace(self) -> None:
        """Note that the number of arrivals made a confirm due."""
        if self._half_steps < self._half_steps_max:
            self._half_steps += 1

    def stood_still(self, arrivals: int) -> None:
        """Note that time made a confirm due, so many arrivals after the last one."""
        self._half_steps = max(2, min(self._half_steps, arrivals))


REPEATS_AT_ONE_PACE = 3
"""So many repeats come before the first that waits twice as long."""
BACK_OFF_MAX = 10
"""Doublings from the shortest wait to beyond the longest."""


class Pace:
    """How long a request to one peer waits before it is repeated, measured on requests that were sent once."""

    __slots__ = ("_kept_us", "_law", "_options")

    def __init__(self, options: RupOptions) -> None:
        self._options = options
        self._law = PingLoss(
            initial_us=options.request_again_us,
            min_us=options.request_again_us_min,
            max_us=options.request_again_us_max,
        )
        """One and a half round trips: a request or its answer is lost, and nothing here tells how much is."""
        self._kept_us = 0
        """A back-off that stays until the next sample (Karn): when the measured time is far too short every request
        is repeated, and none would give a sample."""

    def wait_us(self, back_off: int) -> int:
        """Return how long to wait after a request that was backed off so many times."""
        return max(self._kept_us, self._law.backed_off_us(back_off, self._options.request_again_us_max))

    def answered(self, transmissions: int, back_off: int, elapsed_us: int) -> None:
        """Measure a requested part that has come, `elapsed_us` after its latest request."""
        if transmissions == 1:
            self._law.sample(elapsed_us)
            self._kept_us = 0
        elif back_off > 1:
            self._kept_us = self._law.backed_off_us(back_off - 1, self._options.request_again_us_max)


class Requests:
    """Asks for missing parts, lowest first, a bounded number at a time."""

    __slots__ = ("_asked_to", "_first_us", "_open", "_options", "_pace", "_rows")

    def __init__(self, options: RupOptions, pace: Pace) -> None:
        self._options = options
        self._pace = pace
        self._open: dict[int, int] = {}
        """By part: how often its request was sent."""
        self._rows: list[OrderedDict[int, int]] = []
        """By back-off: when the request for each part was last sent, the earliest first."""
        self._asked_to = 0
        """Every missing part below is open."""
        self._first_us: int | None = None
        """When to ask for part 0 while it is the only one known to be missing."""

    def __len__(self) -> int:
        return len(self._open)

    def arrived(self, index: int, now_us: int) -> None:
        """Close the request for a part that is here."""
        transmissions = self._open.pop(index, 0)
        if transmissions:
            back_off = _back_off(transmissions)
            self._pace.answered(transmissions, back_off, now_us - self._rows[back_off].pop(index))

    def expect_first(self, now_us: int) -> None:
        """Set out to ask for part 0: only a last part is here, and where the others begin is unknown."""
        self._first_us = now_us + self._options.request_after_us

    def grid_known(self) -> None:
        """From here on gaps say what is missing."""
        self._first_us = None

    def is_idle(self, parts: Parts) -> bool:
        """Return whether every gap was asked for."""
        return parts.gaps == 0 or parts.gap_from(self._asked_to, 1) is None

    def new(self, parts: Parts, now_us: int) -> list[int]:
        """Open requests for the parts that now count as missing, and list them."""
        asked: list[int] = []
        options = self._options
        if self._first_us is not None and self._first_us <= now_us:
            self._first_us = None
            self._sent(0, 1, now_us)
            self._asked_to = 1
            return [0]
        while parts.gaps and len(self._open) < options.requests_open_max:
            gap = parts.gap_from(self._asked_to, options.request_after_parts)
            if gap is None:
                break
            if gap.later < options.request_after_parts and now_us < gap.seen_us + options.request_after_us:
                break
            end = min(gap.end, gap.first + options.requests_open_max - len(self._open))
            for index in range(gap.first, end):
                self._sent(index, 1, now_us)
                asked.append(index)
            self._asked_to = end
        return asked

    def _sent(self, index: int, transmissions: int, now_us: int) -> None:
        self._open[index] = transmissions
        back_off = _back_off(transmissions)
        while len(self._rows) <= back_off:
            self._rows.append(OrderedDict())
        self._rows[back_off][index] = now_us

    def again(self, now_us: int) -> list[int]:
        """Repeat the requests that are due, and return their parts, lowest first."""
        due: list[int] = []
        for back_off, row in enumerate(self._rows):
            sent_by_us = now_us - self._pace.wait_us(back_off)
            while row and next(iter(row.values())) <= sent_by_us:
                due.append(row.popitem(last=False)[0])
        due.sort()
        for index in due:
            self._sent(index, self._open[index] + 1, now_us)
        return due

    def next_us(self, parts: Parts) -> int | None:
        """Return when a request may be due: a repeat, or the first one for the next gap."""
        if self._first_us is not None:
            return self._first_us
        if not self._open and not parts.gaps:
            return None
        due = [
            next(iter(row.values())) + self._pace.wait_us(back_off) for back_off, row in enumerate(self._rows) if row
        ]
        if parts.gaps and len(self._open) < self._options.requests_open_max:
            gap = parts.gap_from(self._asked_to, 1)
            if gap is not None:
                due.append(gap.seen_us + self._options.request_after_us)
        return min(due, default=None)


def _back_off(transmissions: int) -> int:
    """Return how often the waiting time was doubled by the time of this transmission."""
    return min(BACK_OFF_MAX, max(0, transmissions - REPEATS_AT_ONE_PACE))
