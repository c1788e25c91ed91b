"""What is asked for again until it comes, and when: the receiving side of recovery where it asks by name.

How long a question waits before it is repeated depends on the round trip measured by then and on how often it was
asked. So questions are kept by their back-off, in the order in which they were last asked: the first of each row is due
first, whatever the round trip is by now, and neither an arrival nor a repeat touches the others.
"""

from __future__ import annotations

from collections import OrderedDict

from fairway.core.recovery.runs import NEVER
from fairway.core.recovery.timing import PingLoss

REPEATS_AT_ONE_PACE = 3
"""So many repeats come before the first that waits twice as long."""
BACK_OFF_MAX = 10
"""Doublings from the shortest wait to beyond the longest."""


class Pace:
    """How long a question to one peer waits before it is repeated, measured on those that were asked once."""

    __slots__ = ("_kept_us", "_law")

    def __init__(self, *, initial_us: int, min_us: int, max_us: int) -> None:
        self._law = PingLoss(initial_us=initial_us, min_us=min_us, max_us=max_us)
        """One and a half round trips: a question or its answer is lost, and nothing here tells how much is."""
        self._kept_us = 0
        """A back-off that stays until the next sample (Karn): when the measured time is far too short every question
        is repeated, and none would give a sample."""

    def wait_us(self, back_off: int) -> int:
        """Return how long to wait after a question that was backed off so many times."""
        return max(self._kept_us, self._law.backed_off_us(back_off, self._law.max_us))

    def answered(self, times: int, back_off: int, elapsed_us: int) -> None:
        """Measure an answer that came `elapsed_us` after its question was last asked."""
        if times == 1:
            self._law.sample(elapsed_us)
            self._kept_us = 0
        elif back_off > 1:
            self._kept_us = self._law.backed_off_us(back_off - 1, self._law.max_us)


class Asked:
    """Numbers that were asked for and have not come."""

    __slots__ = ("_open", "_pace", "_rows")

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._open: dict[int, int] = {}
        """By number: how often it was asked for."""
        self._rows: list[OrderedDict[int, int]] = []
        """By back-off: when each number was last asked for, the earliest first."""

    def __len__(self) -> int:
        return len(self._open)

    def ask(self, number: int, now_us: int) -> None:
        """Take that a number is asked for, the first time or again."""
        self._open[number] = times = self._open.get(number, 0) + 1
        back_off = _back_off(times)
        while len(self._rows) <= back_off:
            self._rows.append(OrderedDict())
        self._rows[back_off][number] = now_us

    def came(self, number: int, now_us: int) -> None:
        """Take that a number is here, asked for or not."""
        times = self._open.pop(number, 0)
        if times:
            back_off = _back_off(times)
            self._pace.answered(times, back_off, now_us - self._rows[back_off].pop(number))

    def again(self, now_us: int) -> list[int]:
        """Ask again for what is due, and return it, lowest first."""
        due: list[int] = []
        for back_off, row in enumerate(self._rows):
            asked_by_us = now_us - self._pace.wait_us(back_off)
            while row and next(iter(row.values())) <= asked_by_us:
                due.append(row.popitem(last=False)[0])
        due.sort()
        for number in due:
            self.ask(number, now_us)
        return due

    def next_us(self) -> int:
        """Return when something is to be asked for again."""
        due_us = NEVER
        for back_off, row in enumerate(self._rows):
            if row:
                due_us = min(due_us, next(iter(row.values())) + self._pace.wait_us(back_off))
        return due_us


def _back_off(times: int) -> int:
    """Return how often the waiting time was doubled by the time that something is asked for so often."""
    return min(BACK_OFF_MAX, max(0, times - REPEATS_AT_ONE_PACE))
