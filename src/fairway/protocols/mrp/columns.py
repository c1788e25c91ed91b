"""mrp by columns: the headers of many datagrams of any kind, and the batches of one connection.

Fields of `decode_columns`: `ver`, `stat`, `fill`, `cl_conid`, `sv_conid`; `dest_conid`, `from_conid`, `sequence`,
`stamp` (stamped data and acks); `piggyback_from_conid`, `piggyback_dest_conid`, `piggyback_sequence`, `from_seq` (the
other reading of data); `stamped` and `piggyback` say whether that reading of a data row exists, and the fields of one
that does not are 0. The body is the stamped one where that reading exists; the piggyback body has
`piggyback_body_bytes` and starts two bytes earlier.

A batch is a received super-buffer, or what is sent in answer or anew. It is plain when all its datagrams start with
the same bytes and their numbers follow one another. Both are checked by comparing bytes, gathered by numpy into one
piece, with what they must be: several times faster than comparing and reducing arrays of this size.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fairway.core.columns import Bytes, Columns, Integers, headers, windows
from fairway.protocols.mrp import wire

_WINDOW_BYTES = 16
_CHUNK_ROWS = 4_096
"""Rows decoded at a time: two dozen columns of this length stay in the second-level cache."""
_REASON = {name: number for number, name in enumerate(wire.REASONS)}
_FIELDS = (
    *("ver", "stat", "fill", "cl_conid", "sv_conid", "dest_conid", "from_conid", "sequence", "stamp"),
    *("piggyback_from_conid", "piggyback_dest_conid", "piggyback_sequence", "from_seq"),
    *("stamped", "piggyback", "piggyback_body_bytes"),
)
_MAGIC_WORD = int.from_bytes(wire.MAGIC + b"\0", "big")

_FIXED_SIZES = (
    (wire.TYPE_CONNECT, wire.CONNECT_BYTES),
    (wire.TYPE_CON_REPLY, wire.CON_REPLY_BYTES),
    (wire.TYPE_ACK, wire.ACK_BYTES),
)

Words = NDArray[np.uint32]
Mask = NDArray[np.bool_]


def decode_columns(buffer: Bytes, offsets: Integers, lengths: Integers) -> Columns:
    """Decode the headers of many datagrams; agrees with `wire.decode` on every input."""
    count = len(offsets)
    columns = Columns(
        kinds=wire.KINDS,
        reasons=wire.REASONS,
        kind=np.zeros(count, dtype=np.uint8),
        reason=np.zeros(count, dtype=np.uint8),
        fields={name: np.zeros(count, dtype=np.int64) for name in _FIELDS},
        body_offset=np.zeros(count, dtype=np.int64),
        body_bytes=np.zeros(count, dtype=np.int64),
    )
    for start in range(0, count, _CHUNK_ROWS):
        rows = slice(start, min(start + _CHUNK_ROWS, count))
        _decode_chunk(_words(buffer, offsets[rows], lengths[rows]), offsets[rows], lengths[rows], columns, rows)
    return columns


def _words(buffer: Bytes, offsets: Integers, lengths: Integers) -> Words:
    """Gather the first sixteen bytes of each datagram as four integers; what a datagram does not have is 0."""
    places = len(buffer) - _WINDOW_BYTES + 1
    if places <= 0 or int(offsets.max()) >= places:
        gathered = headers(buffer, offsets, lengths, _WINDOW_BYTES)
    else:
        gathered = windows(buffer, _WINDOW_BYTES)[offsets].view(np.uint8).reshape(-1, _WINDOW_BYTES)
        if int(lengths.min()) < wire.STAMPED_BYTES:
            short = np.flatnonzero(lengths < _WINDOW_BYTES)
            gathered[short] *= np.arange(_WINDOW_BYTES) < lengths[short, None]
    return np.ascontiguousarray(gathered.view(">u4").astype(np.uint32).T)


def _decode_chunk(words: Words, offsets: Integers, lengths: Integers, columns: Columns, rows: slice) -> None:
    kind = words[0] ^ np.uint32(_MAGIC_WORD)
    is_data = (kind == wire.TYPE_DATA) & (lengths >= wire.PIGGYBACK_BYTES)
    only_data = bool(is_data.all())
    is_ack = np.zeros_like(is_data) if only_data else (kind == wire.TYPE_ACK) & (lengths == wire.ACK_BYTES)
    reason = columns.reason[rows]
    stamped = _stamped_reading(words, (is_data & (lengths >= wire.STAMPED_BYTES)) | is_ack, columns, rows)
    piggyback = _piggyback_reading(words, is_data, lengths, columns, rows)
    reason[(is_data | is_ack) & ~(stamped | piggyback)] = _REASON["zero_conid"]
    header = wire.PIGGYBACK_BYTES + 2 * stamped.astype(np.int64)
    if not only_data:
        _judge_heads(kind, lengths, reason)
        _decode_connects(words, np.flatnonzero((kind == wire.TYPE_CONNECT) & (reason == 0)), columns, rows)
        _decode_con_replies(words, np.flatnonzero((kind == wire.TYPE_CON_REPLY) & (reason == 0)), columns, rows)
        header = np.where(is_data, header, np.where(kind == wire.TYPE_IGNORE, wire.HEAD_BYTES, lengths))
        stamped &= is_data
    good = reason == 0
    np.multiply(kind + 1, good, out=columns.kind[rows], casting="unsafe")
    np.multiply(lengths - header, good, out=columns.body_bytes[rows])
    np.add(offsets, header * good, out=columns.body_offset[rows])
    columns.fields["stamped"][rows] = stamped
    columns.fields["piggyback"][rows] = piggyback


def _stamped_reading(words: Words, wanted: Mask, columns: Columns, rows: slice) -> Mask:
    """Fill the fields of stamped data and acks and return in which rows that reading exists."""
    dest_conid = words[1] >> 8
    from_conid = ((words[1] & 0xFF) << 16) | (words[2] >> 16)
    exists: Mask = wanted & (dest_conid != 0) & (from_conid != 0)
    _put(columns, rows, "dest_conid", dest_conid, exists)
    _put(columns, rows, "from_conid", from_conid, exists)
    _put(columns, rows, "sequence", words[2] & 0xFFFF, exists)
    _put(columns, rows, "stamp", words[3] >> 16, exists)
    return exists


def _piggyback_reading(words: Words, wanted: Mask, lengths: Integers, columns: Columns, rows: slice) -> Mask:
    """Fill the fields of piggyback data and return in which rows that reading exists."""
    from_conid = words[1] >> 16
    dest_conid = words[1] & 0xFFFF
    exists: Mask = wanted & (dest_conid != 0) & (from_conid != 0)
    _put(columns, rows, "piggyback_from_conid", from_conid, exists)
    _put(columns, rows, "piggyback_dest_conid", dest_conid, exists)
    _put(columns, rows, "piggyback_sequence", words[2] >> 16, exists)
    _put(columns, rows, "from_seq", words[2] & 0xFFFF, exists)
    np.multiply(lengths - wire.PIGGYBACK_BYTES, exists, out=columns.fields["piggyback_body_bytes"][rows])
    return exists


def _put(columns: Columns, rows: slice, name: str, value: Words, where: Mask) -> None:
    np.multiply(value, where, out=columns.fields[name][rows])


def _judge_heads(kind: Words, lengths: Integers, reason: Bytes) -> None:
    """Return the reason of every row whose first four bytes or whose size is wrong."""
    for number, size in _FIXED_SIZES:
        reason[(kind == number) & (lengths != size)] = _REASON["wrong_size"]
    reason[(kind == wire.TYPE_DATA) & (lengths < wire.PIGGYBACK_BYTES)] = _REASON["too_short"]
    reason[kind > wire.TYPE_ACK] = _REASON["unknown_type"]
    reason[kind > 0xFF] = _REASON["bad_magic"]
    reason[lengths < wire.HEAD_BYTES] = _REASON["too_short"]


def _decode_connects(words: Words, places: Integers, columns: Columns, rows: slice) -> None:
    word = words[1, places]
    cl_conid = word & wire.CONID_MAX
    good = cl_conid != 0
    columns.reason[rows][places[~good]] = _REASON["zero_conid"]
    columns.fields["ver"][rows][places] = (word >> 24) * good
    columns.fields["cl_conid"][rows][places] = cl_conid


def _decode_con_replies(words: Words, places: Integers, columns: Columns, rows: slice) -> None:
    word = words[1, places]
    stat = word >> 24
    cl_conid = ((word & 0xFFFF) << 8) | (words[2, places] >> 24)
    sv_conid = words[2, places] & wire.CONID_MAX
    known = (stat == wire.ACCEPT) | (stat == wire.REJECT)
    named = (cl_conid != 0) & ((sv_conid != 0) | (stat == wire.REJECT))
    good = known & named
    columns.reason[rows][places[~named]] = _REASON["zero_conid"]
    columns.reason[rows][places[~known]] = _REASON["bad_stat"]
    values = (("stat", stat), ("fill", (word >> 16) & 0xFF), ("cl_conid", cl_conid), ("sv_conid", sv_conid))
    for name, value in values:
        columns.fields[name][rows][places] = value * good


Rows = NDArray[np.void]

_TURN = 65_536
_NUMBERS = np.arange(2 * _TURN, dtype=np.uint32).astype(np.uint16).astype(">u2").tobytes()
"""Two turns of sequences as they stand on the wire: every run of up to one turn is a slice of it."""


@lru_cache(maxsize=256)
def _row(prefix_bytes: int, segment_bytes: int) -> np.dtype[np.void]:
    """Return the shape of one datagram: prefix, two numbers, body."""
    header_bytes = prefix_bytes + 4
    fields = {"prefix": (f"V{prefix_bytes}", 0), "first": ("V2", prefix_bytes), "second": ("V2", prefix_bytes + 2)}
    fields["numbers"] = ("V4", prefix_bytes)
    if segment_bytes > header_bytes:
        fields["body"] = (f"V{segment_bytes - header_bytes}", header_bytes)
    formats, offsets = zip(*fields.values(), strict=True)
    return np.dtype(
        {"names": list(fields), "formats": list(formats), "offsets": list(offsets), "itemsize": segment_bytes}
    )


def numbers(first: int, count: int) -> bytes:
    """Return `count` consecutive numbers as they stand on the wire, at most one turn of them."""
    start = first % _TURN
    return _NUMBERS[2 * start : 2 * (start + count)]


def rows_of(data: bytes, count: int, segment_bytes: int, prefix: bytes) -> Rows | None:
    """Return the datagrams of a batch if all of them have the prefix."""
    rows: Rows = np.frombuffer(data, _row(len(prefix), segment_bytes), count)
    return rows if rows["prefix"].tobytes() == prefix * count else None


def firsts(rows: Rows) -> bytes:
    return rows["first"].tobytes()


def seconds(rows: Rows) -> bytes:
    return rows["second"].tobytes()


def run_start(two_bytes_each: bytes) -> int | None:
    """Return the first of some numbers if they follow one another."""
    first = int.from_bytes(two_bytes_each[:2], "big")
    return first if two_bytes_each == numbers(first, len(two_bytes_each) // 2) else None


def bodies_of(rows: Rows) -> list[bytes]:
    if "body" not in (rows.dtype.names or ()):
        return [b""] * len(rows)
    bodies: list[bytes] = rows["body"].tolist()
    return bodies


def stamped_acks(rows: Rows, prefix: bytes) -> bytes:
    acks: Rows = np.empty(len(rows), _row(len(prefix), wire.ACK_BYTES))
    acks["prefix"] = np.void(prefix)
    acks["numbers"] = rows["numbers"]
    return acks.tobytes()


def bare_acks(prefix: bytes, sequence: int, first_from_seq: int, count: int) -> bytes:
    acks: Rows = np.empty(count, _row(len(prefix), wire.PIGGYBACK_BYTES))
    acks["prefix"] = np.void(prefix)
    acks["first"] = np.void(sequence.to_bytes(2, "big"))
    acks["second"] = np.frombuffer(numbers(first_from_seq, count), "V2")
    return acks.tobytes()


def datagrams_of(prefix: bytes, first: int, second: int, bodies: Sequence[bytes]) -> bytes:
    """Return data of equal size, with sequences from `first` on and one stamp or from_seq."""
    size, count = len(bodies[0]), len(bodies)
    rows: Rows = np.empty(count, _row(len(prefix), len(prefix) + 4 + size))
    rows["prefix"] = np.void(prefix)
    rows["first"] = np.frombuffer(numbers(first, count), "V2")
    rows["second"] = np.void(second.to_bytes(2, "big"))
    if size:
        rows["body"] = np.frombuffer(b"".join(bodies), f"V{size}")
    return rows.tobytes()
