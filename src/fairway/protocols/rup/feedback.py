"""What a receiver tells a sender, and when: confirms of what is here, requests for what is missing.

*Confirms* are close together at first, and again when the sender stands still.
A sender's window is for all its messages together, starts small and doubles, so the first parts of a conversation are
confirmed one by one and later ones further and further apart, up to the 64 that the wire allows. A confirm that leaves
by time and not by number says that the sender perhaps waits for it: its window is smaller than the distance, as after
losses. It would stand still for 20 ms window after window; the distance goes down to half of what came, and grows again
by one with every other confirm by number. Many messages at once share the window, and so the distance.

*Requests.* New gaps open only above the highest part, so parts are asked for in rising order: one cursor says how far.
When a request is repeated, the shared recovery decides (`core/recovery/asking.py`).
"""

from __future__ import annotations

from fairway.core.recovery.asking import Asked, Pace
from fairway.core.recovery.runs import NEVER
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


class Requests:
    """Asks for missing parts, lowest first, a bounded number at a time."""

    __slots__ = ("_asked", "_asked_to", "_first_us", "_options")

    def __init__(self, options: RupOptions, pace: Pace) -> None:
        self._options = options
        self._asked = Asked(pace)
        self._asked_to = 0
        """Every missing part below was asked for."""
        self._first_us: int | None = None
        """When to ask for part 0 while it is the only one known to be missing."""

    def __len__(self) -> int:
        return len(self._asked)

    def arrived(self, index: int, now_us: int) -> None:
        """Close the request for a part that is here."""
        self._asked.came(index, now_us)

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
        wanted: list[int] = []
        options, requests = self._options, self._asked
        if self._first_us is not None and self._first_us <= now_us:
            self._first_us = None
            requests.ask(0, now_us)
            self._asked_to = 1
            return [0]
        while parts.gaps and len(requests) < options.requests_open_max:
            gap = parts.gap_from(self._asked_to, options.request_after_parts)
            if gap is None:
                break
            if gap.later < options.request_after_parts and now_us < gap.seen_us + options.request_after_us:
                break
            end = min(gap.end, gap.first + options.requests_open_max - len(requests))
            for index in range(gap.first, end):
                requests.ask(index, now_us)
                wanted.append(index)
            self._asked_to = end
        return wanted

    def again(self, now_us: int) -> list[int]:
        """Repeat the requests that are due, and return their parts, lowest first."""
        return self._asked.again(now_us)

    def next_us(self, parts: Parts) -> int | None:
        """Return when a request may be due: a repeat, or the first one for the next gap."""
        if self._first_us is not None:
            return self._first_us
        due_us = self._asked.next_us()
        if parts.gaps and len(self._asked) < self._options.requests_open_max:
            gap = parts.gap_from(self._asked_to, 1)
            if gap is not None:
                due_us = min(due_us, gap.seen_us + self._options.request_after_us)
        return None if due_us == NEVER else due_us
