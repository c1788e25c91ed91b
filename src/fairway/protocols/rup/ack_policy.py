"""How far apart the confirms of one peer's parts are: close at first, and close again when its sender stands still.

A sender's window is for all its messages together, starts small and doubles, so the first parts of a conversation are
confirmed one by one and later ones further and further apart, up to the 64 that the wire allows. A confirm that leaves
by time and not by number says that the sender perhaps waits for it: its window is smaller than the distance, as after
losses. It would stand still for 20 ms window after window; the distance goes down to half of what came, and grows again
by one with every other confirm by number. Many messages at once share the window, and so the distance.
"""

from __future__ import annotations

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
