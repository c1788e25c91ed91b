"""Many pydevts datagrams at once: headers to columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairway.core.columns import Bytes, Columns, Integers, headers
from fairway.core.machine import UDP_PAYLOAD_BYTES_MAX
from fairway.protocols.pydevts.wire import HEADER, HEADER_BYTES, KIND_OF_TYPE, KINDS, REASONS, TYPE_PACKET, TYPE_SHIFT

_TOO_SHORT, _UNKNOWN_TYPE, _BAD_SUCCESS, _WRONG_SIZE, _TOO_LONG = range(1, len(REASONS))
_KIND = np.array([KINDS.index(KIND_OF_TYPE.get(number, KINDS[0])) for number in range(256)], dtype=np.uint8)


def decode_columns(buffer: Bytes, offsets: Integers, lengths: Integers) -> Columns:
    """Decode the headers of many datagrams; agrees with `wire.decode` on every input."""
    header = headers(buffer, offsets, lengths, HEADER_BYTES).view(f">u{HEADER_BYTES}")[:, 0].astype(np.uint64)
    number = (header >> np.uint64(TYPE_SHIFT)).astype(np.uint8)
    fields: dict[str, NDArray[np.generic]] = {}
    for field in HEADER.fields[1:]:
        shifted = header >> np.uint64(HEADER.shift(field.name))
        fields[field.name] = shifted.astype(np.int64) & ((1 << 8 * field.size) - 1)
    return Columns(
        kinds=KINDS,
        reasons=REASONS,
        kind=_KIND[number],
        reason=_reasons(number, fields["success"], lengths),
        fields=fields,
        body_bytes=lengths - HEADER_BYTES,
    )


def _reasons(number: Bytes, success: NDArray[np.generic], lengths: Integers) -> Bytes:
    """Return each row's reason; the rule that `wire.header` checks first is written last."""
    reason = np.zeros(len(lengths), dtype=np.uint8)
    reason[lengths > UDP_PAYLOAD_BYTES_MAX] = _TOO_LONG
    reason[(number != TYPE_PACKET) & (lengths != HEADER_BYTES)] = _WRONG_SIZE
    reason[np.greater(success, 1)] = _BAD_SUCCESS
    reason[_KIND[number] == 0] = _UNKNOWN_TYPE
    reason[lengths < HEADER_BYTES] = _TOO_SHORT
    return reason
