"""A damaged journal, and a damaged log: what stands on the disk is found, and what does not is told."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from fairway.gateway import wal
from fairway.gateway.errors import JournalFailed, JournalTooNew
from fairway.gateway.figures import Figures
from fairway.gateway.journal import PAGE_BYTES, Journal, Transaction, read_rows
from fairway.gateway.place import Place
from fairway.gateway.salvage import open_journal
from fairway.gateway.sealer import Sealer
from fairway.gateway.settings import build
from tests.gateway.test_journal import row

STATE = ("udpc://x", "p", 1, b"state")
FRAME_BYTES = PAGE_BYTES + 24
SIZES = (1, 700, 9_000, 30_000)
"""Some rows share a page, some go on on others."""


def body(number: int) -> bytes:
    return b"%d-" % number + bytes([number % 251]) * SIZES[number % len(SIZES)]


def filled(place: Place, rows: int = 400, count: int = 3) -> None:
    """Writes a journal of rows with several messages each, from offset 30 on."""
    journal = Journal(place.journal, "edge", 30)
    for first in range(0, rows, 10):
        some = [row(30 + count * n, [body(n), b"", b"%d" % n][:count], n) for n in range(first, first + 10)]
        journal.write(Transaction(rows=some, states=[STATE]))
    journal.close()


def bodies(journal: Journal) -> list[bytes]:
    return [one.body for one in read_rows(journal._connection, 0, 1 << 62)]


def leaves(place: Place) -> list[int]:
    """Lists the leaves of `messages`."""
    data = place.journal.read_bytes()
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


def test_every_row_outside_of_the_damaged_pages_is_kept_wherever_they_lie(place: Place) -> None:
    filled(place)
    found = leaves(place)
    ruined = [found[len(found) * part // 7] for part in range(7)]
    ruin(place.journal, *ruined)
    journal = open_journal(place)
    kept = bodies(journal)
    lost = {n for n in range(400) if body(n) + b"%d" % n not in kept}
    assert 7 <= len(lost) < 80
    assert journal.next_offset == 30 + 3 * len(kept), "numbered without gaps"
    assert journal.states("udpc://x") == [b"state"]
    journal.close()


def test_what_conversations_added_is_read_between_any_two_damaged_pages(place: Place) -> None:
    journal = Journal(place.journal, "edge")
    for n in range(300):
        journal.write(Transaction(additions=[("rup://x", n, b"added %d " % n + bytes(3_000))]))
    journal.close()
    data = place.journal.read_bytes()
    found = [page for page in range(len(data) // PAGE_BYTES) if b"added" in page_of(data, page)]
    ruin(place.journal, *(found[len(found) * part // 6] for part in range(1, 6)))
    journal = open_journal(place)
    assert len(journal.states("rup://x")) == 300 - 5 * 2, "two on each page"
    journal.close()


def test_without_the_tree_every_row_is_found_on_its_page(place: Place) -> None:
    filled(place)
    place.sealed_to.write_text("29\n")
    ruin(place.journal, 0)
    journal = open_journal(place)
    assert bodies(journal) == [body(n) + b"%d" % n for n in range(400)]
    assert (journal.next_offset, journal.fault()) == (30 + 1_200, "")
    journal.close()


def test_rows_that_are_only_in_the_log_are_found_without_the_tree(place: Place) -> None:
    killed(place, 40)
    ruin(place.journal, 0)
    journal = open_journal(place)
    assert bodies(journal) == [body(n) for n in range(40)]
    journal.close()


def test_what_was_sealed_and_removed_does_not_come_back_from_pages_out_of_use(place: Place) -> None:
    filled(place)
    journal = Journal(place.journal, "edge")
    journal.mark(30, 30 + 3 * 300 - 1, 1, 1)
    while journal.remove_sealed(64):
        pass
    journal.close()
    place.sealed_to.write_text(f"{30 + 3 * 300 - 1}\n")
    ruin(place.journal, 0)
    journal = open_journal(place)
    assert bodies(journal) == [body(n) + b"%d" % n for n in range(300, 400)]
    journal.close()


# The log.


def killed(place: Place, rows: int, filling: bytes | None = None) -> None:
    """Leaves a journal as a killed process does, with a transaction for each row in the log."""
    elsewhere = Place(place.home / "elsewhere", "edge")
    elsewhere.take()
    journal = Journal(elsewhere.journal, "edge")
    for n in range(rows):
        content = body(n) if filling is None else b"%d" % n + filling
        journal.write(Transaction(rows=[row(n, [content])], states=[STATE]))
    for end in ("", "-wal"):
        shutil.copy(f"{elsewhere.journal}{end}", f"{place.journal}{end}")
    journal.close()


def log_of(place: Place) -> Path:
    return Path(f"{place.journal}-wal")


def flip(path: Path, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        flipped = file.read(1)[0] ^ 0xFF
        file.seek(at)
        file.write(bytes([flipped]))


@pytest.mark.parametrize("inside", [4, 9, 17, 3_000], ids=["size", "salt", "checksum", "page"])
def test_a_flipped_byte_in_the_log_takes_nothing_that_was_committed_behind_it(
    place: Place, inside: int, caplog: pytest.LogCaptureFixture
) -> None:
    killed(place, 60)
    frames = (log_of(place).stat().st_size - 32) // FRAME_BYTES
    # The leaf that grows is written again by the next transaction.
    pages = [frame.page for frame in wal.walk(log_of(place).read_bytes(), PAGE_BYTES).frames]
    hurt = next(place for place in range(frames // 2, frames) if pages[place] in pages[place + 1 :])
    flip(log_of(place), 32 + hurt * FRAME_BYTES + inside)
    journal = open_journal(place)
    assert bodies(journal) == [body(n) for n in range(60)]
    assert (journal.next_offset, journal.states("udpc://x"), journal.fault()) == (60, [b"state"], "")
    journal.close()
    assert f"{frames - hurt} frames lay behind the damage and were read nevertheless; nothing is lost" in caplog.text
    (aside,) = place.home.glob("journal-damaged-*.sqlite-wal")
    assert aside.name.removesuffix("-wal") in caplog.text


@pytest.mark.parametrize("at", [1, 8, 18, 27], ids=["magic", "page size", "salt", "checksum"])
def test_a_damaged_header_of_the_log_takes_nothing(place: Place, at: int) -> None:
    killed(place, 20)
    flip(log_of(place), at)
    journal = open_journal(place)
    assert bodies(journal) == [body(n) for n in range(20)]
    journal.close()


@pytest.mark.parametrize("whole", [True, False], ids=["a byte", "the page"])
def test_of_a_page_that_no_later_frame_holds_other_versions_are_read_and_the_loss_is_told(
    place: Place, caplog: pytest.LogCaptureFixture, whole: bool
) -> None:
    """A leaf that is full is not written again; before that, it was with every row."""
    killed(place, 200, bytes(500))
    data = log_of(place).read_bytes()
    found = wal.walk(data, PAGE_BYTES)
    full = next(at for at in sorted(found.latest().values()) if data[found.frames[at].at] == 0x0D and at > 50)
    at = found.frames[full].at
    if whole:
        flip(log_of(place), at + PAGE_BYTES - 100)
    else:
        log_of(place).write_bytes(data[:at] + bytes(PAGE_BYTES) + data[at + PAGE_BYTES :])
    journal = open_journal(place)
    kept = bodies(journal)
    assert (journal.next_offset, journal.fault()) == (len(kept), "")
    journal.close()
    wanted = [b"%d" % n + bytes(500) for n in range(200)]
    missing = [one for one in wanted if one not in kept]
    assert len(missing) == (0 if whole else 1)
    assert kept == [one for one in wanted if one not in missing]
    told = f"1 pages could not be, and at least {len(missing)} acknowledged messages are lost"
    assert told in caplog.text
    assert len(list(place.home.glob("journal-*"))) == 2, "the file and its log as they were"


def test_a_torn_tail_is_normal_and_stays_silent(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    killed(place, 60)
    found = wal.walk(log_of(place).read_bytes(), PAGE_BYTES)
    commits = [place for place, frame in enumerate(found.frames) if frame.pages]
    for torn in range(commits[-2] + 1, commits[-1] + 1):
        damaged = Place(place.home / f"torn-{torn}", "edge")
        damaged.take()
        for end in ("", "-wal"):
            shutil.copy(f"{place.journal}{end}", f"{damaged.journal}{end}")
        flip(log_of(damaged), 32 + torn * FRAME_BYTES + 3_000)
        journal = open_journal(damaged)
        assert bodies(journal) == [body(n) for n in range(59)]
        journal.close()
        assert not list(damaged.home.glob("journal-damaged-*"))
    assert not caplog.text


def test_the_log_is_empty_after_a_start(place: Place) -> None:
    killed(place, 20)
    journal = open_journal(place)
    assert log_of(place).stat().st_size == 0
    assert bodies(journal) == [body(n) for n in range(20)]
    journal.close()


def test_checksums_of_the_log_are_those_of_sqlite(place: Place) -> None:
    killed(place, 20)
    data = log_of(place).read_bytes()
    found = wal.walk(data, PAGE_BYTES)
    assert (len(found.frames), found.damaged, found.behind) == ((len(data) - 32) // FRAME_BYTES, set(), 0)
    merged = place.home / "merged.sqlite"
    assert not found.lost()
    wal.merge(place.journal, data, found, PAGE_BYTES, merged)
    reader = sqlite3.connect(merged)
    assert reader.execute("PRAGMA quick_check").fetchall() == [("ok",)]
    assert reader.execute("SELECT count(*) FROM messages").fetchone() == (20,)
    reader.close()


# Checksums of rows.


def change(place: Place, old: bytes, new: bytes) -> None:
    """Changes bytes in the file, behind SQLite's back."""
    data = place.journal.read_bytes()
    assert data.count(old) == 1
    place.journal.write_bytes(data.replace(old, new))


