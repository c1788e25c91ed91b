"""A prefix in an object store does what a folder does, and more than a folder: it refuses to replace what is there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fairway.core import layout
from fairway.core.errors import BadOption
from fairway.store import tending
from fairway.store.delta import DataFile, Delta, NoTable, Overtaken
from fairway.store.lakes import Lake, NotALake
from fairway.store.locations import location_of


@pytest.fixture(params=["folder", "s3"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a lake is to be."""
    return str(tmp_path / "lake") if request.param == "folder" else str(request.getfixturevalue("address"))


def test_what_is_written_is_listed_read_and_removed(anywhere: str, tmp_path: Path) -> None:
    location = Lake(anywhere).location / "some"
    assert (location.names(), location.exists()) == ([], False)
    aside = tmp_path / "aside"
    aside.write_bytes(b"content")
    location.publish(aside, "sub/file")
    with location.create("other") as file:
        file.write(b"more")
    assert (location.names(), (location / "sub").names()) == (["other", "sub"], ["file"])
    assert (location.read("sub/file"), location.file("sub/file").size_bytes) == (b"content", 7)
    with location.open("other") as file:
        file.seek(2)
        assert file.read() == b"re"
    for _ in range(2):
        location.remove("sub/file")
    for missing in (location.read, location.file):
        with pytest.raises(FileNotFoundError):
            missing("sub/file")


def test_a_second_put_of_a_name_is_refused_and_the_first_stays(lake: Lake, tmp_path: Path) -> None:
    aside = tmp_path / "aside"
    for content in (b"first", b"second"):
        aside.write_bytes(content)
        if content == b"first":
            lake.landing.publish(aside, "one")
        else:
            with pytest.raises(FileExistsError):
                lake.landing.publish(aside, "one")
    assert lake.landing.read("one") == b"first"


def test_a_listing_begins_behind_a_name(lake: Lake) -> None:
    names = [layout.segment_name(first, first + 9) for first in range(0, 50, 10)]
    for name in names:
        lake.landing.write(f"edge/{name}", "")
    assert (lake.landing / "edge").names(f"{20:020}") == names[2:]


def test_a_lake_is_made_once_and_then_opened(anywhere: str) -> None:
    with pytest.raises(NotALake, match="is no lake"):
        Lake(anywhere, create=False)
    assert not location_of(anywhere).exists()
    Lake(anywhere)
    assert Lake(anywhere).location == Lake(Path(anywhere), create=False).location == location_of(anywhere)


def test_a_location_with_other_things_in_it_is_refused_and_left_alone(anywhere: str) -> None:
    with location_of(anywhere).create("letters.txt") as file:
        file.write(b"Dear reader")
    with pytest.raises(NotALake, match=r"holds other things \(letters.txt\)"):
        Lake(anywhere)
    assert location_of(anywhere).names() == ["letters.txt"]


def test_what_needs_a_folder_says_so(lake: Lake) -> None:
    with pytest.raises(BadOption, match="is in an object store: this needs a folder"):
        _ = lake.path


def test_the_second_writer_on_one_snapshot_is_refused(anywhere: str) -> None:
    table = Lake(anywhere).delta("letters")
    with pytest.raises(NoTable):
        table.open()
    table.create(pa.schema([("text", pa.string())]), (), configuration={}, positions={"edge": 3})
    first, second = table.open(), Delta(table.location).open()
    table.commit(first, [], advances={"edge": (3, 5)})
    with pytest.raises(Overtaken, match="Another writer fills"):
        table.commit(second, [], advances={"edge": (3, 6)})
    assert table.position(table.open(), "edge") == 5


def test_one_process_at_a_time_compacts_a_table(lake: Lake) -> None:
    """Two would double rows: delta-rs lets both succeed."""
    table = lake.delta("letters")
    table.create(pa.schema([("text", pa.string())]), (), configuration=tending.history(0), positions={})
    with tending.claimed(table):
        with pytest.raises(Overtaken, match=r"Another process compacts .*: try again in 60 minutes"):
            tending.compact(table)
        assert tending.tend(table, tending.COMPACT_EVERY) is None, "a stream goes on without"
    for number in range(2):
        path = f"{number}.parquet"
        with table.location.create(path) as file:
            pq.write_table(pa.table({"text": ["a"]}), file)
        table.commit(table.open(), [DataFile(path, table.location.file(path).size_bytes, 1, {})])
    table.location.write("2.parquet", "what another writer has not committed yet")
    assert tending.compact(table) == tending.Compacted("letters", 2, 1)
    assert "2.parquet" in table.location.names(), "there are no locks, so it may be in use"
    assert sum(len(batch) for batch in table.rows(pa.schema([("text", pa.string())]))) == 2


def test_of_two_that_claim_a_table_on_one_snapshot_one_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table, other = lake.delta("letters"), lake.delta("letters")
    table.create(pa.schema([("text", pa.string())]), (), configuration={}, positions={})
    before = other.open()
    with tending.claimed(table):
        monkeypatch.setattr(other, "open", lambda: before)  # it had looked when nobody had claimed
        with pytest.raises(Overtaken, match="Another writer fills"):
            tending.compact(other)
        assert tending.tend(other, tending.COMPACT_EVERY) is None


def test_the_claim_of_a_process_that_died_ends(lake: Lake) -> None:
    table = lake.delta("letters")
    table.create(pa.schema([("text", pa.string())]), (), configuration={}, positions={tending.CLAIMED: 1})
    assert tending.compact(table) is None
    assert table.position(table.open(), tending.CLAIMED) == 0
