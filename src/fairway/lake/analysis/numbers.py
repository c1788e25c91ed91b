"""Counters that wrap on the wire, widened: how often the counter went round, then the counter.

The step from one number to the next of the same sender is the shortest one, as in serial arithmetic, and the sum of
steps is the widened number. What a peer acknowledges is widened to the number nearest to the last one that its
sender used. Acknowledgements never move the count themselves: one that names nothing would move it anywhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairway.core.columns import Integers
from fairway.lake.arrays import MISSING, Mask, last_before, sum_until

TURNS = {"udpc": 1 << 32, "mrp": 1 << 16, "rup": 1, "pydevts": 1 << 16}
"""How many numbers a protocol's counter has; rup has none."""


class Numbers(NamedTuple):
    """What the rows of sessions say of both sides' counters; 0 where they say nothing."""

    own: Integers
    other: Integers


def widened(
    own: Integers, has_own: Mask, other: Integers, has_other: Mask, forward: Mask, turn: Integers, starts: Integers
) -> Numbers:
    """Widens the numbers of rows that lie session by session, in the order of time; `starts` is where each begins."""
    turns, references = [], []
    for sends in (forward, ~forward):
        last = last_before(sends & has_own, starts)
        reference = np.where(last == MISSING, MISSING, own[last])
        known = sends & has_own & (last != MISSING)
        gone_round = np.where(known, (_nearest(own, reference, turn) - own) // turn, 0)
        turns.append(sum_until(gone_round, starts))
        references.append(reference)
    of_other = np.where(forward, references[1], references[0])
    said = np.where(of_other == MISSING, other, _nearest(other, of_other, turn))
    wide_own = own + turn * np.where(forward, turns[0], turns[1])
    wide_other = said + turn * np.where(forward, turns[1], turns[0])
    return Numbers(np.where(has_own, wide_own, 0), np.where(has_other, wide_other, 0))


def _nearest(number: Integers, reference: Integers, turn: Integers) -> Integers:
    """Return the number that is congruent to `number` and nearest to `reference`."""
    half = turn >> 1
    nearest: Integers = reference + ((number - reference + half) & (turn - 1)) - half
    return nearest
