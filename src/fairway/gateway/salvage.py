"""Opening a journal that may be damaged: what can be read goes into a new one, and the damaged file is put aside.

What is not sealed yet is numbered anew from the last segment on, so that the segments stay without gaps; nobody outside
has seen those offsets.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from fairway.gateway.journal import Journal, Row, Transaction
from fairway.gateway.place import Place, sync

NEW = "journal-salvaged.sqlite"
CHECKED_BYTES_MAX = 256 << 20
"""A larger journal is not checked as a whole at the start: it would take longer than a restart may."""
DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
SIDE_FILES = ("-wal", "-shm")
PROBES_MAX = 64

_log = logging.getLogger("fairway.gateway")


def open_journal(place: Place) -> Journal:
    """Opens the journal, or makes one; a damaged one is salvaged."""
    landed = place.landed()
    first_offset = landed[-1][1] + 1 if landed else 0
    new = place.home / NEW
    if new.exists() and not place.journal.exists():
        _take_place(new, place.journal)
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
    return journal


def _check(journal: Journal) -> None:
    if journal.path.stat().st_size <= CHECKED_BYTES_MAX:
        fault = journal.fault()
        if fault:
            error = sqlite3.DatabaseError(fault)
            error.sqlite_errorname = "SQLITE_CORRUPT"
            raise error


def _salvage(place: Place, first_offset: int, error: sqlite3.DatabaseError) -> Journal:
    new, aside = place.home / NEW, place.home / f"journal-damaged-{time.time_ns()}.sqlite"
    for path in (new, *(Path(f"{new}{end}") for end in SIDE_FILES)):
        path.unlink(missing_ok=True)
    messages = _copy(place.journal, new, place.name, first_offset)
    os.rename(place.journal, aside)
    for end in SIDE_FILES:
        with suppress(FileNotFoundError):
            os.rename(f"{place.journal}{end}", f"{aside}{end}")
    _take_place(new, place.journal)
    _log.error(
        "the journal was damaged (%s): %d messages that were not sealed yet could be read and are kept; the damaged "
        "file is %s. Check the disk; what else was acknowledged and not sealed is lost", error, messages, aside,
    )  # fmt: skip
    return Journal(place.journal, place.name, first_offset)


def _take_place(new: Path, journal: Path) -> None:
    for end in SIDE_FILES:
        Path(f"{journal}{end}").unlink(missing_ok=True)
    os.rename(new, journal)
    sync(journal.parent)


def _copy(damaged: Path, new: Path, name: str, first_offset: int) -> int:
    """Copies what can be read into a new journal; gives the number of messages."""
    old = sqlite3.connect(damaged, isolation_level=None)
    try:
        sealed = [row[1] + 1 for row in _rows(old, "sealed", "first")]
        next_offset = max([first_offset, *sealed])
        journal = Journal(new, name, next_offset)
        transaction = Transaction()
        messages = 0
        for values in _rows(old, "messages", '"offset"'):
            row = Row(*values)
            if row.offset >= next_offset:
                transaction.rows.append(row._replace(offset=next_offset + messages))
                messages += row.messages
        transaction.states = list(_rows(old, "states", "endpoint, peer"))
        transaction.additions = [tuple(row[1:]) for row in _rows(old, "additions", "number")]
        journal.write(transaction)
        journal.close()
    finally:
        old.close()
    sync(new)
    return messages


def _rows(connection: sqlite3.Connection, table: str, key: str) -> Iterator[Any]:
    """Gives the rows of a table that can be read: from the front to the damage, from the back to it, and between."""
    found: dict[Any, tuple[Any, ...]] = {}
    width = key.count(",") + 1
    for direction in ("ASC", "DESC"):
        order = ", ".join(f"{one} {direction}" for one in key.split(","))
        with suppress(sqlite3.DatabaseError):
            for row in connection.execute(f"SELECT * FROM {table} ORDER BY {order}"):
                if row[:width] in found:
                    break
                found[row[:width]] = row
    if width == 1:
        _probe(connection, table, key, found)
    yield from (found[one] for one in sorted(found))


def _probe(connection: sqlite3.Connection, table: str, key: str, found: dict[Any, tuple[Any, ...]]) -> None:
    """Looks for rows between two places of damage."""
    for _ in range(PROBES_MAX):
        known = sorted(one[0] for one in found)
        gap = max(pairwise(known), key=lambda pair: pair[1] - pair[0], default=(0, 0))
        middle = (gap[0] + gap[1]) // 2
        before = len(found)
        for compare, direction in ((">", "ASC"), ("<", "DESC")):
            with suppress(sqlite3.DatabaseError):
                asked = f"SELECT * FROM {table} WHERE {key} {compare} ? ORDER BY {key} {direction}"
                for row in connection.execute(asked, (middle,)):
                    if row[:1] in found:
                        break
                    found[row[:1]] = row
        if len(found) == before:
            return
