"""Running values along sessions, also from one chunk of an episode to the next.

An episode that is too large for memory is gone through in chunks. What a later chunk must know of those before are a
few numbers for each session, which are carried: the last of a counter, a sum, the greatest so far.
"""

from __future__ import annotations

import numpy as np

from fairway.core.columns import Integers
from fairway.lake.arrays import MISSING, Mask, Words, last_before, most_before, start_of, sum_until


class Carried:
    """Numbers by name and key, for the next chunk; for rows that are all there is, nothing is kept."""

    def __init__(self, *, keeps: bool) -> None:
        self._keeps = keeps
        self._known: dict[str, tuple[Words, Integers]] = {}

    def get(self, name: str, keys: Words, otherwise: int) -> Integers:
        """Return what was put under the keys."""
        words, numbers = self._known.get(name, (np.zeros(0, np.uint64), np.zeros(0, np.int64)))
        if not len(words):
            return np.full(len(keys), otherwise, dtype=np.int64)
        at = np.minimum(np.searchsorted(words, keys), len(words) - 1)
        return np.where(words[at] == keys, numbers[at], otherwise)

    def put(self, name: str, keys: Words, numbers: Integers) -> None:
        """Replace what was put under the keys, no two of which are equal."""
        if not self._keeps:
            return
        known = self._known.get(name)
        if known is not None:
            keys, numbers = np.concatenate((keys, known[0])), np.concatenate((numbers, known[1]))
        words, place = np.unique(keys, return_index=True)
        self._known[name] = words, numbers[place]

    def again(self, name: str) -> Carried:
        """Return what a second pass begins with: only what is known under this name by now."""
        second = Carried(keeps=self._keeps)
        second._known = {name: self._known[name]} if name in self._known else {}
        return second


class Runs:
    """Rows that lie session by session, in the order of time: what each has before it in its session."""

    def __init__(self, sessions: Words, first: Mask, carried: Carried) -> None:
        """`first` are the rows with which a session begins or goes on, `sessions` the words of these."""
        self._sessions, self._first, self._carried = sessions, first, carried
        self._starts, self._run = start_of(first), np.cumsum(first) - 1
        self._openers = np.flatnonzero(first)
        self._closers = np.append(self._openers[1:], len(first))[: len(self._openers)] - 1

    def last(self, name: str, values: Integers, wanted: Mask) -> Integers:
        """Return the wanted value last before each row; -1 if there is none."""
        before = self._carried.get(name, self._sessions, MISSING)
        place = last_before(wanted, self._starts)
        found = np.where(place == MISSING, before[self._run], values[place])
        self._carried.put(name, self._sessions, np.where(wanted, values, found)[self._closers])
        return found

    def most(self, name: str, values: Integers, wanted: Mask) -> Integers:
        """Return the greatest wanted value before each row; -1 if there is none."""
        before = self._carried.get(name, self._sessions, MISSING)
        found: Integers = np.maximum(most_before(values, wanted, self._first), before[self._run])
        self._carried.put(name, self._sessions, np.where(wanted, np.maximum(values, found), found)[self._closers])
        return found

    def total(self, name: str, values: Integers) -> Integers:
        """Return the sum of values up to each row."""
        before = self._carried.get(name, self._sessions, 0)
        found: Integers = sum_until(values, self._starts) + before[self._run]
        self._carried.put(name, self._sessions, found[self._closers])
        return found
