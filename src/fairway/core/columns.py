"""Decoding headers by columns: a buffer and the places of many datagrams in, one numpy array per field out.

A protocol's `columns.py` names its fields and rules; this module gathers bytes. Nothing here loops over datagrams.
Rows that are malformed have kind 0 and a reason; their fields are 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
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


def headers(buffer: Bytes, offsets: Integers, lengths: Integers, header_bytes: int) -> Bytes:
    """Gathers the first `header_bytes` of each datagram into a matrix; what a datagram does not have is 0."""
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


def big_endian(matrix: Bytes, start: int, width: int) -> Integers:
    """Reads an unsigned big-endian integer of `width` bytes from column `start` on of every row."""
    value = matrix[:, start].astype(np.int64)
    for column in range(start + 1, start + width):
        value = (value << 8) | matrix[:, column]
    return value


def segments(data: bytes | bytearray | memoryview, segment_bytes: int) -> tuple[Bytes, Integers, Integers]:
    """Gives a received super-buffer as buffer, offsets and lengths."""
    buffer = np.frombuffer(data, dtype=np.uint8)
    offsets = np.arange(0, len(buffer), segment_bytes, dtype=np.int64)
    lengths = np.full(len(offsets), segment_bytes, dtype=np.int64)
    if len(offsets):
        lengths[-1] = len(buffer) - int(offsets[-1])
    return buffer, offsets, lengths
