"""The journal by itself: what it holds, what it survives."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fairway.core.tables import SEGMENT
from fairway.gateway import columns
from fairway.gateway.adapter import wall_us
from fairway.gateway.home import Home
from fairway.gateway.journal import PAGE_BYTES, Journal, Row, Transaction, now_us, open_reader, packed, read_rows
from fairway.gateway.service import warn_if_behind


def row(offset: int, bodies: list[bytes], identity: int | str = 7, **more: object) -> Row:
    size, sizes, body = packed(bodies)
    values = {"peer": "127.0.0.1:1", "session": 5, "kind": "message", "reliable": True, "received_us": 1_000_000}
    return Row(
        offset=offset, messages=len(bodies), protocol="udpc", id=identity, size_bytes=size,
        sizes=sizes, body=body, **(values | more),  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_segment_has_exactly_the_declared_columns_and_every_message_in_order(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"from a file")
    rows = [
        row(3, [b"a", b"", b"ccc"], 10, port=9_000, device="sensor-1"),
        row(6, [b"xx", b"yy"], 20, session=None, kind="plain", reliable=False, peer="[::1]:2"),
        row(8, [b""], "f" * 32, received_us=2_000_000, port=9_000)._replace(size_bytes=11, spool="large"),
    ]
    columns.write("edge", rows, tmp_path, tmp_path / "s.parquet")
    table = pq.read_table(tmp_path / "s.parquet")
    assert tuple(table.schema.names) == SEGMENT.names
    assert {field.name for field in table.schema if field.nullable} == {"port", "device", "session"}
    assert str(table.schema.field("received").type) == "timestamp[us, tz=UTC]"
    assert table["gateway_offset"].to_pylist() == [3, 4, 5, 6, 7, 8]
    assert table["id"].to_pylist() == ["10", "11", "12", "20", "21", "f" * 32]
    assert table["body"].to_pylist() == [b"a", b"", b"ccc", b"xx", b"yy", b"from a file"]
    assert set(zip(*(table[name].to_pylist() for name in ("peer", "peer_port", "port")), strict=True)) == {
        ("127.0.0.1", 1, 9_000),
        ("::1", 2, None),
    }
    assert table["session"].to_pylist() == [5, 5, 5, None, None, 5]
    assert table["device"].to_pylist() == ["sensor-1"] * 3 + [None] * 3
    assert table["kind"].to_pylist() == ["message"] * 3 + ["plain"] * 2 + ["message"]
    assert table["reliable"].to_pylist() == [True] * 3 + [False] * 2 + [True]
    assert [at.timestamp() for at in table["received"].to_pylist()] == [1.0] * 5 + [2.0]


def test_a_large_message_is_written_without_copies_of_it_that_only_cost_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "GROUP_BYTES_MAX", 1_000)
    monkeypatch.setattr(columns, "PLAIN_ABOVE_BYTES", 10_000)
    (tmp_path / "large").write_bytes(b"x" * 20_000)
    large = row(6, [b""])._replace(size_bytes=20_000, spool="large")
    rows = [row(0, [bytes(300)] * 3), row(3, [bytes(300)] * 3), large, row(7, [bytes(300)])]
    columns.write("edge", rows, tmp_path, tmp_path / "s.parquet")
    written = pq.read_metadata(tmp_path / "s.parquet")
    groups = [written.row_group(number) for number in range(written.num_row_groups)]
    assert [group.num_rows for group in groups] == [3, 3, 1, 1]
    body, offset = (
        groups[2].column(SEGMENT.names.index("body")),
        groups[2].column(SEGMENT.names.index("gateway_offset")),
    )
    assert (body.has_dictionary_page, body.is_stats_set, body.compression) == (False, False, "UNCOMPRESSED")
    assert (offset.statistics.min, offset.compression) == (6, "ZSTD")
    sizes = list(map(len, pq.read_table(tmp_path / "s.parquet")["body"].to_pylist()))
    assert sizes == [300] * 6 + [20_000, 300]


def test_a_file_that_is_shorter_than_its_message_is_not_sealed(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"half")
    with pytest.raises(OSError, match="large is shorter than the 11 bytes"):
        columns.write("edge", [row(0, [b""])._replace(size_bytes=11, spool="large")], tmp_path, tmp_path / "s.parquet")


@pytest.mark.parametrize("name", ["a#b", "a?b", "100%25"])
def test_a_journal_in_a_folder_of_any_name_is_read_while_it_is_written(tmp_path: Path, name: str) -> None:
    (folder := tmp_path / name).mkdir()
    journal = Journal(folder / "journal.sqlite", "edge")
    journal.write(Transaction(rows=[row(0, [b"a"])]))
    reader = open_reader(journal.path)
    assert [one.body for one in read_rows(reader, 0, 0)] == [b"a"]
    reader.close()
    journal.close()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_transaction_that_fails_leaves_nothing(home: Home) -> None:
    journal = Journal(home.journal, "edge")
    journal.limit(40 * PAGE_BYTES)
    state = [("udpc://x", "p", 1, b"state")]
    with pytest.raises(sqlite3.OperationalError, match="full"):
        journal.write(Transaction(rows=[row(0, [bytes(60 * PAGE_BYTES)])], states=state))
    assert (journal.next_offset, journal.states("udpc://x")) == (0, [])
    journal.write(Transaction(rows=[row(0, [b"small"])], states=state))
    assert (journal.next_offset, journal.states("udpc://x")) == (1, [b"state"])
    journal.close()


def test_what_a_conversation_adds_is_forgotten_from_the_oldest_on(home: Home) -> None:
    journal = Journal(home.journal, "edge")
    journal.write(Transaction(additions=[("rup://x", at_us, str(at_us).encode()) for at_us in (10, 20, 30)]))
    journal.write(Transaction(forget_before_us=20))
    assert journal.states("rup://x") == [b"20", b"30"]
    journal.write(Transaction(forget_before_us=99))
    assert journal.states("rup://x") == []
    journal.close()


def test_after_a_reboot_additions_get_their_full_time_again(home: Home) -> None:
    journal = Journal(home.journal, "edge")
    journal.write(Transaction(additions=[("rup://x", 10, b"old")]))
    journal.note("boot", "another")
    journal.close()
    journal = Journal(home.journal, "edge")
    journal.write(Transaction(forget_before_us=now_us() - 1_000_000))
    assert journal.states("rup://x") == [b"old"]
    journal.close()


def test_a_plan_is_bounded_by_bytes_and_repeated_until_it_is_marked(home: Home) -> None:
    journal = Journal(home.journal, "edge")
    journal.write(Transaction(rows=[row(0, [bytes(100)] * 3), row(3, [bytes(100)]), row(4, [bytes(100)])]))
    assert journal.plan(400) == (0, 3)
    assert journal.planned() == (0, 3)
    journal.mark(0, 3, 1, 1)
    assert (journal.planned(), journal.sealed_to, journal.unsealed()) == (None, 3, (1, 100))
    assert journal.plan(1) == (4, 4), "at least one row, however small the bound"
    assert not journal.remove_sealed(10)
    journal.close()
    journal = Journal(home.journal, "edge")
    assert (journal.planned(), journal.next_offset) == ((4, 4), 5)
    journal.mark(4, 4, 1, 1)
    assert journal.remove_sealed(1)
    assert journal.plan(1) is None
    assert journal.next_offset == 5
    journal.close()


def test_removing_what_is_sealed_writes_no_body_again(home: Home) -> None:
    """Debian's SQLite overwrites what is deleted, unless it is told not to."""
    journal = Journal(home.journal, "edge")
    body = bytes(range(256)) * 4_096
    journal.write(Transaction(rows=[row(0, [body])]))
    log = home.journal.with_name(home.journal.name + "-wal")
    before = log.stat().st_size
    assert journal.plan(1) == (0, 0)
    journal.mark(0, 0, 1, 1)
    journal.remove_sealed(10)
    assert log.stat().st_size - before < len(body) // 4
    journal.close()


def test_a_clock_that_was_set_back_is_told(caplog: pytest.LogCaptureFixture) -> None:
    warn_if_behind(wall_us() - 1_000_000)
    assert not caplog.text
    warn_if_behind(wall_us() + 3_600_000_000)
    assert "the clock was set back: it is 3600 s behind" in caplog.text
