"""Opening a journal that may be damaged: what SQLite can still read goes into a new one; the damaged file is put aside.

SQLite itself recovers the log of a process that was killed, up to the first damaged frame. Of a damaged file the rows
are read from both ends, up to the damage.

What is not sealed yet is numbered anew from the last segment on, so that the segments stay without gaps; nobody outside
has seen those offsets.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fairway.gateway.home import Home
from fairway.gateway.journal import SUSPECT, Journal, Row, Transaction
from fairway.store.files import sync

NEW = "journal-salvaged.sqlite"
CHECKED_BYTES_MAX = 256 << 20
"""A larger journal is not checked as a whole at the start: it would take longer than a restart may."""
DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
SIDE_FILES = ("-wal", "-shm")
_log = logging.getLogger("fairway.gateway")


def open_journal(home: Home) -> Journal:
    """Open the journal, or make one; a damaged one is salvaged."""
    first = home.first_offset()
    new = home.folder / NEW
    if new.exists() and not home.journal.exists():
        _replace_journal(new, home.journal)
    had_log = Path(f"{home.journal}-wal").exists()
    try:
        journal = Journal(home.journal, home.name, first)
        try:
            _check(journal)
        except BaseException:
            journal.close()
            raise
    except sqlite3.DatabaseError as error:
        if not getattr(error, "sqlite_errorname", "").startswith(DAMAGE):
            raise
        return _salvage(home, first, error)
    _renumber(journal, home, first)
    if had_log:
        journal.carry_over()
    return journal


def _renumber(journal: Journal, home: Home, first: int) -> None:
    # A segment that counts as sealed lets rows go: its name must be there for good.
    home.landing.sync("")
    moved = journal.renumber(first, home.landed())
    if moved:
        _log.warning(
            "the journal was behind what is sealed: %d messages that are in no segment get new offsets, from %d on; "
            "if it is an older copy, some of them may be in the lake already", moved, first,
        )  # fmt: skip


def _new(home: Home) -> Path:
    """Return the name of the file that is to become the journal, with nothing there."""
    new = home.folder / NEW
    for path in (new, *(Path(f"{new}{end}") for end in SIDE_FILES)):
        path.unlink(missing_ok=True)
    return new


def _aside(home: Home) -> Path:
    return home.folder / f"journal-damaged-{time.time_ns()}.sqlite"


def _put_aside(home: Home, aside: Path) -> None:
    os.rename(home.journal, aside)
    for end in SIDE_FILES:
        with suppress(FileNotFoundError):
            os.rename(f"{home.journal}{end}", f"{aside}{end}")


def _check(journal: Journal) -> None:
    if journal.is_suspect or journal.path.stat().st_size <= CHECKED_BYTES_MAX:
        fault = journal.fault()
        if fault:
            error = sqlite3.DatabaseError(fault)
            error.sqlite_errorname = "SQLITE_CORRUPT"
            raise error
        journal.note(SUSPECT, "")


def _salvage(home: Home, first: int, error: sqlite3.DatabaseError) -> Journal:
    new, aside = _new(home), _aside(home)
    kept = _copy(home.journal, new, home.name, first)
    _put_aside(home, aside)
    _replace_journal(new, home.journal)
    _log.error(
        "the journal was damaged (%s): %d messages that were not sealed yet could be read and are kept; at least %d "
        "others are lost, and perhaps some behind the last that could be read. The damaged file is %s. Check the disk",
        error, kept.messages, kept.missing, aside,
    )  # fmt: skip
    return Journal(home.journal, home.name, first)


def _replace_journal(new: Path, journal: Path) -> None:
    for end in SIDE_FILES:
        Path(f"{journal}{end}").unlink(missing_ok=True)
    os.rename(new, journal)
    sync(journal.parent)


class Kept(NamedTuple):
    """What became of a damaged journal."""

    messages: int
    missing: int
    """Offsets among those of the messages that none of them has."""


def _copy(damaged: Path, new: Path, name: str, first: int) -> Kept:
    old = sqlite3.connect(damaged, isolation_level=None)
    try:
        sealed = [row[1] + 1 for row in _rows(old, "sealed", "first")]
        next_offset = max([first, *sealed])
        journal = Journal(new, name, next_offset)
        transaction = Transaction()
        messages, end = 0, next_offset
        for row in (Row(*found) for found in _rows(old, "messages", '"offset"')):
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


def _rows(connection: sqlite3.Connection, table: str, key: str) -> list[Any]:
    """Return the rows of a table that can be read: from the front to the damage, and from the back to it."""
    found: dict[Any, tuple[Any, ...]] = {}
    width = key.count(",") + 1
    for direction in ("ASC", "DESC"):
        order = ", ".join(f"{one} {direction}" for one in key.split(","))
        _take(connection, f"SELECT * FROM {table} ORDER BY {order}", width, found)
    return [found[one] for one in sorted(found)]


def _take(connection: sqlite3.Connection, asked: str, width: int, found: dict[Any, tuple[Any, ...]]) -> None:
    """Read rows up to one that is known, or to damage."""
    new = 0
    # Python reads a row ahead, and with the damage loses the row before it: that one is asked for by itself.
    for one in (asked, "{} LIMIT 1 OFFSET {}"):
        try:
            for row in connection.execute(one.format(asked, new)):
                if row[:width] in found:
                    return
                found[row[:width]] = row
                new += 1
            return
        except sqlite3.DatabaseError:
            continue
