"""Which payloads may be several datagrams that Linux has merged: nearly all are not, and are told at the cost of one
search for a sign that every second datagram has. `fairway.capture.merged` judges those that are left."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairway.capture.columns.compiled import compiled, inner
from fairway.capture.columns.crcs import crcs
from fairway.core.columns import Bytes, Integers
from fairway.protocols.mrp.wire import CONNECT_BYTES, MAGIC
from fairway.protocols.pydevts.wire import HEADER as PYDEVTS
from fairway.protocols.rup.wire import CONFIRM, CONTROL_BYTES, CONTROL_ID, DATA, DATA_ID, LETTER_OF_KIND, REQUEST
from fairway.protocols.rup.wire import SEPARATOR_AT as AFTER_ID
from fairway.protocols.udpc.wire import HEADER as UDPC

M, R, P = MAGIC
RUP_DATA, RUP_REQUEST, RUP_CONFIRM = (LETTER_OF_KIND[kind] for kind in (DATA, REQUEST, CONFIRM))
PYDEVTS_BYTES, UDPC_BYTES = PYDEVTS.size, UDPC.size
CRC_AT, CRC_END = PYDEVTS["crc"].offset, PYDEVTS["crc"].end
SESSION_AT, SESSION_END = UDPC["session_id"].offset, UDPC["session_id"].end
DATA_ID_AT, DATA_ID_END = DATA_ID.start, DATA_ID.stop
CONTROL_ID_AT, CONTROL_ID_END = CONTROL_ID.start, CONTROL_ID.stop
SINGLE, SUSPECTED, SUSPECTED_PACKET = range(3)
"""A packet of pydevts is not suspected any more if its CRC proves that it is one."""


def may_be_merged(buffer: Bytes, starts: Integers, ends: Integers) -> NDArray[np.bool_]:
    """Return in which payloads, of at least `SHORTEST` bytes, the beginning of a second datagram may stand."""
    verdicts = np.zeros(len(starts), dtype=np.uint8)
    _fill(buffer, starts, ends, verdicts)
    packets = np.flatnonzero(verdicts == SUSPECTED_PACKET)
    if len(packets):
        said = buffer[starts[packets, None] + np.arange(CRC_AT, CRC_END)].view(">u4")[:, 0]
        proved = said == crcs(buffer, starts[packets] + PYDEVTS_BYTES, ends[packets])
        verdicts[packets[proved]] = SINGLE
    suspected: NDArray[np.bool_] = verdicts != SINGLE
    return suspected


@compiled
def _fill(buffer: Bytes, starts: Integers, ends: Integers, verdicts: Bytes) -> None:
    for row in range(len(starts)):
        verdicts[row] = _verdict(buffer[starts[row] : ends[row]])


@inner
def _verdict(payload: Bytes) -> int:
    length, first, second = len(payload), payload[0], payload[1]
    if first == M and second == R and payload[2] == P:
        return SUSPECTED if _again(payload, 0, 3, CONNECT_BYTES) else SINGLE
    if first == RUP_DATA and second <= 1 and length >= DATA_ID_END and _is_id(payload[DATA_ID_AT:DATA_ID_END]):
        return SUSPECTED if length > CONTROL_BYTES and _rup_head(payload[CONTROL_BYTES:]) else SINGLE
    is_control = first in (RUP_REQUEST, RUP_CONFIRM) and length > AFTER_ID and payload[AFTER_ID] == 0
    if is_control and _is_id(payload[CONTROL_ID_AT:CONTROL_ID_END]):
        return SUSPECTED if length > CONTROL_BYTES and length % CONTROL_BYTES == 0 else SINGLE
    if first in (1, 3) and second <= 1 and length % PYDEVTS_BYTES == 0:
        return SUSPECTED
    if length >= 2 * UDPC_BYTES and _again(payload, SESSION_AT, SESSION_END, UDPC_BYTES + SESSION_AT):
        return SUSPECTED
    if first == 0 and second <= 1 and _again(payload, 0, 3, PYDEVTS_BYTES):
        return SUSPECTED_PACKET
    return SINGLE


@inner
def _again(payload: Bytes, sign: int, sign_end: int, offset: int) -> bool:
    """Return whether the bytes of a sign, three or more, stand again from `offset` on."""
    length = sign_end - sign
    if offset + length > len(payload) or not _three(
        payload[offset:], payload[sign], payload[sign + 1], payload[sign + 2]
    ):
        return False
    for at in range(offset, len(payload) - length + 1):
        same = 0
        while same < length and payload[at + same] == payload[sign + same]:
            same += 1
        if same == length:
            return True
    return False


@inner
def _three(data: Bytes, one: int, two: int, three: int) -> bool:
    """Return whether three bytes stand somewhere, one after the other; all are checked, sixteen and more at once."""
    found = False
    for at in range(len(data) - 2):
        found |= (data[at] == one) & (data[at + 1] == two) & (data[at + 2] == three)
    return found


@inner
def _rup_head(data: Bytes) -> bool:
    """Return whether a part, or a request or confirm, may begin somewhere."""
    found = False
    for at in range(len(data) - 1):
        found |= (data[at] == RUP_DATA) & (data[at + 1] <= 1)
    for at in range(len(data) - AFTER_ID):
        found |= ((data[at] == RUP_REQUEST) | (data[at] == RUP_CONFIRM)) & (data[at + AFTER_ID] == 0)
    return found


@inner
def _is_id(data: Bytes) -> bool:
    """Return whether all bytes are hexadecimal digits, as rup's ids are."""
    others = False
    for byte in data:
        others |= not ((48 <= byte <= 57) | (97 <= byte <= 102))
    return not others
