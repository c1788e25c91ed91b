"""Delta tables without Spark: commits that are compared and synced, and what a power cut leaves."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fairway.store import crashpoints, delta, files, tending
from fairway.store.delta import DataFile, Delta, NoTable, Overtaken, RowsRewritten, VersionGone
from fairway.store.locations import Location

SCHEMA = pa.schema([("number", pa.int64()), ("day", pa.date32())])
APP = "fairway/one"
DAY = "2026-03-01"


def put(table: Delta, first: int, count: int = 10) -> DataFile:
    """Write a data file, durably."""
    path = f"day={DAY}/{first}-{count}.parquet"
    with table.location.create(path) as stream:
        pq.write_table(pa.table({"number": range(first, first + count)}), stream)
    stats = json.dumps(
        {"numRecords": count, "minValues": {"number": first}, "maxValues": {"number": first + count - 1}}
    )
    return DataFile(path, os.path.getsize(table.location.folder / path), count, {"day": DAY}, stats)


def land(table: Delta, first: int, count: int = 10) -> int:
    return table.commit(table.open(), [put(table, first, count)], advances={APP: (first, first + count)})


def numbers(table: Delta) -> list[int]:
    return sorted(
        number for batch in table.rows(pa.schema([("number", pa.int64())])) for number in batch[0].to_pylist()
    )


@pytest.fixture
def table(tmp_path: Path) -> Delta:
    made = Delta(Location(str(tmp_path / "t")))
    made.create(SCHEMA, ["day"], configuration=tending.history(0), positions={})
    return made


def test_a_commit_has_rows_and_positions_together(table: Delta) -> None:
    assert table.position(table.open(), APP) == 0
    assert [land(table, 0), land(table, 10)] == [1, 2]
    assert (numbers(table), table.position(table.open(), APP)) == (list(range(20)), 20)


def test_a_table_can_begin_with_positions(tmp_path: Path) -> None:
    table = Delta(Location(str(tmp_path / "t")))
    table.create(SCHEMA, ["day"], configuration={}, positions={APP: 70})
    assert (table.open().version(), table.position(table.open(), APP)) == (0, 70)
    assert table.mend() == []


def test_a_position_that_is_not_the_expected_one_is_refused_and_nothing_is_committed(table: Delta) -> None:
    land(table, 0)
    with pytest.raises(Overtaken, match="is at 10 for fairway/one, not at 0: another writer fills it"):
        table.commit(table.open(), [put(table, 0)], advances={APP: (0, 10)})
    assert numbers(table) == list(range(10))


def test_of_two_that_make_a_table_the_second_is_refused(table: Delta) -> None:
    with pytest.raises(Overtaken, match="Another writer has made"):
        table.create(SCHEMA, ["day"], configuration={}, positions={})


def test_data_log_and_folders_are_synced_before_a_commit_returns(table: Delta, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    whole = files.sync

    def watched(path: Path | str) -> None:
        synced.append(os.path.relpath(path, table.location.folder))
        whole(path)

    monkeypatch.setattr("fairway.store.locations.sync", watched)
    land(table, 0)
    assert synced == [f"day={DAY}/0-10.parquet", f"day={DAY}", f"_delta_log/{1:020}.json", "_delta_log"]
    synced.clear()
    land(table, 10)
    tending.compact(table)
    (merged,) = (file.path for file, _ in table.files(table.open()))
    assert {merged, *(f"_delta_log/{version:020}.json" for version in (3, 4, 5))} <= set(synced)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def truncated_between_lines(path: Path) -> None:
    path.write_bytes(b"\n".join(path.read_bytes().splitlines()[:2]))


@pytest.mark.parametrize("damage", [emptied, zeroed, truncated, truncated_between_lines])
def test_a_newest_entry_that_a_power_cut_left_is_removed_and_what_it_held_is_committed_again(
    table: Delta, damage: Callable[[Path], None]
) -> None:
    land(table, 0)
    land(table, 10)
    damage(table.log.folder / f"{2:020}.json")
    assert table.mend() == [f"{2:020}.json"]
    assert (numbers(table), table.position(table.open(), APP)) == (list(range(10)), 10)
    assert land(table, 10) == 2
    assert numbers(table) == list(range(20))
    assert table.mend() == []


def test_a_compaction_that_may_not_have_been_synced_is_undone_by_a_commit_of_its_own(table: Delta) -> None:
    for first in (0, 10, 20):
        land(table, first)
    snapshot = table.open()
    snapshot.optimize.compact(post_commithook_properties=delta.by_itself())
    (merged,) = (file.path for file, _ in table.files(table.open()))
    zeroed(table.location.folder / merged)
    assert table.mend() == []
    assert (numbers(table), table.open().version()) == (list(range(30)), 5)
    assert table.mend() == []
    assert (table.open().version(), table.position(table.open(), APP)) == (5, 30)
    assert table.added(3, 5) == [], "whoever asks for new rows gets none of this"
    assert tending.compact(table) == tending.Compacted("t", 3, 1)
    assert table.mend() == []
    assert (numbers(table), len(table.open().file_uris())) == (list(range(30)), 1)


def test_the_entry_of_a_compaction_that_was_truncated_is_removed(table: Delta) -> None:
    for first in (0, 10):
        land(table, first)
    table.open().optimize.compact(post_commithook_properties=delta.by_itself())
    truncated_between_lines(table.log.folder / f"{3:020}.json")
    assert table.mend() == [f"{3:020}.json"]
    assert numbers(table) == list(range(20))


def test_what_another_writer_has_committed_is_kept(table: Delta) -> None:
    """An entry need not have information about its commit, and other writers count what they merge in other words."""
    land(table, 0)
    file = put(table, 10)
    added = {"path": file.path, "size": file.size_bytes, "partitionValues": file.partition, "stats": file.stats}
    entry = table.log.folder / f"{2:020}.json"
    entry.write_text(json.dumps({"add": {**added, "modificationTime": 0, "dataChange": True}}))
    assert table.mend() == []
    assert numbers(table) == list(range(20))
    table.open().optimize.compact(post_commithook_properties=delta.by_itself())
    entry = table.log.folder / f"{3:020}.json"
    said, *others = map(json.loads, entry.read_text().splitlines())
    said["commitInfo"]["operationMetrics"] = {"numAddedFiles": "1", "numRemovedFiles": "2"}
    entry.write_text("\n".join(map(json.dumps, [said, *others])))
    assert table.mend() == []
    assert numbers(table) == list(range(20))


def test_a_checkpoint_has_its_name_when_it_is_whole_and_synced_and_keeps_it(
    table: Delta, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers open one as soon as they see it: one that a start removed again was missed by delta-rs."""
    land(table, 0)
    tending.checkpoint(table)
    seen = table.log.names()
    land(table, 10)
    with monkeypatch.context() as killed:
        killed.setattr(crashpoints, "reached", lambda point: {}[point])
        with pytest.raises(KeyError, match="checkpointed"):
            tending.checkpoint(table)
    assert table.log.names() == [*sorted([*seen, f"{3:020}.json"])]
    assert (table.mend(), set(seen) - set(table.log.names())) == ([], set())
    for _ in range(2):
        tending.checkpoint(table)
        assert numbers(table) == list(range(20))
    assert not (table.location.folder / tending.ASIDE).exists()


