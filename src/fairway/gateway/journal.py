"""The journal: SQLite with a write-ahead log, synced at every commit.

    messages   "offset", count, protocol, peer, session, id, kind, reliable, received_us, size_bytes, sizes, body,
               spool, crc, port, device
               one row for `count` messages of one peer that arrived together, with consecutive offsets and ids (`id`
               is the first). Their bodies follow one another in `body`; each has `size_bytes`, or, where that is null,
               its own entry in `sizes` (unsigned 32-bit, little-endian). A message that lies in a file has its name in
               `spool` and an empty `body`. `crc` is the CRC-32 of `sizes` and `body`, null in rows of version 1 and of
               messages in files. `port` is the one on which they were received, null in rows of versions 1 and 2.
               `device` is the sender's authenticated name, null without DTLS. Rows are removed after sealing.
    states     endpoint, peer, at_us, data: what `restore` needs of a conversation, replaced with every commit
    additions  number, endpoint, at_us, data: what commits add to the memory of duplicates where that grows with every
               message; removed when its time is over
    sealing    first, last: the segment that is being made, so that a repeated attempt makes the same one
    sealed     first, last, bytes, at_us: segments that lie in `landing/`, at least the newest
    meta       key, value: gateway, boot, stopped, suspect

Messages and the state that recognises their duplicates are committed in one transaction. Beside the gateway anyone may
read (`core/layout.py` has the questions); only the gateway writes, from one thread.
"""

from __future__ import annotations

import sqlite3
import time
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from fairway.core import layout
from fairway.gateway.errors import JournalTooNew
from fairway.store import crashpoints

VERSION = 4
ADDED = {2: "crc INTEGER", 3: "port INTEGER", 4: "device TEXT"}
"""Columns of messages, by the version that added them."""
PAGE_BYTES = 8_192
CACHE_KIB = 65_536
CHECKPOINT_PAGES = 4_096
"""The log is carried over to the file when it has grown to so many pages (32 MiB)."""
SEALED_KEPT = 1_024
"""Entries about sealed segments that are kept; only the newest matters to anybody."""
BUSY_S = 5.0
SUSPECT = "suspect"
"""In the journal: what was found damaged in it; the next start looks it over, however large it is."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS messages (
    "offset" INTEGER PRIMARY KEY, count INTEGER NOT NULL, protocol TEXT NOT NULL, peer TEXT NOT NULL, session INTEGER,
    id, kind TEXT NOT NULL, reliable INTEGER NOT NULL, received_us INTEGER NOT NULL, size_bytes INTEGER, sizes BLOB,
    body BLOB NOT NULL, spool TEXT, crc INTEGER, port INTEGER, device TEXT);
CREATE TABLE IF NOT EXISTS states (
    endpoint TEXT NOT NULL, peer TEXT NOT NULL, at_us INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (endpoint, peer)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS additions (
    number INTEGER PRIMARY KEY, endpoint TEXT NOT NULL, at_us INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS sealing (first INTEGER PRIMARY KEY, last INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS sealed (
    first INTEGER PRIMARY KEY, last INTEGER NOT NULL, bytes INTEGER NOT NULL, at_us INTEGER NOT NULL);
"""

_BYTES = "CASE WHEN spool IS NULL THEN length(body) ELSE size_bytes END"
_ADD_MESSAGES = "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_SET_STATE = "INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?)"
_DROP_STATE = "DELETE FROM states WHERE endpoint = ? AND peer = ?"
_ADD_ADDITION = "INSERT INTO additions (endpoint, at_us, data) VALUES (?, ?, ?)"


class Row(NamedTuple):
    """Messages of one peer as they stand in the journal."""

    offset: int
    messages: int
    protocol: str
    peer: str
    session: int | None
    id: int | str
    kind: str
    reliable: bool
    received_us: int
    size_bytes: int | None
    sizes: bytes | None
    body: bytes
    spool: str | None = None
    crc: int | None = None
    port: int | None = None
    device: str | None = None

    @property
    def body_bytes(self) -> int:
        """The size of the bodies, wherever they lie."""
        return len(self.body) if self.spool is None else self.size_bytes or 0

    def summed(self) -> Row:
        """Return the row with its checksum; one that has a checksum keeps it."""
        return self._replace(crc=self._sum()) if self.crc is None and self.spool is None else self

    @property
    def is_sound(self) -> bool:
        """Whether the bodies are those that were committed, as far as there is a checksum."""
        return self.crc is None or self.crc == self._sum()

    def _sum(self) -> int:
        return crc32(self.body, crc32(self.sizes or b""))


