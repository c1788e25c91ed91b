"""Deadlines of many things with one answer: when is the next.

Moving a deadline later, the common case when every packet pushes a time-out away, costs a dictionary write: the heap
entry stays where it is and is corrected when it comes up.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

STALE_MAX = 64
"""Heap entries that count no more, beyond as many as there are deadlines, before they are cleared out."""


class Deadlines(Generic[Key]):
    """One deadline per key. Equal deadlines come up in the order in which their keys were first queued."""

    def __init__(self) -> None:
        self._due: dict[Key, int] = {}
        self._queued: dict[Key, int] = {}
        """The earliest heap entry of each key; later ones of the same key are stale."""
        self._heap: list[tuple[int, int, Key]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._due)

    def set(self, key: Key, due_us: int | None) -> None:
        """Move the key's deadline, or clear it with None."""
        if due_us is None:
            self._due.pop(key, None)
            return
        self._due[key] = due_us
        queued = self._queued.get(key)
        if queued is None or due_us < queued:
            self._push(key, due_us)

    def get(self, key: Key) -> int | None:
        return self._due.get(key)

    def _push(self, key: Key, due_us: int) -> None:
        self._queued[key] = due_us
        self._count += 1
        heappush(self._heap, (due_us, self._count, key))
        if len(self._heap) > 2 * len(self._due) + STALE_MAX:
            self._drop_stale()

    def _drop_stale(self) -> None:
        """Rebuild the heap from the entries that count: a peer must not grow it by what was set and cleared."""
        live = [entry for entry in self._heap if entry[2] in self._due and self._queued.get(entry[2]) == entry[0]]
        self._queued = {key: queued_us for queued_us, _, key in live}
        self._heap[:] = sorted(live)

    def next_us(self) -> int | None:
        heap = self._heap
        while heap:
            queued_us, _, key = heap[0]
            due_us = self._due.get(key)
            if due_us == queued_us:
                return queued_us
            heappop(heap)
            if self._queued.get(key) == queued_us:
                del self._queued[key]
                if due_us is not None:
                    self._push(key, due_us)
        return None

    def pop_due(self, now_us: int) -> list[Key]:
        """Remove the keys whose deadline has come, earliest first."""
        due: list[Key] = []
        while True:
            next_us = self.next_us()
            if next_us is None or next_us > now_us:
                return due
            key = heappop(self._heap)[2]
            self._queued.pop(key, None)
            self._due.pop(key, None)
            due.append(key)
