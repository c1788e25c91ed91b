"""The virtual clock and its queue of things to come.

Time is an integer of microseconds and moves only when the next entry is taken, so a deadline a minute away costs as
much as one a microsecond away. Entries of the same instant come up in the order in which they were queued.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Action = Callable[[Any], None]
Entry = tuple[int, int, Action, Any]


class Schedule:
    """One queue of actions; `now_us` is the time of the action that runs."""

    __slots__ = ("count", "heap", "now_us", "stopped", "taken")

    def __init__(self) -> None:
        self.now_us = 0
        self.heap: list[Entry] = []
        self.count = 0
        """Entries queued so far: breaks ties, first in first out."""
        self.taken = 0
        self.stopped = False

    def at(self, time_us: int, action: Action, argument: Any = None) -> None:
        """Queue an action; one for the past runs now."""
        self.count += 1
        heappush(self.heap, (time_us, self.count, action, argument))

    def take(self) -> None:
        """Take out the next entry without running it: the action under way has seen to it."""
        heappop(self.heap)
        self.taken += 1

    def stop(self) -> None:
        """End the `run` under way after the current action."""
        self.stopped = True

    def run(self, until_us: int, actions_max: int) -> bool:
        """Take actions up to a time; return whether it got there, or was stopped, before `actions_max` of them."""
        self.stopped = False
        heap = self.heap
        left = actions_max
        while heap and left > 0 and not self.stopped:
            if heap[0][0] > until_us:
                break
            time_us, _, action, argument = heappop(heap)
            self.now_us = max(self.now_us, time_us)
            action(argument)
            left -= 1
        self.taken += actions_max - left
        if left > 0 and not self.stopped and until_us > self.now_us:
            self.now_us = until_us
        return left > 0
