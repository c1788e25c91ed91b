"""Opening a journal that may be damaged: what can be read goes into a new one, and the damaged file is put aside.

First the log of a process that was killed: SQLite reads it up to the first damaged frame. If synced transactions lie
behind that, the log is carried over to the file here. Then the file: rows are read through the tree, from both ends and
from within every gap, and those of messages from the single pages as well.

What is not sealed yet is numbered anew from the last segment on, so that the segments stay without gaps; nobody outside
has seen those offsets.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from heapq import heapify, heappop, heappush
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from fairway.gateway.floor import floor
from fairway.gateway.journal import PAGE_BYTES, SUSPECT, VERSION, Journal, Row, Transaction, version_of
from fairway.gateway.place import Place, sync

NEW = "journal-salvaged.sqlite"
MERGED = "journal-merged.sqlite"
CHECKED_BYTES_MAX = 256 << 20
"""A larger journal is not checked as a whole at the start: it would take longer than a restart may."""
DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
SIDE_FILES = ("-wal", "-shm")
PROBES_MAX = 4_096
REACHES: dict[str, Callable[[Any], int]] = {
    "messages": lambda row: int(row[0] + row[1] - 1),
    "sealed": lambda row: int(row[1]),
    "additions": lambda row: int(row[0]),
}
"""How far a row goes, by the table."""

_log = logging.getLogger("fairway.gateway")


def open_journal(place: Place) -> Journal:
    """Opens the journal, or makes one; a damaged one is salvaged."""
    first_offset = floor(place)
    new = place.home / NEW
    if new.exists() and not place.journal.exists():
        _take_place(new, place.journal)
    _mend_log(place, first_offset)
    had_log = Path(f"{place.journal}-wal").exists()
    try:
        journal = Journal(place.journal, place.name, first_offset)
        try:
            _check(journal)
        except BaseException:
            journal.close()
            raise
    except sqlite3.DatabaseError as error:
        if not getattr(error, "sqlite_errorname", "").startswith(DAMAGE):
            raise
        return _salvage(place, first_offset, error)
    _rise(journal, place, first_offset)
    if had_log:
        journal.carry_over()
    return journal


def _rise(journal: Journal, place: Place, first_offset: int) -> None:
    # A segment that counts as sealed lets rows go: its name must be there for good.
    sync(place.landing)
    moved = journal.rise(first_offset, place.landed())
    if moved:
        _log.warning(
            "the journal was behind what is sealed: %d messages that are in no segment get new offsets, from %d on; "
            "if it is an older copy, some of them may be in the lake already", moved, first_offset,
        )  # fmt: skip


def _mend_log(place: Place, first_offset: int) -> None:
    """Carries over what SQLite would forget, because it lies behind a damaged frame."""
    log = Path(f"{place.journal}-wal")
    if not place.journal.exists() or not log.exists() or not log.stat().st_size:
        return
    from fairway.gateway import wal

    data = log.read_bytes()
    found = wal.walk(data, PAGE_BYTES)
    if not found.is_damaged or version_of(place.journal) > VERSION:
        return
    new, aside = _new(place), _aside(place)
    told = "nothing is lost"
    if found.lost():
        merged = place.home / MERGED
        wal.merge(place.journal, data, found, PAGE_BYTES, merged)
        kept = _copy(merged, new, place.name, first_offset, wal.versions(data, found, PAGE_BYTES))
        merged.unlink()
        told = f"{len(found.lost())} pages could not be, and at least {kept.missing} acknowledged messages are lost"
    else:
        wal.merge(place.journal, data, found, PAGE_BYTES, new)
        sync(new)
    _put_aside(place, aside)
    _take_place(new, place.journal)
    _log.error(
        "the journal's log was damaged: %d frames lay behind the damage and were read nevertheless; %s. The files as "
        "they were are %s and %s-wal. Check the disk", found.behind, told, aside, aside,
    )  # fmt: skip


def _new(place: Place) -> Path:
    """Gives the name of the file that is to become the journal, with nothing there."""
    new = place.home / NEW
    for path in (new, *(Path(f"{new}{end}") for end in SIDE_FILES)):
        path.unlink(missing_ok=True)
    return new


def _aside(place: Place) -> Path:
    return place.home / f"journal-damaged-{time.time_ns()}.sqlite"


def _put_aside(place: Place, aside: Path) -> None:
    os.rename(place.journal, aside)
    for end in SIDE_FILES:
        with suppress(FileNotFoundError):
            os.rename(f"{place.journal}{end}", f"{aside}{end}")


def _check(journal: Journal) -> None:
    if journal.is_suspect or journal.path.stat().st_size <= CHECKED_BYTES_MAX:
        fault = journal.fault()
        if fault:
            error = sqlite3.DatabaseError(fault)
            error.sqlite_errorname = "SQLITE_CORRUPT"
            raise error
        journal.note(SUSPECT, "")


def _salvage(place: Place, first_offset: int, error: sqlite3.DatabaseError) -> Journal:
    new, aside = _new(place), _aside(place)
    kept = _copy(place.journal, new, place.name, first_offset)
    _put_aside(place, aside)
    _take_place(new, place.journal)
    _log.error(
        "the journal was damaged (%s): %d messages that were not sealed yet could be read and are kept; at least %d "
        "others are lost, and perhaps some behind the last that could be read. The damaged file is %s. Check the disk",
        error, kept.messages, kept.missing, aside,
    )  # fmt: skip
    return Journal(place.journal, place.name, first_offset)


def _take_place(new: Path, journal: Path) -> None:
    for end in SIDE_FILES:
        Path(f"{journal}{end}").unlink(missing_ok=True)
    os.rename(new, journal)
    sync(journal.parent)


class Kept(NamedTuple):
    """What became of a damaged journal."""

    messages: int
    missing: int
    """Offsets among those of the messages that none of them has."""


def _copy(damaged: Path, new: Path, name: str, first_offset: int, versions: Sequence[bytes] = ()) -> Kept:
    """Copies what can be read into a new journal: of a file, and of older states of some of its pages."""
    old = sqlite3.connect(damaged, isolation_level=None)
    try:
        sealed = [row[1] + 1 for row in _rows(old, "sealed", "first")]
        next_offset = max([first_offset, *sealed])
        journal = Journal(new, name, next_offset)
        transaction = Transaction()
        messages, end = 0, next_offset
        for row in _messages(old, damaged, versions):
            if row.offset >= next_offset and row.is_sound:
                transaction.rows.append(row._replace(offset=next_offset + messages))
                messages += row.messages
                end = row.offset + row.messages
        transaction.states = list(_rows(old, "states", "endpoint, peer"))
        transaction.additions = [tuple(row[1:]) for row in _rows(old, "additions", "number")]
        journal.write(transaction)
        journal.close()
    finally:
        old.close()
    sync(new)
    return Kept(messages, end - next_offset - messages)


def _messages(connection: sqlite3.Connection, damaged: Path, versions: Sequence[bytes]) -> list[Row]:
    """Gives the rows of messages that can be read, through the tree or off their pages."""
    found = {row.offset: row for row in _raw(damaged, versions)}
    found |= {row[0]: Row(*row) for row in _rows(connection, "messages", '"offset"')}
    return [found[offset] for offset in sorted(found)]


def _raw(damaged: Path, versions: Sequence[bytes]) -> Iterator[Row]:
    """Gives rows that were not found through the tree; of a page's other versions only those with a checksum."""
    from fairway.gateway import wal
    from fairway.gateway.pages import Pages

    if not damaged.stat().st_size:
        return
    log = Path(f"{damaged}-wal")
    data = log.read_bytes() if log.exists() else b""
    found = wal.walk(data, PAGE_BYTES)
    newer = wal.newest(data, found, PAGE_BYTES) if found.frames else {}
    with Pages(damaged, PAGE_BYTES, newer) as pages:
        older = (Row(*values) for version in versions for values in pages.messages_on(version))
        yield from (row for row in older if row.is_sound and row.crc is not None)
        yield from (row for row in (Row(*values) for values in pages.messages()) if row.is_sound)


