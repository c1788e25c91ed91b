"""Which payloads may be several datagrams that Linux has merged: nearly all are not, and are told at the cost of one
search for a sign that every second datagram has. `fairway.capture.merged` judges those that are left."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairway.capture.columns.compiled import compiled
from fairway.capture.columns.crcs import TABLES, crc
from fairway.core.columns import Bytes, Integers
from fairway.protocols.mrp.wire import CONNECT_BYTES
from fairway.protocols.pydevts.wire import HEADER_BYTES as PYDEVTS_BYTES
from fairway.protocols.rup.wire import CONTROL_BYTES
from fairway.protocols.udpc.wire import HEADER_BYTES as UDPC_BYTES

M, R, P = b"MRP"
RUP_DATA, RUP_REQUEST, RUP_CONFIRM = b"drc"
AFTER_ID = 33
"""Where the zero byte of a request or confirm stands."""


def may_be_merged(buffer: Bytes, starts: Integers, ends: Integers) -> NDArray[np.bool_]:
    """Tells in which payloads, of at least `SHORTEST` bytes, the beginning of a second datagram may stand."""
    found = np.zeros(len(starts), dtype=np.bool_)
    _fill(buffer, starts, ends, TABLES, found)
    return found


@compiled
def _fill(
    buffer: Bytes, starts: Integers, ends: Integers, tables: NDArray[np.uint32], found: NDArray[np.bool_]
) -> None:
    for row in range(len(starts)):
        found[row] = _suspect(buffer[starts[row] : ends[row]], tables)


@compiled
def _suspect(payload: Bytes, tables: NDArray[np.uint32]) -> bool:
    length, first, second = len(payload), payload[0], payload[1]
    if first == M and second == R and payload[2] == P:
        return _again(payload, 0, 3, CONNECT_BYTES)
    if first == RUP_DATA and second <= 1:
        # Another part of the message, with its id, or the first of another one.
        return length > CONTROL_BYTES and (_again(payload, 2, 34, CONTROL_BYTES) or _new_part(payload[CONTROL_BYTES:]))
    if first in (RUP_REQUEST, RUP_CONFIRM) and length % CONTROL_BYTES == 0 and payload[AFTER_ID] == 0:
        return length > CONTROL_BYTES
    if first in (1, 3) and second <= 1 and length % PYDEVTS_BYTES == 0:
        return True
    found = length >= 2 * UDPC_BYTES and _again(payload, 4, 8, UDPC_BYTES + 4)
    if first == 0 and second <= 1:
        found = found or _again(payload, 0, 3, PYDEVTS_BYTES)
        return found and not _is_packet(payload, tables)
    return found


@compiled
def _again(payload: Bytes, sign: int, sign_end: int, place: int) -> bool:
    """Tells whether the bytes of a sign, three or more, stand again from `place` on."""
    length = sign_end - sign
    if place + length > len(payload) or not _three(
        payload[place:], payload[sign], payload[sign + 1], payload[sign + 2]
    ):
        return False
    for at in range(place, len(payload) - length + 1):
        same = 0
        while same < length and payload[at + same] == payload[sign + same]:
            same += 1
        if same == length:
            return True
    return False


@compiled
def _three(data: Bytes, one: int, two: int, three: int) -> bool:
    """Tells whether three bytes stand somewhere, one after the other; all are looked at, sixteen and more at once."""
    found = False
    for at in range(len(data) - 2):
        found |= (data[at] == one) & (data[at + 1] == two) & (data[at + 2] == three)
    return found


@compiled
def _new_part(data: Bytes) -> bool:
    found = False
    for at in range(len(data) - 1):
        found |= (data[at] == RUP_DATA) & (data[at + 1] == 1)
    return found


@compiled
def _is_packet(payload: Bytes, tables: NDArray[np.uint32]) -> bool:
    """Tells whether it is one packet of pydevts, as its CRC proves."""
    said = 0
    for place in range(4, PYDEVTS_BYTES):
        said = said << 8 | payload[place]
    return len(payload) > PYDEVTS_BYTES and crc(payload, PYDEVTS_BYTES, len(payload), tables) == said
