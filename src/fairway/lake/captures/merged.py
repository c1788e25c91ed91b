"""Rows for the datagrams that a record holds as one: each gets its own, as if the network had been captured.

A row beyond the first of a record is filed one byte further than the one before: places of rows stay unique, and
inside their record.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from fairway.capture.columns.datagrams import Datagrams
from fairway.capture.columns.merging import may_be_merged
from fairway.capture.merged import SHORTEST, segment_bytes
from fairway.core.columns import Integers
from fairway.lake.captures.rows import Batch


def unmerged(batch: Batch) -> Batch:
    """Gives the batch with merged datagrams taken apart; itself if it holds none."""
    sizes = _sizes(batch)
    if not sizes.any():
        return batch
    found = batch.datagrams
    counts = np.where(sizes > 0, -(-found.payload_bytes // np.maximum(sizes, 1)), 1)
    rows = np.repeat(np.arange(len(batch)), counts)
    nth = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    before = nth * sizes[rows]
    cut = sizes[rows] > 0
    length = np.where(cut, np.minimum(sizes[rows], found.payload_bytes[rows] - before), found.payload_bytes[rows])
    moved = {name: getattr(found, name)[rows] for name in (field.name for field in fields(Datagrams))}
    moved["payload_offset"] = moved["payload_offset"] + before
    moved["payload_bytes"] = length
    moved["payload_captured"] = np.where(cut, length, moved["payload_captured"])
    return batch.taken(rows, nth, Datagrams(**moved), found.payload_bytes[rows] - length)


def _sizes(batch: Batch) -> Integers:
    """Gives the size of a row's merged datagrams, 0 where there is only one or the capture cut it off."""
    found = batch.datagrams
    sizes = np.zeros(len(batch), dtype=np.int64)
    rows = np.flatnonzero(batch.whole & (found.payload_bytes >= SHORTEST) & ~found.first_fragment)
    starts = found.payload_offset[rows]
    ends = starts + found.payload_bytes[rows]
    for index in np.flatnonzero(may_be_merged(batch.buffer, starts, ends)):
        sizes[rows[index]] = segment_bytes(bytes(batch.view[starts[index] : ends[index]]))
    return sizes
