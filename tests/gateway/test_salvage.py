"""A damaged journal: what SQLite can still read is kept, and what is lost is told."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import pytest

from fairway.gateway.errors import JournalFailed
from fairway.gateway.figures import Figures
from fairway.gateway.home import Home
from fairway.gateway.journal import PAGE_BYTES, Journal, Transaction, read_rows
from fairway.gateway.salvage import open_journal
from fairway.gateway.sealer import Sealer
from fairway.gateway.settings import build
from tests.gateway.test_journal import row

STATE = ("udpc://x", "p", 1, b"state")
SIZES = (1, 700, 9_000, 30_000)
"""Some rows share a page, some go on on others."""


def body(number: int) -> bytes:
    return b"%d-" % number + bytes([number % 251]) * SIZES[number % len(SIZES)]


def filled(home: Home, rows: int = 400, count: int = 3) -> None:
    """Write a journal of rows with several messages each, from offset 30 on."""
    journal = Journal(home.journal, "edge", 30)
    for first in range(0, rows, 10):
        some = [row(30 + count * n, [body(n), b"", b"%d" % n][:count], n) for n in range(first, first + 10)]
        journal.write(Transaction(rows=some, states=[STATE]))
    journal.close()


def bodies(journal: Journal) -> list[bytes]:
    return [one.body for one in read_rows(journal._connection, 0, 1 << 62)]


def leaves(home: Home) -> list[int]:
    """List the leaves of `messages`."""
    data = home.journal.read_bytes()
    pages = range(len(data) // PAGE_BYTES)
    return [page for page in pages if data[page * PAGE_BYTES] == 0x0D and b"127.0.0.1:1" in page_of(data, page)]


def page_of(data: bytes, page: int) -> bytes:
    return data[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]


def ruin(path: Path, *pages: int) -> None:
    random = Random(1)
    with open(path, "r+b") as file:
        for page in pages:
            file.seek(page * PAGE_BYTES)
            file.write(random.randbytes(PAGE_BYTES))


def test_rows_before_the_first_and_behind_the_last_damaged_page_are_kept(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    filled(home)
    found = leaves(home)
    ruin(home.journal, *(found[len(found) * part // 7] for part in (3, 4)))
    journal = open_journal(home)
    kept = bodies(journal)
    lost = [n for n in range(400) if body(n) + b"%d" % n not in kept]
    assert 2 <= len(lost) < 200
    assert lost == list(range(lost[0], lost[-1] + 1)), "nothing outside of the damage"
    assert journal.next_offset == 30 + 3 * len(kept), "numbered without gaps"
    assert journal.states("udpc://x") == [b"state"]
    assert journal.fault() == ""
    (aside,) = home.folder.glob("journal-damaged-*.sqlite")
    assert f"{3 * len(kept)} messages" in caplog.text
    assert aside.name in caplog.text
    journal.close()
    # A crash between the two renames of a salvage is completed by the next start.
    home.journal.rename(home.folder / "journal-salvaged.sqlite")
    journal = open_journal(home)
    assert bodies(journal) == kept
    journal.close()


def killed(home: Home, rows: int) -> None:
    """Leave a journal as a killed process does, with a transaction for each row in the log."""
    elsewhere = Home(home.folder / "elsewhere", "edge")
    elsewhere.take()
    journal = Journal(elsewhere.journal, "edge")
    for n in range(rows):
        journal.write(Transaction(rows=[row(n, [body(n)])], states=[STATE]))
    for end in ("", "-wal"):
        shutil.copy(f"{elsewhere.journal}{end}", f"{home.journal}{end}")
    journal.close()


def log_of(home: Home) -> Path:
    return Path(f"{home.journal}-wal")


def flip(path: Path, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        flipped = file.read(1)[0] ^ 0xFF
        file.seek(at)
        file.write(bytes([flipped]))


def test_a_torn_tail_of_the_log_is_normal_and_stays_silent(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    killed(home, 60)
    flip(log_of(home), log_of(home).stat().st_size - 3_000)
    journal = open_journal(home)
    assert bodies(journal) == [body(n) for n in range(59)]
    journal.close()
    assert not list(home.folder.glob("journal-damaged-*"))
    assert not caplog.text


def test_the_log_is_empty_after_a_start(home: Home) -> None:
    killed(home, 20)
    journal = open_journal(home)
    assert log_of(home).stat().st_size == 0
    assert bodies(journal) == [body(n) for n in range(20)]
    journal.close()


# Checksums of rows.


def change(home: Home, old: bytes, new: bytes) -> None:
    """Change bytes in the file, behind SQLite's back."""
    data = home.journal.read_bytes()
    assert data.count(old) == 1
    home.journal.write_bytes(data.replace(old, new))


