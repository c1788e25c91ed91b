"""Offsets never go back, whatever is lost: the stream would take new messages for those that it has landed."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
import pytest

from fairway import net
from fairway.core import layout
from fairway.gateway.home import Home
from fairway.gateway.journal import Journal, Transaction
from fairway.gateway.salvage import open_journal
from tests.gateway.test_journal import row
from tests.gateway.world import any_ports, gateway


def landed_up_to(home: Home, position: int) -> None:
    """Have the table hold this much of the gateway."""
    schema = pa.schema([("body", pa.binary())])
    home.messages.create(schema, (), configuration={}, positions={layout.progress("edge"): position})


def next_offset(home: Home) -> int:
    journal = open_journal(home)
    try:
        return journal.next_offset
    finally:
        journal.close()


async def test_a_gateway_that_lost_its_journal_and_its_segments_goes_on_above_what_it_sealed(lake: Path) -> None:
    async with gateway(lake, any_ports(("pydevts",)), "--seal-after", "10ms") as first:
        async with net.connect(first.urls[0]) as connection:
            for number in range(3):
                await connection.send(b"%d" % number)
        assert await first.stop() == 0
    home, landing = lake / layout.GATEWAYS / "gateway", lake / layout.LANDING / "gateway"
    for path in (*home.glob(f"{layout.JOURNAL}*"), *landing.iterdir()):
        path.unlink()
    async with gateway(lake, any_ports(("pydevts",)), "--seal-after", "10ms") as second:
        async with net.connect(second.urls[0]) as connection:
            await connection.send(b"new")
        assert await second.stop() == 0
    assert [path.name for path in landing.iterdir()] == [layout.segment_name(3, 3)]


def test_a_salvaged_journal_begins_above_what_was_sealed(home: Home) -> None:
    home.sealed_to.write_text("41\n")
    home.journal.write_bytes(b"something else entirely " * 100)
    assert next_offset(home) == 42
    assert list(home.folder.glob("journal-damaged-*.sqlite"))


def test_what_the_table_holds_is_a_witness_too(home: Home) -> None:
    landed_up_to(home, 70)
    assert next_offset(home) == 70


def test_a_table_that_a_power_cut_damaged_keeps_no_gateway_from_starting(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    landed_up_to(home, 70)
    (home.messages.log.folder / f"{1:020}.json").write_bytes(bytes(200))
    home.sealed_to.write_text("79\n")
    assert next_offset(home) == 80
    assert "how far the stream is cannot be read" in caplog.text


def test_the_highest_witness_counts_and_a_note_that_cannot_be_read_is_told(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    landed_up_to(home, 5)
    (home.landing.folder / layout.segment_name(0, 10)).touch()
    home.sealed_to.write_text("7\n")
    assert next_offset(home) == 11
    home.sealed_to.write_text("seven\n")
    assert next_offset(home) == 11
    assert "sealed-to cannot be read" in caplog.text


def unsealed(home: Home, first: int, *bodies: bytes) -> None:
    journal = Journal(home.journal, "edge", first)
    journal.write(Transaction(rows=[row(first + number, [body]) for number, body in enumerate(bodies)]))
    journal.close()


def test_messages_of_a_journal_that_began_anew_get_offsets_above_what_was_sealed(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    unsealed(home, 0, b"a", b"b")
    home.sealed_to.write_text("99\n")
    journal = open_journal(home)
    assert (journal.next_offset, journal.unsealed(), journal.plan(1_000)) == (102, (2, 2), (100, 101))
    journal.close()
    assert "2 messages that are in no segment get new offsets, from 100 on" in caplog.text
    assert next_offset(home) == 102


def test_messages_that_lie_in_a_segment_are_not_sealed_again_under_another_name(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    unsealed(home, 0, b"a", b"b", b"c")
    (home.landing.folder / layout.segment_name(0, 1)).touch()
    with caplog.at_level(logging.WARNING):
        journal = open_journal(home)
    assert (journal.next_offset, journal.unsealed(), journal.plan(1_000)) == (3, (1, 1), (2, 2))
    assert not caplog.text
    journal.close()


def test_a_segment_that_was_named_and_not_marked_is_made_again_as_planned(home: Home) -> None:
    unsealed(home, 0, b"a", b"b", b"c")
    journal = Journal(home.journal, "edge")
    assert journal.plan(2) == (0, 1)
    journal.close()
    (home.landing.folder / layout.segment_name(0, 1)).touch()
    journal = open_journal(home)
    assert (journal.planned(), journal.sealed_to) == ((0, 1), -1)
    journal.close()
