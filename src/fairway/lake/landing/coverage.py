"""Which offsets of a gateway were seen, and how many of them more than once, in little memory.

A bit for each offset, in blocks that are made when needed. A block whose offsets were all seen is forgotten but for
its number: files come about in the order of their batches, so few blocks are open at a time, however long the table.
"""

from __future__ import annotations

from typing import Any

import numpy as np

BLOCK = 1 << 20
"""Offsets in a block: 128 KiB of memory while it is open."""

Offsets = np.ndarray[Any, np.dtype[np.int64]]


class Coverage:
    """The offsets of one gateway that were seen."""

    def __init__(self) -> None:
        self.double = 0
        """How many rows were seen beyond the first of their offset."""
        self._full: set[int] = set()
        self._open: dict[int, np.ndarray[Any, np.dtype[np.uint8]]] = {}

    def add(self, offsets: Offsets) -> None:
        """Takes note of rows."""
        if not len(offsets):
            return
        blocks = offsets // BLOCK
        lowest, highest = int(blocks.min()), int(blocks.max())
        if lowest == highest:
            self._add(lowest, offsets - lowest * BLOCK)
            return
        for block in np.unique(blocks).tolist():
            self._add(block, offsets[blocks == block] - block * BLOCK)

    def _add(self, block: int, places: Offsets) -> None:
        if block in self._full:
            self.double += len(places)
            return
        bits = self._bits(block)
        before = np.count_nonzero(bits)
        bits[places] = 1
        after = np.count_nonzero(bits)
        self.double += len(places) - int(after - before)
        if after == BLOCK:
            self._full.add(block)
            self._open.pop(block, None)
        else:
            self._open[block] = np.packbits(bits)

    def _bits(self, block: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return a block with a byte for each offset."""
        packed = self._open.get(block)
        return np.zeros(BLOCK, dtype=np.uint8) if packed is None else np.unpackbits(packed)

    def merge(self, other: Coverage) -> None:
        """Takes note of all that another has seen."""
        self.double += other.double
        for block in other._open:
            self._add(block, np.flatnonzero(other._bits(block)))
        everything = np.arange(BLOCK)
        for block in other._full:
            self._add(block, everything)

    def count(self, first: int, end: int) -> int:
        """Counts the offsets from `first` up to and without `end` that were seen."""
        total = 0
        for block in self._full | self._open.keys():
            low, high = max(first - block * BLOCK, 0), min(end - block * BLOCK, BLOCK)
            if low < high:
                total += high - low if block in self._full else int(self._bits(block)[low:high].sum())
        return total

    def end(self) -> int:
        """Return the offset behind the highest that was seen."""
        highest = max(self._full | self._open.keys(), default=-1)
        if highest not in self._open:
            return (highest + 1) * BLOCK
        return highest * BLOCK + int(np.flatnonzero(self._bits(highest))[-1]) + 1

    def beyond(self, end: int) -> int:
        """Counts the offsets from `end` on that were seen."""
        return self.count(end, self.end())