def three(home: Home) -> None:
    journal = Journal(home.journal, "edge")
    journal.write(Transaction(rows=[row(n, [b"body %d" % n]) for n in range(3)], states=[STATE]))
    journal.close()


def test_a_row_that_differs_from_its_checksum_is_left_out_and_the_file_is_kept(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    three(home)
    change(home, b"body 1", b"bogy 1")
    journal = open_journal(home)
    assert (bodies(journal), journal.next_offset) == ([b"body 0", b"body 2"], 2)
    assert journal.states("udpc://x") == [b"state"]
    journal.close()
    (aside,) = home.folder.glob("journal-damaged-*.sqlite")
    assert b"bogy 1" in aside.read_bytes()
    assert "1 rows differ from their checksum" in caplog.text


def test_a_journal_in_which_rows_are_missing_is_numbered_anew_without_a_gap(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    three(home)
    other = sqlite3.connect(home.journal)
    with other:
        other.execute('DELETE FROM messages WHERE "offset" = 1')
    other.close()
    journal = open_journal(home)
    assert (bodies(journal), journal.next_offset) == ([b"body 0", b"body 2"], 2)
    journal.close()
    assert "1 messages are missing between others" in caplog.text
    assert "at least 1 others are lost" in caplog.text


def test_a_journal_of_version_1_goes_on_with_its_rows_unchecked(home: Home) -> None:
    three(home)
    old = sqlite3.connect(home.journal)
    for column in ("crc", "port", "device"):
        old.execute(f"ALTER TABLE messages DROP COLUMN {column}")
    old.execute("PRAGMA user_version = 1")
    old.close()
    journal = open_journal(home)
    journal.write(Transaction(rows=[row(3, [b"body 3"])]))
    rows = read_rows(journal._connection, 0, 9)
    assert [one.body for one in rows] == [b"body 0", b"body 1", b"body 2", b"body 3"]
    assert [one.crc is None for one in rows] == [True, True, True, False]
    journal.close()


def test_a_row_that_is_damaged_while_a_gateway_runs_is_not_sealed_and_ends_it(home: Home) -> None:
    three(home)
    asyncio.run(_sealed(home))
    assert not home.landing.names()
    journal = open_journal(home)
    assert bodies(journal) == [b"body 0", b"body 2"]
    assert not journal.is_suspect
    journal.close()


async def _sealed(home: Home) -> None:
    journal = Journal(home.journal, "edge")
    journal._connection.execute("UPDATE messages SET body = x'00' WHERE \"offset\" = 1")
    with sealing(journal, home) as sealer:
        async with asyncio.timeout(120):
            await sealer.run()
        with pytest.raises(JournalFailed, match="1 rows that differ from their checksum, from offset 1 on"):
            sealer.failed.result()
        assert journal.is_suspect


@contextmanager
def sealing(journal: Journal, home: Home) -> Iterator[Sealer]:
    writer = ThreadPoolExecutor(1)
    settings = build({"urls": ["rup://127.0.0.1:0"], "lake": str(home.folder), "seal_after": "10ms"})
    sealer = Sealer(journal, home, writer, Figures(), settings)
    try:
        yield sealer
    finally:
        sealer.close()
        writer.shutdown()
        journal.close()


def test_a_stop_in_the_middle_of_sealing_leaves_no_row_and_no_spooled_file(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.spool.mkdir(exist_ok=True)
    (home.spool / "large").write_bytes(b"x" * 9)
    journal = Journal(home.journal, "edge")
    journal.write(Transaction(rows=[row(0, [b""])._replace(spool="large", size_bytes=9, sizes=None)]))
    asyncio.run(_stopped_behind_the_mark(journal, home, monkeypatch))
    assert home.landing.names()
    assert not list(home.spool.iterdir())


async def _stopped_behind_the_mark(journal: Journal, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    marked, go_on = asyncio.Event(), Event()
    loop, mark = asyncio.get_running_loop(), Journal.mark

    def slow_mark(*arguments: Any) -> None:
        mark(*arguments)
        loop.call_soon_threadsafe(marked.set)
        go_on.wait(60)

    monkeypatch.setattr(Journal, "mark", slow_mark)
    with sealing(journal, home) as sealer:
        running = asyncio.create_task(sealer.run())
        await marked.wait()
        running.cancel()
        await asyncio.wait([running])
        go_on.set()
        await sealer.seal_all()
        assert not read_rows(journal._connection, 0, 9)
