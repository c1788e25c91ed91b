"""Rows for the datagrams that a record may hold as one, and which of them a flow bears out.

Behind the row of such a record, its `piece` 0, stands one for each datagram that may have been merged into it, numbered
from 1 and `merged_as` the protocol whose framing it has. Other protocols have payloads that can be cut like that, too:
only where the flow is recognised as that protocol do the pieces stay, elsewhere the record as it is. A piece is filed
one byte further than the one before: offsets of rows stay unique, and inside their record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import numpy as np

from fairway.capture.columns.datagrams import Datagrams
from fairway.capture.columns.merging import may_be_merged
from fairway.capture.merged import SHORTEST, segments
from fairway.core.columns import Integers
from fairway.core.tables import PROTOCOLS
from fairway.lake.arrays import MISSING, Codes, Mask, Rows, Words, mixed
from fairway.lake.captures.rows import Batch


def with_pieces(batch: Batch) -> Batch:
    """Return the batch with rows for the datagrams that may have been merged; itself if there are none."""
    protocol, sizes = _candidates(batch)
    if not sizes.any():
        return batch
    found = batch.datagrams
    counts = np.where(sizes > 0, 1 - (-found.payload_bytes // np.maximum(sizes, 1)), 1)
    rows = np.repeat(np.arange(len(batch)), counts)
    piece = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    before = (piece - 1) * sizes[rows]
    left = found.payload_bytes[rows] - before
    length = np.where(piece > 0, np.minimum(sizes[rows], left), found.payload_bytes[rows])
    moved = {name: getattr(found, name)[rows] for name in (field.name for field in fields(Datagrams))}
    moved["payload_offset"] = moved["payload_offset"] + np.where(piece > 0, before, 0)
    moved["payload_bytes"] = length
    moved["payload_captured"] = np.where(piece > 0, length, moved["payload_captured"])
    taken = batch.taken(rows, np.maximum(piece - 1, 0), Datagrams(**moved), found.payload_bytes[rows] - length)
    taken.piece, taken.merged_as = piece, protocol[rows]
    return taken


def _candidates(batch: Batch) -> tuple[Integers, Integers]:
    """Return whose datagrams a row may hold and their size, 0 where there is only one or the capture cut it off."""
    found = batch.datagrams
    protocol, sizes = np.full(len(batch), MISSING, dtype=np.int64), np.zeros(len(batch), dtype=np.int64)
    rows = np.flatnonzero(batch.whole & (found.payload_bytes >= SHORTEST) & ~found.first_fragment)
    starts = found.payload_offset[rows]
    ends = starts + found.payload_bytes[rows]
    for index in np.flatnonzero(may_be_merged(batch.buffer, starts, ends)):
        name, size = segments(bytes(batch.view[starts[index] : ends[index]]))
        if size:
            protocol[rows[index]], sizes[rows[index]] = PROTOCOLS.index(name), size
    return protocol, sizes


def borne_out(rows: Rows, key: Words, recognise: Callable[[Mask], Codes]) -> Mask:
    """Return which rows stay: of a record that may hold several datagrams its pieces or itself, as its flow has it.

    `key` is what is recognised as a whole, the flow or the episode; `recognise` returns the protocol of each of some
    rows, as an index in `PROTOCOLS`.
    """
    if rows.missing("merged_as").all():
        return np.ones(len(rows), dtype=bool)
    keys, inverse = np.unique(key, return_inverse=True)
    seen = telling(rows, key)
    recognised = np.full(len(keys), MISSING, dtype=np.int16)
    recognised[inverse[seen]] = recognise(seen)
    return staying(rows, recognised[inverse])


def telling(rows: Rows, key: Words) -> Mask:
    """Return which rows are evidence for a protocol; all rows of a record are among them.

    What a cut would make of a udpc datagram or of an acknowledgement is no evidence for the cut: such a record counts
    as it is, if it is well-formed so.
    """
    piece, protocol = rows.numbers("piece"), _merged_as(rows)
    merged = protocol != MISSING
    answers = rows.codes("pydevts_kind", ("ack", "close")) != MISSING
    record = mixed(key, rows.texts("file_id")[0], rows.numbers("frame"))
    sure = np.unique(record[merged & (piece > 0) & ~answers])
    unclear = (protocol == PROTOCOLS.index("udpc")) | ~np.isin(record, sure)
    malformed = np.zeros(len(rows), dtype=bool)
    for number, name in enumerate(PROTOCOLS):
        malformed |= (protocol == number) & (rows.codes(f"{name}_kind", ("malformed",)) != MISSING)
    seen: Mask = ~merged | np.where(unclear, (piece == 0) & ~malformed, piece > 0)
    return seen


def staying(rows: Rows, recognised: Codes) -> Mask:
    """Return which rows stay where this protocol was recognised."""
    piece, protocol = rows.numbers("piece"), _merged_as(rows)
    stays: Mask = (protocol == MISSING) | np.where(recognised == protocol, piece > 0, piece == 0)
    return stays


def _merged_as(rows: Rows) -> Integers:
    return np.where(rows.missing("merged_as"), MISSING, rows.numbers("merged_as"))
