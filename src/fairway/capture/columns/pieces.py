"""Many pieces of a buffer, one after the other in a new one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairway.capture.columns.compiled import compiled
from fairway.core.columns import Bytes, Integers

Ends = NDArray[np.int32]


def joined(buffer: Bytes, starts: Integers, lengths: Integers) -> tuple[Ends, Bytes]:
    """Return where each piece ends, behind a 0, and the pieces."""
    ends = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=ends[1:])
    held = np.empty(int(ends[-1]), dtype=np.uint8)
    _copy(buffer, starts, ends, held)
    return ends, held


@compiled
def _copy(buffer: Bytes, starts: Integers, ends: Ends, held: Bytes) -> None:
    for row in range(len(starts)):
        shift = starts[row] - ends[row]
        for index in range(ends[row], ends[row + 1]):
            held[index] = buffer[index + shift]
