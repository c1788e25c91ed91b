"""The CRC-32 of many pieces of a buffer: to call zlib for each costs more than the sum."""

from __future__ import annotations

from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from fairway.capture.columns.compiled import compiled, inner
from fairway.core.columns import Bytes, Integers

_Tables = NDArray[np.uint32]
_STEP = 8
"""Bytes that are taken at once."""


def crcs(buffer: Bytes, starts: Integers, ends: Integers) -> Integers:
    """Return the CRC-32 of the bytes from each start to its end; that of none is 0."""
    found = np.zeros(len(starts), dtype=np.int64)
    _fill(buffer, starts, ends, _TABLES, found)
    return found


@compiled
def _fill(buffer: Bytes, starts: Integers, ends: Integers, tables: _Tables, found: Integers) -> None:
    for row in range(len(starts)):
        found[row] = _crc(buffer, starts[row], ends[row], tables)


@inner
def _crc(buffer: Bytes, start: int, end: int, tables: _Tables) -> int:
    mask, byte = np.uint64(0xFF), np.uint64(8)
    rest = np.uint64(end - (end - start) % _STEP)
    crc = np.uint64(0xFFFFFFFF)
    for place in range(np.uint64(start), rest, byte):
        word = crc
        for step in range(byte):
            word ^= np.uint64(buffer[place + step]) << step * byte
        crc = np.uint64(0)
        for step in range(byte):
            crc ^= np.uint64(tables[np.uint64(7) - step, word >> step * byte & mask])
    for place in range(rest, np.uint64(end)):
        crc = crc >> byte ^ np.uint64(tables[np.uint64(0), (crc ^ np.uint64(buffer[place])) & mask])
    return int(crc ^ np.uint64(0xFFFFFFFF))


def _tables() -> _Tables:
    """Return the CRC of each byte, bare, with 0 to 7 zeros behind it."""
    bare = [crc32(bytes((byte,)), 0xFFFFFFFF) ^ 0xFFFFFFFF for byte in range(256)]
    tables = [bare]
    while len(tables) < _STEP:
        tables.append([crc >> 8 ^ bare[crc & 0xFF] for crc in tables[-1]])
    return np.array(tables, dtype=np.uint32)


_TABLES = _tables()