def test_a_checkpoint_is_of_its_version_though_another_writer_has_gone_on(table: Delta) -> None:
    land(table, 0)
    land(table, 10)
    assert table.log_since_checkpoint(1) == [f"{version:020}.json" for version in (0, 1)]
    tending._write_checkpoint(table, 1)
    assert numbers(table) == list(range(20))


def test_a_compaction_that_was_synced_is_kept(tmp_path: Path) -> None:
    table = Delta(Location(str(tmp_path / "t")))
    table.create(SCHEMA, ["day"], configuration=tending.history(3_600), positions={})
    for first in (0, 10):
        land(table, first)
    tending.compact(table)
    tending.checkpoint(table)
    table.mend()
    assert (numbers(table), len(table.open().file_uris())) == (list(range(20)), 1)


def test_what_a_killed_writer_left_in_the_log_folder_goes_away(table: Delta) -> None:
    (table.log.folder / "_commit_1a2b.json.tmp").write_bytes(b"half")
    table.mend()
    assert table.log.names() == [f"{0:020}.json"]


def test_a_table_whose_first_entry_is_torn_is_no_table_and_can_be_made_again(tmp_path: Path) -> None:
    table = Delta(Location(str(tmp_path / "t")))
    table.create(SCHEMA, ["day"], configuration={}, positions={})
    truncated(table.log.folder / f"{0:020}.json")
    table.mend()
    assert not table.exists()
    with pytest.raises(NoTable):
        table.open()
    table.create(SCHEMA, ["day"], configuration={}, positions={})
    assert table.exists()


