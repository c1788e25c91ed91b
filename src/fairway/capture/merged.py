"""Datagrams that a capture holds as one: Linux hands a batch of equal datagrams through its stack as a single one.

A sender with UDP GSO and a receiver with GRO are captured before the batch is cut and after it was put together: one
IP packet and one UDP header in front of up to 64 kB, in which all datagrams but the last have one size. The size
stands nowhere. It is taken from the protocols' framing, and only where that is certain: what stands at every multiple
of it is a well-formed header of the same conversation, or a body whose CRC is right, and they are not all the same: a
payload that only repeats itself is a pattern. A payload that a protocol would carry inside another at exactly these
offsets would be split wrongly; none does that by accident.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from zlib import crc32

from fairway.protocols.mrp import wire as mrp
from fairway.protocols.pydevts import wire as pydevts
from fairway.protocols.rup import wire as rup
from fairway.protocols.udpc import wire as udpc

TRIES_MAX = 16
"""How many offsets that look like a second header are tried."""

SHORTEST = 2 * pydevts.HEADER_BYTES
"""No two datagrams are shorter together."""

_RUP = re.compile(rb"d[\0\1][0-9a-f]{32}|[rc][0-9a-f]{32}\0")
_MRP_SIZES = {1: (mrp.CONNECT_BYTES,) * 2, 2: (mrp.CON_REPLY_BYTES,) * 2, 4: (mrp.ACK_BYTES,) * 2}
_MRP_DATA = (mrp.PIGGYBACK_BYTES, 1 << 16)
_INDEX_REACH = 1 << 16
_CONTROLS = frozenset(udpc.CONTROL_FLAGS)
_INDEX, _SESSION, _FLAG_AT = udpc.HEADER.span("index"), udpc.HEADER.span("session_id"), udpc.HEADER["flag"].offset
_CRC, _SUCCESS_AT = pydevts.HEADER.span("crc"), pydevts.HEADER["success"].offset
_TYPE_AT = mrp.HEAD["type"].offset
_CONIDS = slice(mrp.HEAD_BYTES, mrp.CONNECT_BYTES)
"""The id of a connection's other end lies here in both layouts."""


def segment_bytes(payload: bytes) -> int:
    """Return the size of the datagrams that were merged into a payload; 0 if it is a single one, or unclear."""
    return segments(payload)[1]


def segments(payload: bytes) -> tuple[str, int]:
    """Return whose datagrams may have been merged into a payload, and their size; 0 if it is one, or unclear."""
    if payload.startswith(mrp.MAGIC):
        return "mrp", _first_that_fits(payload, _offsets(payload, payload[:3], mrp.CONNECT_BYTES, 0), _mrp_fits)
    if _RUP.match(payload):
        return "rup", _first_that_fits(payload, _rup_offsets(payload), _rup_fits)
    if payload[0] in (1, 3):
        answers = pydevts.HEADER_BYTES if _pydevts_answers(payload) else 0
        return ("pydevts", answers) if answers else ("udpc", _udpc(payload))
    packets = _pydevts(payload)
    return ("pydevts", packets) if packets else ("udpc", _udpc(payload))


def _first_that_fits(payload: bytes, offsets: Iterator[int], fits: Callable[[bytes, bytes], bool]) -> int:
    for _, size in zip(range(TRIES_MAX), offsets, strict=False):
        if _repeats(payload, size):
            continue
        if all(fits(payload, payload[start : start + size]) for start in range(0, len(payload), size)):
            return size
    return 0


def _repeats(payload: bytes, size: int) -> bool:
    return payload[size:] == payload[:-size]


def _offsets(payload: bytes, sign: bytes, least: int, before: int) -> Iterator[int]:
    """Return where a second datagram may begin: `before` bytes before each repetition of a sign."""
    offset = payload.find(sign, least + before)
    while offset >= 0:
        yield offset - before
        offset = payload.find(sign, offset + 1)


def _mrp_fits(payload: bytes, segment: bytes) -> bool:
    """Return whether a segment is one of the same connection."""
    if len(segment) < mrp.CONNECT_BYTES or segment[:3] != mrp.MAGIC or segment[_CONIDS] != payload[_CONIDS]:
        return False
    least, most = _MRP_SIZES.get(segment[_TYPE_AT], _MRP_DATA)
    return segment[_TYPE_AT] <= mrp.TYPE_ACK and least <= len(segment) <= most


def _rup_offsets(payload: bytes) -> Iterator[int]:
    return (found.start() for found in _RUP.finditer(payload, rup.CONTROL_BYTES))


def _rup_fits(payload: bytes, segment: bytes) -> bool:
    if not _RUP.match(segment):
        return False
    return len(segment) >= rup.DATA_HEADER_BYTES if segment[0] == ord("d") else len(segment) == rup.CONTROL_BYTES


def _pydevts_answers(payload: bytes) -> bool:
    heads = payload[:: pydevts.HEADER_BYTES], payload[_SUCCESS_AT :: pydevts.HEADER_BYTES]
    whole = len(payload) % pydevts.HEADER_BYTES == 0
    return whole and not _repeats(payload, pydevts.HEADER_BYTES) and set(heads[0]) <= {1, 3} and set(heads[1]) <= {0, 1}


def _pydevts(payload: bytes) -> int:
    """Find packets by their CRC; that of an empty body, 0, proves nothing."""
    if payload[0] != 0 or payload[_SUCCESS_AT] > 1 or not any(payload[_CRC]) or _crc_is_right(payload, payload):
        return 0
    offsets = _offsets(payload, payload[:3], pydevts.HEADER_BYTES, 0)
    return _first_that_fits(payload, offsets, _crc_is_right)


def _crc_is_right(payload: bytes, segment: bytes) -> bool:
    return (
        len(segment) >= pydevts.HEADER_BYTES
        and segment[0] == 0
        and segment[_SUCCESS_AT] <= 1
        and crc32(segment[pydevts.HEADER_BYTES :]) == int.from_bytes(segment[_CRC], "big")
    )


def _udpc(payload: bytes) -> int:
    return _first_that_fits(
        payload, _offsets(payload, payload[_SESSION], udpc.HEADER_BYTES, _SESSION.start), _udpc_fits
    )


def _udpc_fits(payload: bytes, segment: bytes) -> bool:
    """Same session, an index near the first one, and a flag that is used."""
    if len(segment) < udpc.HEADER_BYTES or segment[_SESSION] != payload[_SESSION] or not any(payload[_SESSION]):
        return False
    flag, index = segment[_FLAG_AT], int.from_bytes(segment[_INDEX], "big")
    distance = (index - int.from_bytes(payload[_INDEX], "big") + _INDEX_REACH) % (1 << 32)
    near = index > 0 and distance <= 2 * _INDEX_REACH
    return near and flag in udpc.KIND_OF_FLAG and (flag not in _CONTROLS or len(segment) == udpc.HEADER_BYTES)
