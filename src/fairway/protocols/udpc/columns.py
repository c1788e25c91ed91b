"""Many udpc datagrams at once: headers to columns, and the runs that the machine takes and sends as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fairway.core.columns import Bytes, Columns, Integers, headers
from fairway.core.machine import Buffer
from fairway.protocols.udpc.wire import (
    ACK,
    CONTROL_FLAGS,
    HEADER,
    HEADER_BYTES,
    IMP,
    KIND_OF_FLAG,
    KINDS,
    REASONS,
    Stretch,
)

_HEADER = np.dtype(HEADER.dtype())
_KIND = np.array([KINDS.index(KIND_OF_FLAG.get(flag, KINDS[0])) for flag in range(256)], dtype=np.uint8)
_CONTROL = np.array([flag in CONTROL_FLAGS for flag in range(256)])
_TOO_SHORT, _BAD_FLAG, _CONTROL_WITH_BODY, _ZERO_INDEX, _ZERO_SESSION = range(1, len(REASONS))


def decode_columns(buffer: Bytes, offsets: Integers, lengths: Integers) -> Columns:
    """Decode the headers of many datagrams; agrees with `wire.decode` on every input."""
    header = headers(buffer, offsets, lengths, HEADER_BYTES).view(_HEADER)[:, 0]
    flag = header["flag"]
    kind = _KIND[flag]
    reason = _reasons(header, kind, lengths)
    return Columns(
        kinds=KINDS,
        reasons=REASONS,
        kind=kind,
        reason=reason,
        fields={field.name: header[field.name].astype(np.int64) for field in HEADER.fields},
        body_bytes=lengths - HEADER_BYTES,
    )


def _reasons(header: NDArray[np.void], kind: Bytes, lengths: Integers) -> Bytes:
    """Return each row's reason; the rule that `wire.decode` checks first is written last."""
    reason = np.zeros(len(header), dtype=np.uint8)
    reason[header["session_id"] == 0] = _ZERO_SESSION
    reason[header["index"] == 0] = _ZERO_INDEX
    reason[_CONTROL[header["flag"]] & (lengths != HEADER_BYTES)] = _CONTROL_WITH_BODY
    reason[kind == 0] = _BAD_FLAG
    reason[lengths < HEADER_BYTES] = _TOO_SHORT
    return reason


def stretches(data: Buffer, segment_bytes: int) -> list[Stretch]:
    """Cut the full segments of a super-buffer into stretches. Segments must hold a header."""
    count = len(data) // segment_bytes
    header = np.ndarray((count,), dtype=_HEADER, buffer=data, strides=(segment_bytes,))
    index = header["index"].astype(np.int64)
    ack_index = header["ack_index"].astype(np.int64)
    flag, session_id = header["flag"], header["session_id"]
    breaks = index[1:] != index[:-1] + 1
    breaks |= session_id[1:] != session_id[:-1]
    breaks |= flag[1:] != flag[:-1]
    breaks |= (flag[1:] == IMP | ACK) & (ack_index[1:] != ack_index[:-1] + 1)
    starts = [0, *(np.flatnonzero(breaks) + 1).tolist()]
    return [
        Stretch(start, end, int(index[start]), int(session_id[start]), int(ack_index[start]), int(flag[start]))
        for start, end in zip(starts, [*starts[1:], count], strict=True)
    ]


def encode_run(index: int, session_id: int, flag: int, bodies: Sequence[Buffer], body_bytes: int) -> bytes:
    """Return the datagrams of messages of one size with consecutive indices that do not cross the wrap."""
    count = len(bodies)
    rows = np.empty(count, dtype=_message(body_bytes))
    rows["index"] = np.arange(index, index + count)
    rows["session_id"] = session_id
    rows["ack_index"] = 0
    rows["flag"] = flag
    if body_bytes:
        rows["body"] = np.frombuffer(b"".join(bodies), dtype=f"V{body_bytes}")
    return rows.tobytes()


@lru_cache(maxsize=512)
def _message(body_bytes: int) -> np.dtype[np.void]:
    """The layout of a message with a body of that size."""
    return np.dtype([*_HEADER.descr, ("body", f"V{body_bytes}")]) if body_bytes else _HEADER


def encode_acks(index: int, session_id: int, ack_index: int, count: int) -> bytes:
    """Return acknowledgements of `count` consecutive important packets; neither indices cross the wrap."""
    rows = np.empty(count, dtype=_HEADER)
    rows["index"] = np.arange(index, index + count)
    rows["session_id"] = session_id
    rows["ack_index"] = np.arange(ack_index, ack_index + count)
    rows["flag"] = IMP | ACK
    return rows.tobytes()
