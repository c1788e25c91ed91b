"""Is everything that was acknowledged in the table, once? Counted from journals, segments and tables, without Spark.

A message moves from the journal to a segment to the table, and is removed from one only when it is in the next.
So the three are read in that order: whatever leaves one after it was read has been counted there, and whatever left
it before is found in the next. What is acknowledged later than the journal was read does not count at all.

Offsets that were seen have a bit each, in blocks that are made when needed. A block whose offsets were all seen is
forgotten but for its number: files come about in the order of their batches, so few blocks are open at a time, however
long the table.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fairway.core import layout
from fairway.core.errors import FairwayError
from fairway.core.tables import MESSAGES
from fairway.lake.landing import segments
from fairway.store.delta import DataFile, Delta
from fairway.store.lakes import Lake
from fairway.store.parquet import batches

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
        blocks = offsets // BLOCK
        for block in np.unique(blocks).tolist():
            self._add(block, offsets[blocks == block] - block * BLOCK)

    def _add(self, block: int, offsets: Offsets) -> None:
        if block in self._full:
            self.double += len(offsets)
            return
        bits = self._bits(block)
        before = np.count_nonzero(bits)
        bits[offsets] = 1
        after = np.count_nonzero(bits)
        self.double += len(offsets) - int(after - before)
        if after == BLOCK:
            self._full.add(block)
            self._open.pop(block, None)
        else:
            self._open[block] = np.packbits(bits)

    def _bits(self, block: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return a block with a byte for each offset."""
        packed = self._open.get(block)
        return np.zeros(BLOCK, dtype=np.uint8) if packed is None else np.unpackbits(packed)

    def count(self, first: int, end: int) -> int:
        """Count the offsets from `first` up to and without `end` that were seen."""
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


KEYS = pa.schema([("gateway", pa.string()), ("gateway_offset", pa.int64())])


class Unreadable(FairwayError):
    """A journal or a file of the table cannot be read; the message names it."""


@dataclass(frozen=True, slots=True)
class Account:
    """Where the messages of one gateway are."""

    gateway: str
    acknowledged: int
    on_the_way: int
    in_tables: int
    missing: int
    double: int
    unexplained: int
    """Rows that no journal has acknowledged."""

    @property
    def balanced(self) -> bool:
        """Whether all is well."""
        return not (self.missing or self.double or self.unexplained)


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Where offsets were before the table was read: ends exclusive."""

    acknowledged: int
    pieces: list[tuple[int, int]]


def reconcile(lake: Lake, journals_at: Path | None = None) -> list[Account]:
    """Count every gateway's messages, also while gateways and stream run.

    Journals lie in the lake, unless it is in an object store: then where `journals_at` says, or out of reach. Without a
    journal, segments and table are the witnesses.
    """
    if journals_at is None and lake.location.is_folder:
        journals_at = lake.gateways
    journals = {name: _journal(journals_at, name) for name in _gateways(lake, journals_at)}
    held = {name: _with_segments(lake, name, journal) for name, journal in journals.items()}
    tables = read_table(lake.delta(MESSAGES.name))
    names = sorted(held.keys() | tables.keys())
    # Read again: what was acknowledged in the meantime is explained by it.
    later = {name: _journal(journals_at, name) for name in names}
    return [_account(name, held.get(name), tables.get(name, Coverage()), later[name]) for name in names]


def _gateways(lake: Lake, journals: Path | None) -> list[str]:
    found = set(segments.gateways(lake.landing))
    if journals is not None and journals.is_dir():
        found |= {path.parent.name for path in journals.glob(f"*/{layout.JOURNAL}")}
    return sorted(found)


def _journal(journals: Path | None, gateway: str) -> _Ranges | None:
    """Read how many messages a journal has acknowledged and which it still holds; None if there is no journal."""
    path = journals / gateway / layout.JOURNAL if journals is not None else None
    if path is None or not path.exists():
        return None
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10)) as journal:
            journal.execute("BEGIN")  # both answers are of one moment
            acknowledged = int(journal.execute(layout.JOURNAL_NEXT_OFFSET).fetchone()[0])
            first, last = journal.execute(layout.JOURNAL_HELD).fetchone()
    except sqlite3.DatabaseError as error:
        raise Unreadable(f"{path} cannot be read ({error}): start the gateway, which repairs what it can.") from error
    return _Ranges(acknowledged, [] if first is None else [(int(first), int(last) + 1)])


def _with_segments(lake: Lake, gateway: str, journal: _Ranges | None) -> _Ranges:
    landed = [(one.first, one.last + 1) for one in segments.listed(lake.landing, gateway)]
    if journal is None:
        return _Ranges(max((end for _, end in landed), default=0), landed)
    return _Ranges(journal.acknowledged, _joined([*journal.pieces, *landed], journal.acknowledged))


def _joined(pieces: list[tuple[int, int]], end: int) -> list[tuple[int, int]]:
    """Return the pieces below `end`, in order and without overlap."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(pieces):
        low = max(first, joined[-1][1] if joined else 0)
        high = min(last, end)
        if low < high:
            joined.append((low, high))
    return joined


def _account(gateway: str, held: _Ranges | None, table: Coverage, later: _Ranges | None) -> Account:
    end = held.acknowledged if held is not None else 0
    if later is None:  # without a journal, the table itself is the only witness
        end = max(end, table.end())
    pieces = held.pieces if held is not None else []
    in_tables = table.count(0, end)
    on_the_way = sum(high - low - table.count(low, high) for low, high in pieces)
    explained = max(end, later.acknowledged if later is not None else 0)
    return Account(
        gateway=gateway,
        acknowledged=end,
        on_the_way=on_the_way,
        in_tables=in_tables,
        missing=end - in_tables - on_the_way,
        double=table.double,
        unexplained=table.count(explained, table.end()),
    )


def read_table(table: Delta) -> dict[str, Coverage]:
    """Return the offsets of each gateway that a table holds, in one snapshot."""
    seen: dict[str, Coverage] = defaultdict(Coverage)
    if table.exists():
        # About in the order in which they were written, so that few blocks of a coverage are open at a time.
        for file, _ in sorted(table.files(table.open()), key=lambda found: found[1].get("min.gateway_offset") or 0):
            _read_file(table, file, seen)
    return dict(seen)


def _read_file(table: Delta, file: DataFile, seen: dict[str, Coverage]) -> None:
    try:
        for batch in batches(table.location, file.path, KEYS):
            gateways = batch.column("gateway").dictionary_encode()
            offsets, codes = batch.column("gateway_offset").to_numpy(), gateways.indices.to_numpy()
            for index, gateway in enumerate(gateways.dictionary.to_pylist()):
                seen[gateway].add(offsets[codes == index].astype(np.int64))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Unreadable(f"{table.location}/{file.path} cannot be read ({error}): restore it from a copy.") from error
