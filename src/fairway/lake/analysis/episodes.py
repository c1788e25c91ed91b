"""Episodes: one flow at all capture points, cut where it is silent for longer than any protocol lets a peer live.

All that is judged of a conversation is judged within its episode, so an episode is what is computed, and replaced, as a
whole. Records without a time are an episode of their own in their flow; those without a datagram have none.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fairway.core.columns import Integers
from fairway.lake.arrays import Mask, Rows, begins, mixed
from fairway.lake.captures.files import Capture

SILENCE_NS = 300_000_000_000
"""The longest idle time of the four protocols."""


def first_of_episodes(records: Rows) -> Mask:
    """Return which rows begin an episode; the rows lie flow by flow, in the order of time, those without one first."""
    at_ns, timeless = records.numbers("at_ns"), records.missing("at_ns")
    first = begins(records.numbers("flow")) | begins(timeless)
    first[1:] |= np.abs(np.diff(at_ns)) > SILENCE_NS  # also backwards, where one file of a table follows another
    return first


def numbers_of(records: Rows, first: Mask) -> Integers:
    """Return the number of each row's episode: a function of its flow and of when it begins."""
    opener = np.flatnonzero(first)
    flow, at_ns = records.numbers("flow")[opener], records.numbers("at_ns")[opener]
    of_each: Integers = mixed(flow, at_ns, records.missing("at_ns")[opener]).view(np.int64)[np.cumsum(first) - 1]
    return of_each


def are_open(records: Rows, first: Mask, captures: Mapping[int, Capture]) -> Mask:
    """Return which rows belong to an episode that another capture could continue.

    Its first packet is near the beginning of its capture, or its last one near the end.
    """
    file, files = np.unique(records.numbers("file_id"), return_inverse=True)
    begun, ended = (
        np.array([captures[number].span[end] for number in file.tolist()], dtype=np.int64) for end in (0, 1)
    )
    openers = np.flatnonzero(first)
    closers = np.append(openers[1:], len(first)) - 1
    at_ns = records.numbers("at_ns")
    found = at_ns[openers] - begun[files[openers]] <= SILENCE_NS
    found |= ended[files[closers]] - at_ns[closers] <= SILENCE_NS
    found |= records.missing("at_ns")[openers]
    mask: Mask = found[np.cumsum(first) - 1] & (records.numbers("undecoded") == 0)
    return mask
