"""Many rup datagrams at once: headers to columns, and the bursts of parts that the machine takes and sends as a whole.

A burst is n parts of one message with consecutive positions, each of the same size. Its headers are a function of the
id, the total and the first position, so a received burst is checked by comparing its headers with those that an exact
sender would have made: one gather and one comparison of bytes, and nothing unusual can pass.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fairway.core.columns import Bytes, Columns, Integers, headers
from fairway.core.machine import Buffer
from fairway.protocols.rup.wire import (
    BASE,
    CONTROL_BYTES,
    CONTROL_ID,
    DATA,
    DATA_HEADER_BYTES,
    DATA_ID,
    ID_DIGITS,
    KINDS,
    LETTER_OF_KIND,
    POSITION_AT,
    REASONS,
    REQUEST,
    SEPARATOR_AT,
    TOTAL_AT,
    part,
)

BLOCK_PARTS = 1_024
"""The digits of so many positions are made at a time: more would be wasted on a peer whose every message has another
grid."""
BLOCKS_MAX = 64

_TOO_SHORT, _BAD_TYPE, _TOO_LONG, _BAD_START, _BAD_ID, _BAD_SEPARATOR, _BAD_DIGIT = range(1, len(REASONS))
_ALL_TRUE = np.uint64(0x0101010101010101)
_KIND = np.zeros(256, dtype=np.uint8)
_HEADER_BYTES_OF_KIND = np.array([0, DATA_HEADER_BYTES, CONTROL_BYTES, CONTROL_BYTES], dtype=np.int64)
for _kind, _letter in LETTER_OF_KIND.items():
    _KIND[_letter] = _kind


def decode_columns(buffer: Bytes, offsets: Integers, lengths: Integers) -> Columns:
    """Decode the headers of many datagrams; agrees with `wire.decode` on every input."""
    rows = headers(buffer, offsets, None, DATA_HEADER_BYTES)  # no rule looks beyond a datagram's end
    kind = _KIND[rows[:, 0]]
    kind[lengths == 0] = 0
    is_data = kind == DATA
    ids = _ids(rows, is_data)
    reason = _reasons(rows, ids, kind, lengths)
    fields: dict[str, NDArray[np.generic]] = {
        "start": np.where(is_data, rows[:, 1], 0).astype(np.int64),
        "id": ids.view(f"S{ID_DIGITS}")[:, 0],
        "position": _uint(rows, POSITION_AT),
        "total": np.where(is_data, _uint(rows, TOTAL_AT), 0),
    }
    header_bytes = _HEADER_BYTES_OF_KIND[kind]
    return Columns(
        kinds=KINDS,
        reasons=REASONS,
        kind=kind,
        reason=reason,
        fields=fields,
        body_bytes=lengths - header_bytes,
    )


def _ids(rows: Bytes, is_data: NDArray[np.bool_]) -> Bytes:
    """Return the id's bytes of each row; they stand one byte later in data."""
    if is_data.all():
        return np.ascontiguousarray(rows[:, DATA_ID])
    ids = np.ascontiguousarray(rows[:, CONTROL_ID])
    ids[is_data] = rows[is_data, DATA_ID]
    return ids


def _reasons(rows: Bytes, ids: Bytes, kind: Bytes, lengths: Integers) -> Bytes:
    """Return each row's reason; the rule that `wire.decode` checks first is written last."""
    is_data = kind == DATA
    is_control = kind >= REQUEST
    reason = np.zeros(len(rows), dtype=np.uint8)
    reason[_has_bad_digit(rows, is_data)] = _BAD_DIGIT
    reason[is_control & (rows[:, SEPARATOR_AT] != 0)] = _BAD_SEPARATOR
    reason[~_are_hexadecimal(ids)] = _BAD_ID
    reason[is_data & (rows[:, 1] > 1)] = _BAD_START
    reason[is_control & (lengths > CONTROL_BYTES)] = _TOO_LONG
    reason[lengths < _HEADER_BYTES_OF_KIND[kind]] = _TOO_SHORT
    reason[kind == 0] = _BAD_TYPE
    reason[lengths == 0] = _TOO_SHORT
    return reason


def _are_hexadecimal(ids: Bytes) -> NDArray[np.bool_]:
    """Return for each row of 32 bytes whether all are lower-case hexadecimal digits, eight answers at a time."""
    good = ((ids - np.uint8(ord("0"))) < 10) | ((ids - np.uint8(ord("a"))) < 6)
    eights = good.view(np.uint64)
    together: NDArray[np.bool_] = (eights[:, 0] & eights[:, 1] & eights[:, 2] & eights[:, 3]) == _ALL_TRUE
    return together


def _has_bad_digit(rows: Bytes, is_data: NDArray[np.bool_]) -> NDArray[np.bool_]:
    bad = rows[:, POSITION_AT:DATA_HEADER_BYTES] == BASE
    first = bad[:, 0] | bad[:, 1] | bad[:, 2] | bad[:, 3]
    second = bad[:, 4] | bad[:, 5] | bad[:, 6] | bad[:, 7]
    digits: NDArray[np.bool_] = first | (second & is_data)
    return digits


