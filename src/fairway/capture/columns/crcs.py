"""The CRC-32 of many pieces of a buffer, and of the ends of messages.

To call zlib for each piece costs more than the sum. That of a message's end follows from that of all of it and that of
its beginning, so that no byte is read again: a CRC is linear. That of a whole is that of its beginning, carried over as
many zeros as the rest is long, combined with that of the rest. Carrying over 2^n zeros is a table; a length needs as
many of them as it has bits.
"""

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
    for at in range(np.uint64(start), rest, byte):
        word = crc
        for step in range(byte):
            word ^= np.uint64(buffer[at + step]) << step * byte
        crc = np.uint64(0)
        for step in range(byte):
            crc ^= np.uint64(tables[np.uint64(7) - step, word >> step * byte & mask])
    for at in range(rest, np.uint64(end)):
        crc = crc >> byte ^ np.uint64(tables[np.uint64(0), (crc ^ np.uint64(buffer[at])) & mask])
    return int(crc ^ np.uint64(0xFFFFFFFF))


def _tables() -> _Tables:
    """Return the CRC of each byte, bare, with 0 to 7 zeros behind it."""
    bare = [crc32(bytes((byte,)), 0xFFFFFFFF) ^ 0xFFFFFFFF for byte in range(256)]
    tables = [bare]
    while len(tables) < _STEP:
        tables.append([crc >> 8 ^ bare[crc & 0xFF] for crc in tables[-1]])
    return np.array(tables, dtype=np.uint32)


_TABLES = _tables()


_POLYNOMIAL = 0xEDB88320
_LENGTH_BITS = 17
"""Lengths up to 128 kB, more than UDP carries."""


def crcs_of_rest(whole: Integers, beginning: Integers, rest_bytes: Integers) -> Integers:
    """Return the CRC-32 of the last `rest_bytes` of messages."""
    carried = beginning.astype(np.uint32)
    for bit, tables in enumerate(_CARRYING):
        rows = np.flatnonzero((rest_bytes >> bit) & 1)
        if len(rows):
            carried[rows] = _carried(tables, carried[rows])
    return whole ^ carried.astype(np.int64)


def _carried(tables: _Tables, words: _Tables) -> _Tables:
    octets = words.view(np.uint8).reshape(*words.shape, 4)
    found: _Tables = tables[0][octets[..., 0]]
    for index in range(1, 4):
        found ^= tables[index][octets[..., index]]
    return found


def _carrying() -> list[_Tables]:
    """Return, for each bit of a length, what becomes of each of a CRC's four bytes."""
    words = np.array([[octet << 8 * index for octet in range(256)] for index in range(4)], dtype=np.uint32)
    for _ in range(8):
        words = np.where(words & 1, (words >> np.uint32(1)) ^ np.uint32(_POLYNOMIAL), words >> np.uint32(1))
    found = [words]
    while len(found) < _LENGTH_BITS:
        found.append(_carried(found[-1], found[-1]))
    return found


_CARRYING = _carrying()
assert np.little_endian
