"""A partition's folder: a batch gets into it whole, whatever an earlier attempt left there."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fairway.lake.landing import compaction
from fairway.lake.landing.compaction import Compactor, DamagedTable
from fairway.lake.landing.folders import publish_batch
from fairway.lake.landing.names import FileName, of_batch, parse
from fairway.lake.store import Lake

QUERY = "0" * 8 + "-0000-0000-0000-" + "0" * 12


def write(path: Path, *offsets: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"gateway": ["one"] * len(offsets), "offset": pa.array(offsets, pa.int64())}), path)
    return path


def held(folder: Path) -> dict[str, list[int]]:
    return {name: pq.read_table(folder / name)["offset"].to_pylist() for name in sorted(os.listdir(folder))}


def name(batch: int, number: int = 0) -> str:
    return str(of_batch(QUERY, batch, number))


def merged(first: int, last: int, number: int = 0) -> str:
    return str(FileName(QUERY, first, last, number, compacted=True))


class Place:
    """A lake with one partition."""

    def __init__(self, path: Path) -> None:
        self.lake = Lake(path)
        self.folder = self.lake.table("messages") / "day=2026-03-01" / "protocol=udpc"
        self.staging = self.lake.fresh_staging("messages")

    def publish(self, batch: int, *files: tuple[int, ...]) -> int:
        staged = {name(batch, k): write(self.staging / f"{batch}-{k}", *files[k]) for k in range(len(files))}
        return publish_batch(staged, self.folder, QUERY, batch, self.staging / "aside")

    def compact(self, committed: int, files_min: int = 2) -> bool:
        return Compactor(QUERY, committed, self.staging / "compaction").compact(self.folder, files_min) is not None


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_names_say_which_batches_a_file_holds() -> None:
    for one in (of_batch(QUERY, 12, 3), FileName(QUERY, 3, 12, 0, compacted=True)):
        assert parse(str(one)) == one
    assert parse("part-0.parquet") is None


def test_a_replay_with_the_same_cut_replaces_the_same_files(place: Place) -> None:
    place.publish(0, (1, 2), (3,))
    place.publish(0, (1, 2), (3,))
    assert held(place.folder) == {name(0, 0): [1, 2], name(0, 1): [3]}


def test_a_replay_with_another_cut_leaves_no_row_twice_and_none_out(place: Place) -> None:
    place.publish(4, (9,))
    place.publish(5, (1, 2), (3,))
    place.publish(5, (1, 2, 3))
    assert held(place.folder) == {name(4): [9], name(5): [1, 2, 3]}
    place.publish(5, (1,), (2,), (3,))
    assert held(place.folder) == {name(4): [9], name(5, 0): [1], name(5, 1): [2], name(5, 2): [3]}


def test_a_replay_of_what_is_compacted_changes_nothing(place: Place) -> None:
    place.publish(0, (1,))
    place.publish(1, (2,))
    assert place.compact(committed=1)
    assert place.publish(1, (2,)) == 0
    assert held(place.folder) == {merged(0, 1): [1, 2]}
    assert place.publish(2, (3,)) == 1


def test_batches_whose_commit_is_not_known_are_left_alone(place: Place) -> None:
    for batch in range(4):
        place.publish(batch, (batch,))
    assert place.compact(committed=1)
    assert held(place.folder) == {merged(0, 1): [0, 1], name(2): [2], name(3): [3]}


def test_what_is_merged_again_gets_a_name_that_never_was_there(place: Place) -> None:
    place.publish(0, (0,))
    place.publish(1, (1,))
    place.compact(committed=1)
    place.publish(2, (2,))
    place.compact(committed=2)
    assert held(place.folder) == {merged(0, 2): [0, 1, 2]}
    assert not place.compact(committed=2)


def test_large_files_are_not_written_again_and_merged_ones_end_at_their_size(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.publish(0, tuple(range(5000)))
    place.publish(1, (5000,))
    place.publish(2, (5001,))
    monkeypatch.setattr(compaction, "SMALL_BYTES", 4000)
    monkeypatch.setattr(compaction, "FILE_BYTES", 1)
    monkeypatch.setattr(compaction, "ROW_GROUP_BYTES", 1)
    assert place.compact(committed=2)
    assert {name: len(rows) for name, rows in held(place.folder).items()} == {
        name(0): 5000,
        merged(1, 2, 0): 1,
        merged(1, 2, 1): 1,
    }


def test_files_of_others_stay_where_they_are(place: Place) -> None:
    place.publish(0, (0,))
    place.publish(1, (1,))
    write(place.folder / "copied.parquet", 7)
    assert place.compact(committed=1)
    assert held(place.folder) == {merged(0, 1): [0, 1], "copied.parquet": [7]}


def test_a_batch_that_comes_while_files_are_merged_is_kept(place: Place) -> None:
    place.publish(0, (0,))
    place.publish(1, (1,))

    class Door:
        """Lets a late batch in just before the exchange."""

        def __enter__(self) -> None:
            place.publish(2, (2,))

        def __exit__(self, *_: object) -> None:
            pass

    assert Compactor(QUERY, 2, place.staging / "compaction", Door()).compact(place.folder)
    assert held(place.folder) == {merged(0, 1): [0, 1], name(2): [2]}


def test_a_damaged_file_is_named_and_nothing_is_changed(place: Place) -> None:
    place.publish(0, (0,))
    place.publish(1, (1,))
    (place.folder / name(1)).write_bytes(b"PAR1 half")
    with pytest.raises(DamagedTable, match=r"0000000001-0.parquet cannot be read"):
        place.compact(committed=1)
    assert sorted(os.listdir(place.folder)) == [name(0), name(1)]


def test_a_note_that_never_got_its_name_does_not_keep_the_stream_from_beginning(tmp_path: Path) -> None:
    from fairway.lake.landing.checkpoint import Checkpoint

    for kind in ("offsets", "commits"):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / ".0.7e1f.tmp").write_text("half")
        (tmp_path / kind / "..0.7e1f.tmp.crc").write_text("half")
    (tmp_path / "offsets" / "0").write_text("")
    checkpoint = Checkpoint(tmp_path)
    checkpoint.repair()
    assert checkpoint.is_empty()
    assert [*(tmp_path / "offsets").iterdir(), *(tmp_path / "commits").iterdir()] == []
