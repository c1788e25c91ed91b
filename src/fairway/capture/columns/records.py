"""The records of a capture by columns, and the two steps of which every walk over a capture consists.

A walk yields `Run`s of records that follow one another and `Gap`s that were left out, in the order of the file. What
it yields depends on the bytes and on the `Position` where it starts alone: a file that is read in ranges
gives the same rows as one that is read whole, if each range starts where the one before ended.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fairway.capture.frames import Interface
from fairway.core.columns import Bytes, Integers

ByteOrder = Literal["<", ">"]

BATCH_BYTES = 4 << 20
"""Bytes of a file that become one batch of rows: its headers stay in a core's second cache."""

NO_TIME = -(1 << 63)
"""The time of what has none."""

DAMAGES = ("", "damaged", "file_ends_inside", "block_contradicts_itself")
"""What can be wrong with a record, by number; `DAMAGES[0]` is nothing."""
DAMAGED, CUT_OFF, CONTRADICTION = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Position:
    """An offset in a capture and all that a reader must know to go on from there."""

    offset: int
    order: ByteOrder
    interfaces: tuple[Interface, ...] = ()
    """Those of the pcapng section, as far as it has been read."""
    sections: int = 0
    """How many pcapng sections have begun since reading started."""

    @property
    def key(self) -> tuple[int, str]:
        """What must agree between the end of a range and the start of the next."""
        return self.offset, self.order


@dataclass(frozen=True, slots=True)
class Run:
    """Records that follow one another, all read with the same `position.order` and `position.interfaces`."""

    position: Position
    offsets: Integers


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes that hold no record."""

    offset: int
    skipped_bytes: int
    damage: int


@dataclass(frozen=True, slots=True)
class Records:
    """Many records, row by row in the order of the file; a gap is a row with `damage` and nothing captured."""

    offset: Integers
    data_offset: Integers
    captured: Integers
    wire_bytes: Integers
    at_ns: Integers
    link_type: Integers
    point: Integers
    points: tuple[str, ...]
    """Names of the capture points; `point` counts in them."""
    damage: Bytes

    @property
    def counted(self) -> NDArray[np.bool_]:
        """Whether the row is a record, and so has a frame number of its own."""
        counted: NDArray[np.bool_] = (self.damage == 0) | (self.damage == CONTRADICTION)
        return counted

    def __len__(self) -> int:
        return len(self.offset)


class Form(Protocol):
    """A format of captures: how to walk over a buffer that holds a whole file."""

    @property
    def start(self) -> Position:
        """Where the first record is."""

    def guess(self, data: memoryview, offset: int, stop: int) -> Position:
        """Return the first position from `offset` on, before `stop`, where a chain of plausible records begins.

        Without one the position is at `stop`. It is a guess: payloads may hold chains.
        """

    def walk(self, data: memoryview, position: Position, stop: int) -> Generator[Run | Gap, None, Position]:
        """Return the runs and gaps that start before `stop`, and return the position where the last one ends."""

    def records(self, data: memoryview, run: Run) -> Records:
        """Read the headers of a run."""


def gap_record(gap: Gap) -> Records:
    one = np.ones(1, dtype=np.int64)
    return Records(
        offset=one * gap.offset,
        data_offset=one * gap.offset,
        captured=one * 0,
        wire_bytes=one * gap.skipped_bytes,
        at_ns=one * NO_TIME,
        link_type=one * 0,
        point=one * 0,
        points=("",),
        damage=np.array([gap.damage], dtype=np.uint8),
    )


def numbers(data: memoryview, order: ByteOrder, offset: int, stop: int) -> NDArray[np.uint32]:
    """Return the 32-bit number that starts at each byte from `offset` to `stop`, as a view."""
    return np.ndarray((max(0, stop - offset),), dtype=f"{order}u4", buffer=data, offset=offset, strides=(1,))


def heads(data: memoryview, order: ByteOrder, offsets: Integers, words: int) -> NDArray[np.int64]:
    """Copy so many 32-bit numbers from each offset on into a row."""
    width = 4 * words
    low, high = int(offsets[0]), int(offsets[-1]) + width
    view = np.ndarray((high - low - width + 1,), dtype=f"V{width}", buffer=data, offset=low, strides=(1,))
    return view[offsets - low].view(f"{order}u4").reshape(-1, words).astype(np.int64)
