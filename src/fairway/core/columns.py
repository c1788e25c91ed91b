"""Decoding headers by columns: a buffer and the offsets of many datagrams in, one numpy array per field out.

A protocol's `columns.py` names its fields and rules; this module gathers bytes. Nothing here loops over datagrams.
Rows that are malformed have kind 0 and a reason; their fields are 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The decoded headers of many datagrams, row by row as they were given."""

    kinds: tuple[str, ...]
    """Names of the kinds; `kinds[0]` is `malformed`."""
    reasons: tuple[str, ...]
    """Names of the reasons; `reasons[0]` is empty."""
    kind: Bytes
    reason: Bytes
    fields: dict[str, NDArray[np.generic]]
    """Header fields, `int64` or fixed-width bytes (`S32`), by name; 0 in malformed rows and where a kind lacks one."""
    body_offset: Integers
    """Where the body starts in the buffer."""
    body_bytes: Integers
    """The body's size; 0 in malformed rows."""

    def __len__(self) -> int:
        return len(self.kind)


def assembled(
    *,
    kinds: tuple[str, ...],
    reasons: tuple[str, ...],
    kind: Bytes,
    reason: Bytes,
    fields: dict[str, NDArray[np.generic]],
    body_offset: Integers,
    body_bytes: Integers,
) -> Columns:
    """Make columns of these arrays, whose malformed rows it sets to 0."""
    bad = reason != 0
    if bad.any():
        kind[bad] = 0
        body_bytes[bad] = 0
        for column in fields.values():
            column[bad] = np.zeros((), dtype=column.dtype)
    return Columns(
        kinds=kinds,
        reasons=reasons,
        kind=kind,
        reason=reason,
        fields=fields,
        body_offset=body_offset,
        body_bytes=body_bytes,
    )


def windows(buffer: Bytes, width: int) -> NDArray[np.void]:
    """Return an overlapping view with a row per byte of the buffer: numpy copies a row in one go, from any place."""
    rows = max(0, len(buffer) - width + 1)
    return np.ndarray((rows,), dtype=f"V{width}", buffer=np.ascontiguousarray(buffer), strides=(1,))


def whole_headers(
    buffer: Bytes, offsets: Integers, short: NDArray[np.bool_], header: np.dtype[np.void]
) -> NDArray[np.void]:
    """Copy each datagram's header into a row; rows of datagrams that are too short for one are 0."""
    rows = windows(buffer, header.itemsize)
    if len(rows) == 0 or len(offsets) == 0:
        return np.zeros(len(offsets), dtype=header)
    if not short.any():
        return rows[offsets].view(header)
    gathered = rows[np.where(short, 0, offsets)].view(header)
    gathered[short] = np.zeros((), dtype=header)
    return gathered


def headers(buffer: Bytes, offsets: Integers, lengths: Integers, header_bytes: int) -> Bytes:
    """Gather the first `header_bytes` of each datagram into a matrix; what a datagram does not have is 0."""
    if len(offsets) == 0 or len(buffer) == 0:
        return np.zeros((len(offsets), header_bytes), dtype=np.uint8)
    places = offsets[:, None] + np.arange(header_bytes, dtype=np.int64)
    np.minimum(places, len(buffer) - 1, out=places)
    gathered: Bytes = buffer[places]
    short = lengths < header_bytes
    if short.any():
        inside = np.arange(header_bytes, dtype=np.int64) < lengths[short, None]
        gathered[short] *= inside
    return gathered
