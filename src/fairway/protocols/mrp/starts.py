"""How many sequences may start: at most half a turn of the counter within an interval.

A duplicate may linger in the network. It is harmless while fewer than half the numbers have been used since: it is then
recognised as old. Started sequences are counted in slots of a thirty-second of the interval, each taken to
have happened at its end, so the limit is kept exactly and reached almost.
"""

from __future__ import annotations

from collections import deque

_SLOTS = 32


class Starts:
    """Counts the sequences started lately by one sender."""

    __slots__ = ("_in_all", "_longest_us", "_most", "_slots")

    def __init__(self, most: int, longest_us: int) -> None:
        self._most = most
        self._longest_us = longest_us
        """No interval asked about is longer than this, so what is older is forgotten."""
        self._slots: deque[list[int]] = deque()
        """[first started, last started, count], oldest first."""
        self._in_all = 0

    def started(self, count: int, interval_us: int, now_us: int) -> None:
        """Note sequences that start now."""
        slots = self._slots
        self._in_all += count
        if slots and (now_us - slots[-1][0]) * _SLOTS <= interval_us:
            slots[-1][1] = now_us
            slots[-1][2] += count
            return
        slots.append([now_us, now_us, count])
        while slots[0][1] <= now_us - self._longest_us or self._in_all - slots[0][2] >= self._most:
            self._in_all -= slots.popleft()[2]

    def room(self, interval_us: int, now_us: int) -> int:
        """Return how many sequences may start now."""
        room = self._most - self._in_all
        if room > 0 and self._in_all * 2 < self._most:
            return room
        return self._most - sum(slot[2] for slot in self._inside(interval_us, now_us))

    def next_room_us(self, interval_us: int, now_us: int) -> int:
        """Return when the oldest slot that counts leaves the interval."""
        inside = self._inside(interval_us, now_us)
        return (inside[-1][1] if inside else now_us) + interval_us

    def _inside(self, interval_us: int, now_us: int) -> list[list[int]]:
        """List the slots that lie within the interval, newest first."""
        inside: list[list[int]] = []
        for slot in reversed(self._slots):
            if slot[1] <= now_us - interval_us:
                break
            inside.append(slot)
        return inside
