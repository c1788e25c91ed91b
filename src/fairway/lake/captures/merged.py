"""Rows for the datagrams that a record holds as one: each gets its own, as if the network had been captured.

A row beyond the first of a record is filed one byte further than the one before: places of rows stay unique, and
inside their record.
"""

from __future__ import annotations

from dataclasses import fields
from zlib import crc32

import numpy as np

from fairway.capture.columns.datagrams import Datagrams
from fairway.capture.merged import SHORTEST, segment_bytes
from fairway.core.columns import Integers
from fairway.lake.captures.rows import Batch, Mask
from fairway.protocols.mrp.wire import CONNECT_BYTES
from fairway.protocols.mrp.wire import MAGIC as MRP
from fairway.protocols.pydevts.wire import HEADER_BYTES as PYDEVTS_BYTES
from fairway.protocols.rup.wire import CONTROL_BYTES
from fairway.protocols.udpc.wire import HEADER_BYTES as UDPC_BYTES

RUP_DATA, RUP_REQUEST, RUP_CONFIRM = b"drc"
AFTER_ID = 33
"""Where the zero byte of a request or confirm stands."""
NEW_MESSAGE = b"d\1"
"""How the first part of another rup message begins."""


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
    data = bytes(batch.view)
    for index in _suspects(data, starts, ends):
        sizes[rows[index]] = segment_bytes(data[starts[index] : ends[index]])
    return sizes


def _suspects(data: bytes, starts: Integers, ends: Integers) -> Integers:
    """Gives the places of payloads in which the beginning of a second datagram may stand.

    Nearly all are single: a search for one sign each is all that they cost.
    """
    if not len(starts):
        return starts
    buffer = np.frombuffer(data, dtype=np.uint8)
    first, second, third = (buffer[starts + number] for number in range(3))
    lengths = ends - starts
    is_mrp = (first == MRP[0]) & (second == MRP[1]) & (third == MRP[2])
    is_part = (first == RUP_DATA) & (second <= 1)
    is_control = ((first == RUP_REQUEST) | (first == RUP_CONFIRM)) & (lengths % CONTROL_BYTES == 0)
    is_control &= buffer[np.minimum(starts + AFTER_ID, len(buffer) - 1)] == 0
    fixed = is_control & (lengths > CONTROL_BYTES)
    fixed |= ((first == 1) | (first == 3)) & (second <= 1) & (lengths % PYDEVTS_BYTES == 0)
    is_other = ~is_mrp & ~is_part & ~is_control
    is_packet = is_other & (first == 0) & (second <= 1)
    whole = _whole_packets(data, starts, ends, is_packet)
    is_packet[whole], is_other[whole] = False, False
    signs = (
        # Whose sign it is, where it stands in the first datagram, and from where on in the second.
        (is_mrp, slice(0, len(MRP)), CONNECT_BYTES),
        (is_part, slice(2, 34), CONTROL_BYTES),
        (is_packet, slice(0, 3), PYDEVTS_BYTES),
        (is_other & (lengths >= 2 * UDPC_BYTES), slice(4, 8), UDPC_BYTES + 4),
    )
    suspected = [np.flatnonzero(fixed), _with(data, starts, ends, is_part, NEW_MESSAGE, CONTROL_BYTES)]
    suspected += [_repeating(data, starts, ends, *sign) for sign in signs]
    return np.unique(np.concatenate(suspected))


def _whole_packets(data: bytes, starts: Integers, ends: Integers, mask: Mask) -> Integers:
    """Gives the payloads that are one packet of pydevts, as their CRC proves."""
    rows = np.flatnonzero(mask & (ends - starts > PYDEVTS_BYTES))
    if not len(rows):
        return rows
    said = np.frombuffer(data, dtype=np.uint8)[starts[rows, None] + np.arange(4, 8)].view(">u4")[:, 0]
    view = memoryview(data)
    pairs = zip((starts[rows] + PYDEVTS_BYTES).tolist(), ends[rows].tolist(), strict=True)
    found: Integers = rows[said == np.array([crc32(view[start:end]) for start, end in pairs], dtype=np.uint32)]
    return found


def _repeating(data: bytes, starts: Integers, ends: Integers, mask: Mask, sign: slice, after: int) -> Integers:
    """Gives the payloads in which a piece of their beginning stands again."""
    rows = np.flatnonzero(mask)
    find, low, high = data.find, sign.start, sign.stop
    pairs = zip(starts[rows].tolist(), ends[rows].tolist(), strict=True)
    return rows[[find(data[start + low : start + high], start + after, end) >= 0 for start, end in pairs]]


def _with(data: bytes, starts: Integers, ends: Integers, mask: Mask, sign: bytes, after: int) -> Integers:
    """Gives the payloads in which this sign stands."""
    rows = np.flatnonzero(mask)
    find = data.find
    pairs = zip((starts[rows] + after).tolist(), ends[rows].tolist(), strict=True)
    return rows[[find(sign, start, end) >= 0 for start, end in pairs]]