def _rows(connection: sqlite3.Connection, table: str, key: str) -> Iterator[Any]:
    """Gives the rows of a table that can be read: from the front to the damage, from the back to it, and between."""
    found: dict[Any, tuple[Any, ...]] = {}
    width = key.count(",") + 1
    for direction in ("ASC", "DESC"):
        order = ", ".join(f"{one} {direction}" for one in key.split(","))
        _take(connection, f"SELECT * FROM {table} ORDER BY {order}", (), width, found)
    if width == 1:
        _probe(connection, table, key, found)
    yield from (found[one] for one in sorted(found))


def _take(
    connection: sqlite3.Connection, asked: str, values: tuple[int, ...], width: int, found: dict[Any, tuple[Any, ...]]
) -> list[Any]:
    """Reads rows up to one that is known, or to damage; gives the keys of those that are new."""
    new: list[Any] = []

    def take(rows: Iterable[Any]) -> None:
        for row in rows:
            if row[:width] in found:
                break
            found[row[:width]] = row
            new.append(row[:width])

    try:
        take(connection.execute(asked, values))
    except sqlite3.DatabaseError:
        # Python reads a row ahead, and with the damage loses the row before it.
        with suppress(sqlite3.DatabaseError):
            take(connection.execute(f"{asked} LIMIT 1 OFFSET {len(new)}", values))
    return new


def _probe(connection: sqlite3.Connection, table: str, key: str, found: dict[Any, tuple[Any, ...]]) -> None:
    """Looks for rows in every gap between those that are known, the widest first, and then in what is left of it."""
    reach = REACHES[table]
    known = [(reach(found[one]), one[0]) for one in sorted(found)]
    gaps = [(low - high, low, high) for (low, _), (_, high) in pairwise(known)]
    heapify(gaps)
    for _ in range(PROBES_MAX):
        if not gaps or gaps[0][0] >= -1:
            return
        _, low, high = heappop(gaps)
        middle = (low + high) // 2
        new: list[int] = []
        for compare, direction in ((">=", "ASC"), ("<", "DESC")):
            asked = f"SELECT * FROM {table} WHERE {key} {compare} ? ORDER BY {key} {direction}"
            new += [one[0] for one in _take(connection, asked, (middle,), 1, found)]
        last = reach(found[(max(new),)]) if new else middle
        for lower, upper in ((low, min(new, default=middle)), (last, high)):
            heappush(gaps, (lower - upper, lower, upper))