def packed(bodies: Sequence[bytes]) -> tuple[int | None, bytes | None, bytes]:
    """Return the common size of bodies, or each of their sizes, and all of them in one piece."""
    if len(bodies) == 1:
        return len(bodies[0]), None, bodies[0]
    sizes = list(map(len, bodies))
    if min(sizes) == max(sizes):
        return sizes[0], None, b"".join(bodies)
    return None, array("I", sizes).tobytes(), b"".join(bodies)


@dataclass(slots=True)
class Transaction:
    rows: list[Row] = field(default_factory=list)
    states: list[tuple[str, str, int, bytes]] = field(default_factory=list)
    additions: list[tuple[str, int, bytes]] = field(default_factory=list)
    gone: list[tuple[str, str]] = field(default_factory=list)
    forget_before_us: int | None = None
    """Additions older than this have done their work."""


class Journal:
    """The file, opened for writing. Its methods may be called from any thread, one at a time."""

    def __init__(self, path: Path, gateway: str, first_offset: int = 0) -> None:
        """Open the journal, or make one whose first offset is given; raise `sqlite3.DatabaseError` if damaged."""
        self.path = path
        self._connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            self._set_up(gateway, first_offset)
        except BaseException:
            self._connection.close()
            raise

    def _set_up(self, gateway: str, first_offset: int) -> None:
        execute = self._connection.execute
        execute(f"PRAGMA page_size = {PAGE_BYTES}")
        version = execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise JournalTooNew(
                f"the journal {self.path} has format {version} and this Fairway knows {VERSION}: use the newer Fairway "
                f"that wrote it, or another --name"
            )
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
        # Debian's SQLite overwrites what is deleted: every message would be written twice more.
        execute("PRAGMA secure_delete = OFF")
        execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        execute(f"PRAGMA journal_size_limit = {2 * CHECKPOINT_PAGES * PAGE_BYTES}")
        with self._connection:
            execute("BEGIN IMMEDIATE")
            for statement in filter(str.strip, TABLES.split(";")):
                execute(statement)
            for since, column in ADDED.items():
                if 0 < version < since:
                    execute(f"ALTER TABLE messages ADD COLUMN {column}")
            execute(f"PRAGMA user_version = {VERSION}")
            execute("INSERT OR IGNORE INTO meta VALUES ('gateway', ?)", (gateway,))
            if first_offset and self.next_offset == 0:
                self._begin_at(first_offset)
            self._note_boot()

    def _begin_at(self, offset: int) -> None:
        self._connection.execute("INSERT INTO sealed VALUES (?, ?, 0, 0)", (offset - 1, offset - 1))

    def _note_boot(self) -> None:
        """Give additions from before a reboot their full time again: the clock that dates them began anew."""
        boot = BOOT_ID.read_text().strip() if BOOT_ID.exists() else ""
        execute = self._connection.execute
        known = execute("SELECT value FROM meta WHERE key = 'boot'").fetchone()
        if not boot or known is None or known[0] != boot:
            execute("UPDATE additions SET at_us = ?", (now_us(),))
            execute("INSERT OR REPLACE INTO meta VALUES ('boot', ?)", (boot,))

    def limit(self, journal_bytes_max: int) -> None:
        """Have writing fail, as on a full disk, when the file would grow beyond this."""
        self._connection.execute(f"PRAGMA max_page_count = {max(16, journal_bytes_max // PAGE_BYTES)}")

    # What is there.

    @property
    def next_offset(self) -> int:
        return int(self._connection.execute(layout.JOURNAL_NEXT_OFFSET).fetchone()[0])

    def unsealed(self) -> tuple[int, int]:
        """Return the number of messages that are not sealed, and their bytes."""
        query = f'SELECT coalesce(sum(count), 0), coalesce(sum({_BYTES}), 0) FROM messages WHERE "offset" > ?'
        messages, size = self._connection.execute(query, (self.sealed_to,)).fetchone()
        return int(messages), int(size)

    @property
    def sealed_to(self) -> int:
        """The last offset that lies in a segment; -1 before the first."""
        return int(self._connection.execute("SELECT coalesce(max(last), -1) FROM sealed").fetchone()[0])

    def newest_us(self) -> int:
        """The time of day of the newest thing here; 0 if there is none."""
        query = 'SELECT received_us FROM messages ORDER BY "offset" DESC LIMIT 1'
        times = [row[0] for row in self._connection.execute(query)]
        times += [row[0] for row in self._connection.execute("SELECT at_us FROM sealed ORDER BY first DESC LIMIT 1")]
        return max(map(int, times), default=0)

    def fault(self) -> str:
        """Look the whole file over; return what is wrong, or an empty text."""
        found = str(self._connection.execute("PRAGMA quick_check(1)").fetchone()[0])
        if found != "ok":
            return found
        query = 'SELECT coalesce(max("offset" + count) - ? - 1 - sum(count), 0) FROM messages WHERE "offset" > ?'
        missing = self._connection.execute(query, (self.sealed_to, self.sealed_to)).fetchone()[0]
        if missing:
            return f"{missing} messages are missing between others"
        query = 'SELECT * FROM messages WHERE "offset" > ?'
        wrong = sum(not Row(*row).is_sound for row in self._connection.execute(query, (self.sealed_to,)))
        return f"{wrong} rows differ from their checksum" if wrong else ""

    @property
    def is_suspect(self) -> bool:
        """Whether something in it was found damaged since it was last salvaged."""
        query = "SELECT 1 FROM meta WHERE key = ? AND value != ''"
        return bool(self._connection.execute(query, (SUSPECT,)).fetchone())

    def note(self, key: str, value: str) -> None:
        """Keep a fact about the gateway."""
        self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def states(self, endpoint: str) -> list[bytes]:
        """Return the pieces of state of an endpoint, in the order in which they are to be restored."""
        query = "SELECT data FROM states WHERE endpoint = ?"
        found = [row[0] for row in self._connection.execute(query, (endpoint,))]
        query = "SELECT data FROM additions WHERE endpoint = ? ORDER BY number"
        return found + [row[0] for row in self._connection.execute(query, (endpoint,))]

    def endpoints(self) -> list[str]:
        query = "SELECT endpoint FROM states UNION SELECT endpoint FROM additions ORDER BY 1"
        return [row[0] for row in self._connection.execute(query)]

    def spooled(self) -> set[str]:
        """List the files of messages that are not sealed."""
        return {row[0] for row in self._connection.execute("SELECT spool FROM messages WHERE spool IS NOT NULL")}

    # Writing.

    def write(self, transaction: Transaction) -> None:
        """Make all of it durable, or raise and have changed nothing."""
        crashpoints.check_room()
        connection = self._connection
        rows = [row.summed() for row in transaction.rows]
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(_ADD_MESSAGES, rows)
            # One that ended and came back under the same name is there again.
            connection.executemany(_DROP_STATE, transaction.gone)
            connection.executemany(_SET_STATE, transaction.states)
            connection.executemany(_ADD_ADDITION, transaction.additions)
            if transaction.forget_before_us is not None:
                self._forget(transaction.forget_before_us)
            crashpoints.reached("before-commit")

    def _forget(self, before_us: int) -> None:
        """Remove additions from the oldest on; they are in the order of time."""
        query = "SELECT min(number) FROM additions WHERE at_us >= ?"
        first_kept = self._connection.execute(query, (before_us,)).fetchone()[0]
        where, values = ("", ()) if first_kept is None else (" WHERE number < ?", (first_kept,))
        self._connection.execute(f"DELETE FROM additions{where}", values)

    def replace_states(self, endpoint: str, states: Iterable[tuple[str, int, bytes]]) -> None:
        """Replace all states of an endpoint by new ones."""
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("DELETE FROM states WHERE endpoint = ?", (endpoint,))
            self._connection.executemany(_SET_STATE, [(endpoint, *state) for state in states])

    # Sealing.

    def planned(self) -> tuple[int, int] | None:
        """Return the range of the segment that is being made, if one is."""
        found = self._connection.execute("SELECT first, last FROM sealing").fetchone()
        return None if found is None else (int(found[0]), int(found[1]))

    def plan(self, segment_bytes_max: int) -> tuple[int, int] | None:
        """Note the range of the next segment: from the oldest unsealed message on, within the bound, at least one row.

        None if everything is sealed.
        """
        crashpoints.check_room()
        query = f'SELECT "offset", count, {_BYTES} FROM messages WHERE "offset" > ? ORDER BY "offset"'
        first = last = -1
        size = 0
        for offset, count, length in self._connection.execute(query, (self.sealed_to,)):
            if first < 0:
                first = offset
            elif size + length > segment_bytes_max:
                break
            last = offset + count - 1
            size += length
        if first < 0:
            return None
        with self._connection:
            self._connection.execute("INSERT INTO sealing VALUES (?, ?)", (first, last))
        return first, last

    def mark(self, first: int, last: int, size: int, at_us: int) -> None:
        """Note that the segment lies in the landing folder."""
        crashpoints.check_room()
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("INSERT OR REPLACE INTO sealed VALUES (?, ?, ?, ?)", (first, last, size, at_us))
            self._connection.execute("DELETE FROM sealing")
            kept = "SELECT first FROM sealed ORDER BY first DESC LIMIT ?"
            self._connection.execute(f"DELETE FROM sealed WHERE first NOT IN ({kept})", (SEALED_KEPT,))

    def renumber(self, first_offset: int, landed: Sequence[tuple[int, int]]) -> int:
        """See that no offset below the first is given or sealed any more; return the number of messages that moved.

        A journal that is behind what was sealed is an older copy, or has lost commits. What it holds of the segments
        that are `landed` counts as sealed; what else it holds is numbered anew from `first_offset` on.
        """
        planned = self.planned()
        if self.sealed_to >= first_offset - 1 or (planned is not None and planned[1] >= first_offset - 1):
            return 0
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            first = self._first_beside(landed)
            moved = 0 if first is None or first >= first_offset else self._move(first, first_offset - first)
            self._connection.execute("DELETE FROM sealing")
            self._begin_at(first_offset)
        return moved

    def _first_beside(self, landed: Sequence[tuple[int, int]]) -> int | None:
        """Return the first offset that is neither marked as sealed nor in one of these segments."""
        query = 'SELECT "offset", "offset" + count - 1 FROM messages WHERE "offset" > ? ORDER BY "offset"'
        for first, last in self._connection.execute(query, (self.sealed_to,)):
            if not any(low <= first and last <= high for low, high in landed):
                return int(first)
        return None

    def _move(self, first: int, distance: int) -> int:
        """Move the rows from an offset on, by way of negative ones, so that no two meet."""
        query = 'SELECT sum(count) FROM messages WHERE "offset" >= ?'
        moved = int(self._connection.execute(query, (first,)).fetchone()[0])
        self._connection.execute('UPDATE messages SET "offset" = -1 - "offset" WHERE "offset" >= ?', (first,))
        self._connection.execute('UPDATE messages SET "offset" = ? - "offset" WHERE "offset" < 0', (distance - 1,))
        return moved

    def remove_sealed(self, rows_max: int) -> bool:
        """Remove so many rows that lie in segments; return whether there may be more."""
        query = 'DELETE FROM messages WHERE "offset" IN (SELECT "offset" FROM messages WHERE "offset" <= ? LIMIT ?)'
        with self._connection:
            removed = self._connection.execute(query, (self.sealed_to, rows_max)).rowcount
        return removed == rows_max

    def carry_over(self) -> None:
        """Carry the log over to the file and empty it: frames that were never committed are not to lie in it, which
        would look like damage after the next power cut."""
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Carry the log over to the file and close it. Twice is fine."""
        self._connection.close()


def open_reader(path: Path) -> sqlite3.Connection:
    """Open the journal a second time, to read beside the one that writes."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_S, check_same_thread=False)


def read_rows(reader: sqlite3.Connection, first: int, last: int) -> list[Row]:
    """Return the rows of a range of offsets, in order."""
    query = 'SELECT * FROM messages WHERE "offset" BETWEEN ? AND ? ORDER BY "offset"'
    return [Row(*row) for row in reader.execute(query, (first, last))]


def now_us() -> int:
    """Read the clock that additions are dated by: it starts anew with the machine, and is never set."""
    return time.monotonic_ns() // 1_000