def three(place: Place) -> None:
    journal = Journal(place.journal, "edge")
    journal.write(Transaction(rows=[row(n, [b"body %d" % n]) for n in range(3)], states=[STATE]))
    journal.close()


def test_a_row_that_differs_from_its_checksum_is_left_out_and_the_file_is_kept(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    three(place)
    change(place, b"body 1", b"bogy 1")
    journal = open_journal(place)
    assert (bodies(journal), journal.next_offset) == ([b"body 0", b"body 2"], 2)
    assert journal.states("udpc://x") == [b"state"]
    journal.close()
    (aside,) = place.home.glob("journal-damaged-*.sqlite")
    assert b"bogy 1" in aside.read_bytes()
    assert "1 rows differ from their checksum" in caplog.text


def test_a_journal_in_which_rows_are_missing_is_numbered_anew_without_a_gap(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    three(place)
    other = sqlite3.connect(place.journal)
    with other:
        other.execute('DELETE FROM messages WHERE "offset" = 1')
    other.close()
    journal = open_journal(place)
    assert (bodies(journal), journal.next_offset) == ([b"body 0", b"body 2"], 2)
    journal.close()
    assert "1 messages are missing between others" in caplog.text
    assert "at least 1 others are lost" in caplog.text


def test_a_journal_of_a_newer_version_is_left_as_it_is_whatever_its_log_holds(place: Place) -> None:
    killed(place, 20)
    journal = open_journal(place)
    journal._connection.execute("PRAGMA user_version = 9")
    journal.carry_over()
    for n in range(20, 40):
        journal.write(Transaction(rows=[row(n, [body(n)])]))
    shutil.copy(log_of(place), place.home / "log")
    journal.close()
    shutil.copy(place.home / "log", log_of(place))
    flip(log_of(place), 32 + 3_000)
    with pytest.raises(JournalTooNew, match="has format 9 and this Fairway knows"):
        open_journal(place)
    assert not list(place.home.glob("journal-*"))


def test_a_journal_of_version_1_goes_on_with_its_rows_unchecked(place: Place) -> None:
    three(place)
    old = sqlite3.connect(place.journal)
    old.executescript("ALTER TABLE messages DROP COLUMN crc; PRAGMA user_version = 1")
    old.close()
    journal = open_journal(place)
    journal.write(Transaction(rows=[row(3, [b"body 3"])]))
    rows = read_rows(journal._connection, 0, 9)
    assert [one.body for one in rows] == [b"body 0", b"body 1", b"body 2", b"body 3"]
    assert [one.crc is None for one in rows] == [True, True, True, False]
    journal.close()
    ruin(place.journal, 0)
    journal = open_journal(place)
    assert len(bodies(journal)) == 4
    journal.close()


def test_a_row_that_is_damaged_while_a_gateway_runs_is_not_sealed_and_ends_it(place: Place) -> None:
    three(place)
    asyncio.run(_sealed(place))
    assert not list(place.landing.iterdir())
    journal = open_journal(place)
    assert bodies(journal) == [b"body 0", b"body 2"]
    assert not journal.is_suspect
    journal.close()


async def _sealed(place: Place) -> None:
    journal = Journal(place.journal, "edge")
    journal._connection.execute("UPDATE messages SET body = x'00' WHERE \"offset\" = 1")
    writer = ThreadPoolExecutor(1)
    settings = build({"urls": ["rup://127.0.0.1:0"], "lake": str(place.home), "seal_after": "10ms"})
    sealer = Sealer(journal, place, writer, Figures(), settings)
    try:
        async with asyncio.timeout(120):
            await sealer.run()
        with pytest.raises(JournalFailed, match="1 rows that differ from their checksum, from offset 1 on"):
            sealer.failed.result()
        assert journal.is_suspect
    finally:
        sealer.close()
        writer.shutdown()
        journal.close()
