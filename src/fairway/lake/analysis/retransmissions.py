"""Which records repeat an earlier one.

A *retransmission* is a record that repeats an earlier one of its sender at this point: same udpc index and kind, same
mrp sequence, same rup id and position, same pydevts id. It is a *duplicate* if an acknowledgement of what it carries
passed the point before it, because then an earlier one had arrived. The acknowledgement of a request is its response,
which may be a request itself. What the network doubles faster than the receiver acknowledges is no duplicate.
"""

from __future__ import annotations

import numpy as np

from fairway.core.columns import Integers
from fairway.lake.analysis.decoded import KIND, RUP
from fairway.lake.analysis.said import RESPONSES, Said
from fairway.lake.arrays import MISSING, Mask, Words, begins, mixed, start_of, together

_ALL = np.int64(1) << np.int64(62)
"""How far an acknowledgement reaches that is for the whole of a message."""


def copies(said: Said) -> tuple[Integers, Mask]:
    """Return how often each record was sent before, and which are duplicates."""
    part = np.where(said.protocol == RUP, said.position, said.own)
    named = np.where(said.protocol == RUP, said.number, said.kind)
    places = np.flatnonzero(said.countable)
    key = mixed(said.session[places], said.forward[places], named[places], part[places])
    order = together(key)
    starts = start_of(begins(key[order]))
    earlier = np.zeros(len(said.kind), dtype=np.int64)
    earlier[places[order]] = np.arange(len(order)) - starts
    repeated = np.flatnonzero(earlier)
    duplicate = np.zeros(len(said.kind), dtype=bool)
    if len(repeated):
        duplicate[repeated] = _arrived(said, repeated) | said.covered[repeated]
    return earlier, duplicate


def _arrived(said: Said, repeated: Integers) -> Mask:
    """Return which retransmissions come after an acknowledgement that reaches as far as they do."""
    responds = np.isin(said.kind, RESPONSES) & (said.other != 0)
    acks = (said.kind == KIND["important_ack"]) | ((said.kind == KIND["ack"]) & ~said.failed)
    whole = responds | (said.exists & acks)
    answers = np.flatnonzero(whole | (said.kind == KIND["confirm"]))
    reach = np.where(whole, _ALL, said.position)[answers]
    # An empty message is confirmed by 0, which says nothing of the first part of any other.
    size = np.maximum(said.body_bytes[repeated], said.total[repeated] > 0)
    needed = np.where(said.protocol[repeated] == RUP, said.position[repeated] + size, _ALL)
    asked = _letter(said, said.of_other, said.number, repeated)
    told = _letter(said, said.of_other | responds, np.where(responds, said.other, said.number), answers)
    # Both kinds of rows together, in the order of letters and time: the greatest reach before a retransmission arrived.
    letters, places = np.concatenate((asked, told)), np.concatenate((repeated, answers))
    order = np.lexsort((places, letters))
    levels = np.concatenate((np.full(len(asked), MISSING, np.int64), reach))[order]
    reached = np.empty(len(order), dtype=np.int64)
    reached[order] = _most_so_far(levels, begins(letters[order]))
    arrived: Mask = (reached[: len(asked)] >= needed) & said.exists[repeated]
    return arrived


def _most_so_far(levels: Integers, first: Mask) -> Integers:
    """Return the greatest level of each group up to each row."""
    values, rank = np.unique(levels, return_inverse=True)
    group = np.cumsum(first) * len(values)
    reached: Integers = values[np.maximum.accumulate(group + rank) - group]
    return reached


def _letter(said: Said, of_other: Mask, number: Integers, places: Integers) -> Words:
    """Return a word for the message that a record carries or acknowledges."""
    return mixed(said.session[places], (said.forward ^ of_other)[places], number[places])