def test_new_rows_since_a_version_pass_over_compactions(table: Delta) -> None:
    land(table, 0)
    seen = land(table, 10)
    land(table, 20)
    table.open().optimize.compact(post_commithook_properties=delta.by_itself())
    land(table, 30)
    new = table.added(seen, table.open().version())
    assert [file.path for file in new] == [f"day={DAY}/20-10.parquet", f"day={DAY}/30-10.parquet"]
    assert [(file.rows, file.partition) for file in new] == [(10, {"day": DAY})] * 2
    assert table.added(table.open().version(), table.open().version()) == []


def test_there_is_no_list_of_new_rows_across_a_commit_that_rewrites_or_beyond_the_log(table: Delta) -> None:
    land(table, 0)
    table.open().delete("number = 3", post_commithook_properties=delta.by_itself())
    with pytest.raises(RowsRewritten, match=r"Version 2 of .* changes or removes rows"):
        table.added(0, table.open().version())
    (table.log.folder / f"{1:020}.json").unlink()
    with pytest.raises(VersionGone, match="does not reach back to version 0"):
        table.added(0, 2)


def test_a_table_that_cannot_be_compacted_is_told_in_a_sentence(table: Delta) -> None:
    land(table, 0)
    land(table, 10)
    (table.location.folder / f"day={DAY}/0-10.parquet").unlink()
    with pytest.raises(
        tending.NotCompacted, match=rf"^{table.location} cannot be compacted: .*/0-10.parquet not found"
    ):
        tending.compact(table)


def test_the_log_and_the_files_stay_few_however_many_commits_there_are(
    table: Delta, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tending, "CHECKPOINT_EVERY", 5)
    monkeypatch.setattr(tending, "COMPACT_EVERY", 20)
    merged = []
    for number in range(100):
        done = tending.tend(table, land(table, 10 * number))
        merged += [done] if done is not None else []
        assert len(os.listdir(table.log.folder)) < 40
        assert sum(1 for _ in table.location.folder.rglob("day=*/*.parquet")) < 40
    assert len(merged) >= 4
    assert (numbers(table), table.position(table.open(), APP)) == (list(range(1_000)), 1_000)


def test_replaced_files_and_the_log_are_kept_as_long_as_the_history_says(tmp_path: Path) -> None:
    table = Delta(Location(str(tmp_path / "t")))
    table.create(SCHEMA, ["day"], configuration=tending.history(7_200), positions={})
    land(table, 0)
    before = land(table, 10)
    assert tending.compact(table) == tending.Compacted("t", 2, 1)
    tending.checkpoint(table)
    assert len(table.open(before).file_uris()) == 2
    assert numbers(table) == list(range(20))
    assert len(table.added(0, table.open().version())) == 2
    assert all((table.location.folder / file.path).exists() for file in table.added(0, before))


@pytest.mark.long
def test_the_ten_thousandth_commit_costs_about_what_the_first_did(table: Delta) -> None:
    """Opening, committing and syncing; with a history of nothing, so that minutes stand for days."""
    took_s = []
    for number in range(10_000):
        file = put(table, number, 1)
        began_s = time.perf_counter()
        version = table.commit(table.open(), [file], advances={APP: (number, number + 1)})
        took_s.append(time.perf_counter() - began_s)
        tending.tend(table, version)
        if number % 50 == 0:
            assert len(os.listdir(table.log.folder)) < 400
            assert len(list(table.location.folder.rglob("*.parquet"))) < 400
    assert median(took_s[-250:]) < 1.5 * median(took_s[:250])
