"""Open requests of one message: which missing parts were asked for, and when to ask again.

New gaps open only above the highest part, so a message's parts are asked for in rising order: one cursor says how far.
"""

from __future__ import annotations

from fairway.protocols.rup.options import RupOptions
from fairway.protocols.rup.parts import Parts


class Requests:
    """Asks for missing parts, lowest first, a bounded number at a time."""

    __slots__ = ("_asked_to", "_first_us", "_next_us", "_open", "_options")

    def __init__(self, options: RupOptions) -> None:
        self._options = options
        self._open: dict[int, tuple[int, int]] = {}
        """By part: when to ask again, and how long to wait after that."""
        self._asked_to = 0
        """Every missing part below is open."""
        self._next_us: int | None = None
        """No repeat is due before; None when nothing is open."""
        self._first_us: int | None = None
        """When to ask for part 0 while it is the only one known to be missing."""

    def __len__(self) -> int:
        return len(self._open)

    def arrived(self, index: int) -> None:
        """Closes the request for a part that is here."""
        if index in self._open:
            del self._open[index]
            if not self._open:
                self._next_us = None

    def expect_first(self, now_us: int) -> None:
        """Sets out to ask for part 0: only a last part is here, and where the others begin is unknown."""
        self._first_us = now_us + self._options.request_after_us

    def grid_known(self) -> None:
        """Takes note that from here on gaps say what is missing."""
        self._first_us = None

    def is_idle(self, parts: Parts) -> bool:
        """Tells that there is no gap that was not asked for."""
        return parts.gaps == 0 or parts.gap_from(self._asked_to, 1) is None

    def new(self, parts: Parts, now_us: int) -> list[int]:
        """Opens requests for the parts that now count as missing, and lists them."""
        asked: list[int] = []
        options = self._options
        if self._first_us is not None and self._first_us <= now_us:
            self._first_us = None
            self._open_one(0, now_us)
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
                self._open_one(index, now_us)
                asked.append(index)
            self._asked_to = end
        return asked

    def _open_one(self, index: int, now_us: int) -> None:
        wait_us = self._options.request_again_us
        due_us = now_us + wait_us
        self._open[index] = (due_us, min(2 * wait_us, self._options.request_again_us_max))
        self._next_us = due_us if self._next_us is None else min(self._next_us, due_us)

    def again(self, now_us: int) -> list[int]:
        """Lists the parts whose request is to be repeated now, lowest first."""
        if self._next_us is None or now_us < self._next_us:
            return []
        due = sorted(index for index, (due_us, _) in self._open.items() if due_us <= now_us)
        for index in due:
            wait_us = self._open[index][1]
            self._open[index] = (now_us + wait_us, min(2 * wait_us, self._options.request_again_us_max))
        self._next_us = min(due_us for due_us, _ in self._open.values())
        return due

    def next_us(self, parts: Parts) -> int | None:
        """Tells when a request may be due: a repeat, or the first one for the next gap."""
        next_us = self._next_us
        if self._first_us is not None:
            return self._first_us
        if parts.gaps and len(self._open) < self._options.requests_open_max:
            gap = parts.gap_from(self._asked_to, 1)
            if gap is not None:
                first_us = gap.seen_us + self._options.request_after_us
                next_us = first_us if next_us is None else min(next_us, first_us)
        return next_us
