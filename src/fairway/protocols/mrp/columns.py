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

from fairway.core.columns import Bytes, Columns, Integers, headers
from fairway.protocols.mrp import wire

_REASON = {name: number for number, name in enumerate(wire.REASONS)}
_MAGIC_WORD = int.from_bytes(wire.MAGIC + b"\0", "big")
_FIXED_SIZES = (
    (wire.TYPE_CONNECT, wire.CONNECT_BYTES),
    (wire.TYPE_CON_REPLY, wire.CON_REPLY_BYTES),
    (wire.TYPE_ACK, wire.ACK_BYTES),
)


def decode_columns(buffer: Bytes, offsets: Integers, lengths: Integers) -> Columns:
    """Decode the headers of many datagrams; agrees with `wire.decode` on every input."""
    words: Integers = np.ascontiguousarray(headers(buffer, offsets, lengths, 16).view(">u4").T).astype(np.int64)
    kind, first, second = words[0] ^ _MAGIC_WORD, words[1], words[2]
    connect, reply = kind == wire.TYPE_CONNECT, kind == wire.TYPE_CON_REPLY
    data = (kind == wire.TYPE_DATA) & (lengths >= wire.PIGGYBACK_BYTES)
    ack = (kind == wire.TYPE_ACK) & (lengths == wire.ACK_BYTES)
    dest_conid, from_conid = first >> 8, (first & 0xFF) << 16 | second >> 16
    stamped = ((data & (lengths >= wire.STAMPED_BYTES)) | ack) & (dest_conid != 0) & (from_conid != 0)
    piggyback_from, piggyback_dest = first >> 16, first & 0xFFFF
    piggyback = data & (piggyback_from != 0) & (piggyback_dest != 0)
    stat, called = first >> 24, (first & 0xFFFF) << 8 | second >> 24
    cl_conid, sv_conid = np.where(reply, called, first & wire.CONID_MAX), second & wire.CONID_MAX
    # The rule that `wire.decode` checks first is written last.
    reason = np.zeros(len(lengths), dtype=np.uint8)
    reason[(data | ack) & ~(stamped | piggyback)] = _REASON["zero_conid"]
    reason[(connect | reply) & (cl_conid == 0)] = _REASON["zero_conid"]
    reason[reply & (sv_conid == 0) & (stat != wire.REJECT)] = _REASON["zero_conid"]
    reason[reply & (stat != wire.ACCEPT) & (stat != wire.REJECT)] = _REASON["bad_stat"]
    for number, size in _FIXED_SIZES:
        reason[(kind == number) & (lengths != size)] = _REASON["wrong_size"]
    reason[(kind == wire.TYPE_DATA) & ~data] = _REASON["too_short"]
    reason[kind > wire.TYPE_ACK] = _REASON["unknown_type"]
    reason[kind > 0xFF] = _REASON["bad_magic"]
    reason[lengths < wire.HEAD_BYTES] = _REASON["too_short"]
    data_bytes = np.where(stamped, wire.STAMPED_BYTES, wire.PIGGYBACK_BYTES)
    header_bytes = np.where(data, data_bytes, np.where(kind == wire.TYPE_IGNORE, wire.HEAD_BYTES, lengths))
    return Columns(
        kinds=wire.KINDS,
        reasons=wire.REASONS,
        kind=(kind + 1).astype(np.uint8),
        reason=reason,
        fields={
            "ver": stat * connect,
            "stat": stat * reply,
            "fill": (first >> 16 & 0xFF) * reply,
            "cl_conid": cl_conid * (connect | reply),
            "sv_conid": sv_conid * reply,
            "dest_conid": dest_conid * stamped,
            "from_conid": from_conid * stamped,
            "sequence": (second & 0xFFFF) * stamped,
            "stamp": (words[3] >> 16) * stamped,
            "piggyback_from_conid": piggyback_from * piggyback,
            "piggyback_dest_conid": piggyback_dest * piggyback,
            "piggyback_sequence": (second >> 16) * piggyback,
            "from_seq": (second & 0xFFFF) * piggyback,
            "stamped": (stamped & data).astype(np.int64),
            "piggyback": piggyback.astype(np.int64),
            "piggyback_body_bytes": (lengths - wire.PIGGYBACK_BYTES) * piggyback,
        },
        body_bytes=lengths - header_bytes,
    )


Rows = NDArray[np.void]

_NUMBERS = np.arange(2 * wire.TURN, dtype=np.uint32).astype(np.uint16).astype(">u2").tobytes()
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
    start = first % wire.TURN
    return _NUMBERS[2 * start : 2 * (start + count)]


def rows_of(data: bytes, offset: int, count: int, segment_bytes: int, prefix: bytes) -> Rows:
    """Return the datagrams of a batch from an offset on, up to the first that has not the prefix."""
    width = len(prefix)
    rows: Rows = np.frombuffer(data, _row(width, segment_bytes), count, offset)
    found = rows["prefix"].tobytes()
    if found != prefix * count:
        rows = rows[: next(at for at in range(count) if found[at * width : (at + 1) * width] != prefix)]
    return rows


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
