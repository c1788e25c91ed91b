"""The CRC-32 of the end of a message, from that of all of it and that of its beginning: no byte is read again.

A CRC is linear: that of a whole is that of its beginning, carried over as many zeros as the rest is long, combined with
that of the rest. Carrying over 2^n zeros is a table; a length needs as many of them as it has bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairway.core.columns import Integers

_POLYNOMIAL = 0xEDB88320
_LENGTH_BITS = 17
"""Lengths up to 128 kB, more than UDP carries."""


def crcs_of_rest(whole: Integers, beginning: Integers, rest_bytes: Integers) -> Integers:
    """Return the CRC-32 of the last `rest_bytes` of messages."""
    carried = beginning.astype(np.uint32)
    for bit, tables in enumerate(_TABLES):
        rows = np.flatnonzero((rest_bytes >> bit) & 1)
        if len(rows):
            octets = carried[rows].view(np.uint8).reshape(-1, 4)
            found = tables[0][octets[:, 0]]
            for place in range(1, 4):
                found ^= tables[place][octets[:, place]]
            carried[rows] = found
    return whole ^ carried.astype(np.int64)


def _carried(tables: NDArray[np.uint32], words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    found = np.zeros_like(words)
    for place in range(4):
        found ^= tables[place][(words >> np.uint32(8 * place)) & np.uint32(0xFF)]
    return found


def _tables() -> list[NDArray[np.uint32]]:
    """Return, for each bit of a length, what becomes of each of a CRC's four bytes."""
    words = np.array([[octet << 8 * place for octet in range(256)] for place in range(4)], dtype=np.uint32)
    for _ in range(8):
        words = np.where(words & 1, (words >> np.uint32(1)) ^ np.uint32(_POLYNOMIAL), words >> np.uint32(1))
    found = [words]
    while len(found) < _LENGTH_BITS:
        found.append(_carried(found[-1], found[-1]))
    return found


_TABLES = _tables()
assert np.little_endian
