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
    """The decoded headers of many datagrams, row by row as they were given; what malformed rows hold is set to 0."""

    kinds: tuple[str, ...]
    """Names of the kinds; `kinds[0]` is `malformed`."""
    reasons: tuple[str, ...]
    """Names of the reasons; `reasons[0]` is empty."""
    kind: Bytes
    reason: Bytes
    fields: dict[str, NDArray[np.generic]]
    """Header fields, `int64` or fixed-width bytes (`S32`), by name; 0 in malformed rows and where a kind lacks one."""
    body_bytes: Integers
    """The size of the body, which ends with the datagram; 0 in malformed rows."""

    def __post_init__(self) -> None:
        bad = self.reason != 0
        if bad.any():
            self.kind[bad] = 0
            self.body_bytes[bad] = 0
            for column in self.fields.values():
                column[bad] = np.zeros((), dtype=column.dtype)

    def __len__(self) -> int:
        return len(self.kind)


def windows(buffer: Bytes, width: int) -> NDArray[np.void]:
    """Return an overlapping view with a row per byte of the buffer: numpy copies a row in one go, from any offset."""
    rows = max(0, len(buffer) - width + 1)
    return np.ndarray((rows,), dtype=f"V{width}", buffer=np.ascontiguousarray(buffer), strides=(1,))


def headers(buffer: Bytes, offsets: Integers, lengths: Integers | None, width: int) -> Bytes:
    """Gather the first `width` bytes of each datagram into a row; with lengths, what a datagram does not have is 0."""
    if len(offsets) and int(offsets.max()) > len(buffer) - width:  # the last rows reach beyond the end
        buffer = np.concatenate((buffer, np.zeros(width, dtype=np.uint8)))
    gathered = windows(buffer, width)[offsets].view(np.uint8).reshape(len(offsets), width)
    if lengths is not None:
        short = np.flatnonzero(lengths < width)
        gathered[short] *= np.arange(width) < lengths[short, None]
    return gathered