def _uint(rows: Bytes, start: int) -> Integers:
    value = rows[:, start + 3].astype(np.int64)
    for column in (start + 2, start + 1, start):
        value = value * BASE + rows[:, column]
    return value


class Bursts:
    """Makes and takes the parts of bursts. An object, so that whoever has one has numpy and nobody else loads it."""

    def encode(self, identity: bytes, total: int, part_bytes: int, first: int, body: Buffer) -> memoryview:
        """Return neighbouring parts of a message as one buffer of datagrams; `body` is their bodies, the last of which
        may be shorter."""
        whole, rest = divmod(len(body), part_bytes)
        count = whole + (rest > 0)
        stride = DATA_HEADER_BYTES + part_bytes
        burst = np.empty(count * DATA_HEADER_BYTES + len(body), dtype=np.uint8)
        headers = encode_headers(identity, total, part_bytes, first, count)
        _rows(burst, 0, DATA_HEADER_BYTES, stride, count)[:] = _rows(
            headers, 0, DATA_HEADER_BYTES, DATA_HEADER_BYTES, count
        )
        _rows(burst, DATA_HEADER_BYTES, part_bytes, stride, whole)[:] = _rows(body, 0, part_bytes, part_bytes, whole)
        if rest:
            burst[-rest:] = np.frombuffer(body, np.uint8, rest, whole * part_bytes)
        return burst.data

    def leading_matches(
        self, data: Buffer, part_bytes: int, row: int, count: int, identity: bytes, total: int, first: int
    ) -> int:
        """Count how many datagrams of a super-buffer, from `row` on, are the parts of a message from `first` on."""
        stride = DATA_HEADER_BYTES + part_bytes
        expected = encode_headers(identity, total, part_bytes, first, count)
        found = _rows(data, row * stride, DATA_HEADER_BYTES, stride, count).tobytes()
        if found == expected:
            return count
        differs = np.frombuffer(found, dtype=np.uint8) != np.frombuffer(expected, dtype=np.uint8)
        return int(differs.argmax()) // DATA_HEADER_BYTES

    def bodies(self, data: Buffer, part_bytes: int, row: int, count: int) -> bytes:
        """Return the bodies of datagrams of a super-buffer, from `row` on, as one piece: a single strided copy."""
        stride = DATA_HEADER_BYTES + part_bytes
        return _rows(data, row * stride + DATA_HEADER_BYTES, part_bytes, stride, count).tobytes()

    def put_bodies(self, room: memoryview, offset: int, data: Buffer, part_bytes: int, row: int, count: int) -> None:
        """Copy the bodies of datagrams of a super-buffer, from `row` on, to where they belong."""
        stride = DATA_HEADER_BYTES + part_bytes
        found = _rows(data, row * stride + DATA_HEADER_BYTES, part_bytes, stride, count)
        _rows(room, offset, part_bytes, part_bytes, count)[:] = found


def encode_headers(identity: bytes, total: int, part_bytes: int, first: int, count: int) -> bytearray:
    """Return the headers of `count` consecutive parts from part `first` on."""
    headers = bytearray(part(identity, 1, total, b"")) * count
    block, start = divmod(first, BLOCK_PARTS)
    done = 0
    while done < count:
        digits = _position_digits(part_bytes, block)[start : start + count - done]
        _positions(headers, done, len(digits))[:] = digits
        done, block, start = done + len(digits), block + 1, 0
    if first == 0:
        headers[1] = 1
    return headers


def _positions(headers: bytearray, row: int, count: int) -> NDArray[np.uint32]:
    """See the positions of headers that stand one after another, four digits as one number."""
    return np.ndarray((count,), np.uint32, headers, row * DATA_HEADER_BYTES + POSITION_AT, (DATA_HEADER_BYTES,))


@lru_cache(maxsize=BLOCKS_MAX)
def _position_digits(part_bytes: int, block: int) -> NDArray[np.uint32]:
    """Return the digits of the positions of a block of parts; all messages of one grid share them."""
    digits = np.empty((BLOCK_PARTS, 4), dtype=np.uint8)
    rest = np.arange(block * BLOCK_PARTS, (block + 1) * BLOCK_PARTS, dtype=np.int64) * part_bytes
    for column in range(4):
        rest, digits[:, column] = np.divmod(rest, BASE)
    return digits.view(np.uint32)[:, 0]


def _rows(buffer: Buffer | Bytes, start: int, width: int, stride: int, count: int) -> NDArray[np.void]:
    """See `count` pieces of `width` bytes that stand `stride` bytes apart.

    A piece is one opaque item to numpy, so that it copies pieces and not bytes. Arguments by name would cost numpy
    three times as much as the rest of the call.
    """
    return np.ndarray((count,), _opaque(width), buffer, start, (stride,))


@lru_cache(maxsize=64)
def _opaque(width: int) -> np.dtype[np.void]:
    return np.dtype((np.void, width))
