"""The count of journal, segments and table, at rest and while everything moves."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from fairway.cli import run
from fairway.core.tables import MESSAGES
from fairway.lake.landing import reconcile as module
from fairway.lake.landing.reconcile import Account, Unreadable, reconcile
from fairway.lake.schemas import arrow_schema
from fairway.store import tending
from fairway.store.lakes import Lake
from tests.lake.landing.fake import FakeGateway


class World:
    """A lake with one gateway, whose messages are put into the table by hand."""

    def __init__(self, path: Path) -> None:
        self.lake = Lake(path)
        self.gateway = FakeGateway(path, "one")
        self.table = self.lake.delta(MESSAGES.name)
        schema, configuration = arrow_schema(MESSAGES), tending.history(0)
        self.table.create(schema, MESSAGES.partitions, configuration=configuration, positions={})

    def land(self, first: int, last: int) -> None:
        rows = self.gateway.table(first, last)
        rows = rows.append_column("day", pa.array([date(2026, 3, 1)] * len(rows), pa.date32()))
        write_deltalake(self.table.location.uri, rows.cast(arrow_schema(MESSAGES)), mode="append")

    def count(self) -> Account:
        (account,) = reconcile(self.lake)
        return account


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.gateway.close()


def figures(account: Account) -> tuple[int, ...]:
    return (account.acknowledged, account.on_the_way, account.in_tables, account.missing, account.double)


def test_messages_are_counted_once_wherever_they_are(world: World) -> None:
    assert figures(world.count()) == (0, 0, 0, 0, 0)
    world.gateway.seal(100)
    world.gateway.seal(50)
    world.gateway.acknowledge(7)
    assert figures(world.count()) == (157, 157, 0, 0, 0)
    world.land(0, 99)
    assert figures(world.count()) == (157, 57, 100, 0, 0)
    world.land(100, 149)
    assert figures(world.count()) == (157, 7, 150, 0, 0)


def test_a_lost_segment_and_a_row_twice_are_found(world: World) -> None:
    world.gateway.seal(100)
    world.gateway.seal(50).unlink()
    world.land(0, 99)
    world.land(10, 12)
    account = world.count()
    assert figures(account) == (150, 0, 100, 50, 3)
    assert not account.balanced


def test_a_removed_segment_that_has_landed_is_not_missing(world: World) -> None:
    path = world.gateway.seal(100)
    world.land(0, 99)
    path.unlink()
    assert figures(world.count()) == (100, 0, 100, 0, 0)


def test_rows_that_nobody_acknowledged_are_unexplained(world: World) -> None:
    world.gateway.seal(100)
    world.land(0, 119)
    account = world.count()
    assert (account.unexplained, account.balanced) == (20, False)


def test_without_a_journal_landing_and_table_are_the_witnesses(world: World, tmp_path: Path) -> None:
    world.gateway.seal(100)
    world.land(0, 149)
    for path in (tmp_path / "gateways" / "one").iterdir():
        path.unlink()
    assert figures(world.count()) == (150, 0, 150, 0, 0)


def test_what_moves_between_two_looks_is_neither_missing_nor_double(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each was read, everything moves on to the next, and new messages come."""
    world.gateway.seal(40)
    world.gateway.acknowledge(10)
    journal, with_segments, table = module._journal, module._with_segments, module.read_table
    journals = 0

    def read_journal(folder: Path | None, gateway: str) -> module._Ranges | None:
        nonlocal journals
        journals += 1
        found = journal(folder, gateway)
        if journals == 1:
            world.gateway.seal(20)
            world.land(0, 39)
        return found

    def read_segments(lake: Lake, gateway: str, held: module._Ranges | None) -> module._Ranges:
        found = with_segments(lake, gateway, held)
        for path in world.gateway.folder.glob("*.parquet"):
            path.unlink()
        world.land(40, 69)
        return found

    monkeypatch.setattr(module, "_journal", read_journal)
    monkeypatch.setattr(module, "_with_segments", read_segments)
    monkeypatch.setattr(module, "read_table", table)
    account = world.count()
    assert account.balanced
    assert figures(account) == (50, 0, 50, 0, 0)


def test_a_compacted_table_is_counted_as_it_was(world: World) -> None:
    world.gateway.seal(80)
    world.land(0, 39)
    world.land(40, 79)
    assert tending.compact(world.table) is not None
    assert figures(world.count()) == (80, 0, 80, 0, 0)


def test_a_damaged_file_is_named(world: World) -> None:
    world.gateway.seal(10)
    world.land(0, 9)
    path = next(world.table.location.folder.rglob("day=*/**/*.parquet"))
    path.write_bytes(b"half")
    with pytest.raises(Unreadable, match=rf"{path.name} cannot be read"):
        world.count()


def test_the_verb_prints_the_figures_and_leaves_with_1_when_something_is_missing(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = world.gateway.seal(1000)
    assert run(["reconcile", "--lake", str(tmp_path)]) == 0
    assert "one: 1,000 acknowledged, 1,000 on the way, 0 in tables, 0 missing, 0 double" in capsys.readouterr().out
    path.unlink()
    assert run(["reconcile", "--lake", str(tmp_path), "--json"]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["gateway"], line["acknowledged"], line["missing"]) for line in lines] == [
        ("one", 1000, 1000),
        (None, 1000, 1000),
    ]


def test_a_folder_that_is_no_lake_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "letter.txt").write_text("x")
    for verb in ("reconcile", "compact", "stream"):
        assert run([verb, "--lake", str(tmp_path)]) == 1
        assert "is no lake and holds other things (letter.txt)" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["letter.txt"]
