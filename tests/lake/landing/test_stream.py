"""From segments to the table: every row once, whatever happens on the way."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from fairway.core.errors import FairwayError
from fairway.core.tables import MESSAGES
from fairway.lake import register
from fairway.lake.landing.batch import Landed, Landing
from fairway.lake.landing.reconcile import reconcile
from fairway.lake.landing.stream import Repaired, Restarted, StreamFailed, StreamStumbled, failure_of
from fairway.lake.landing.tables import Removed, compact
from fairway.store import crashpoints, tending
from fairway.store.delta import Delta, Overtaken
from fairway.store.lakes import Lake, TableBusy
from fairway.store.tending import Compacted
from tests.lake.landing.fake import FakeGateway
from tests.lake.landing.landing import expected, land, messages
from tests.lake.landing.reading import doubles, rows, with_spark

TYPED = ("readings=sensor STRING, celsius DOUBLE",)


def files(lake: Path, table: str = "messages") -> list[str]:
    return sorted(Lake(lake).delta(table).open().file_uris())


def test_every_reader_finds_every_message_of_every_gateway_once_and_a_second_pass_lands_only_what_is_new(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway
) -> None:
    (tmp_path / "staging" / "stream-killed" / "offsets").mkdir(parents=True)
    other = FakeGateway(tmp_path, "two")
    for count in (300, 1, 200):
        gateway.seal(count)
        other.seal(count)
    happened = land(spark, tmp_path)
    assert [one.messages for one in happened if isinstance(one, Landed)] == [1002]
    assert os.listdir(tmp_path / "staging") == [], "nothing of a checkpoint stays"
    assert messages(tmp_path) == [*expected(gateway, days=2), *expected(other)]
    assert with_spark(spark)(tmp_path / "tables" / "messages") == messages(tmp_path)
    table = spark.read.format("fairway.delta").load(str(tmp_path / "tables" / "messages"))
    assert {field.name: (field.dataType.simpleString(), field.nullable) for field in table.schema} == {
        column.name: (column.type.replace("long", "bigint"), column.nullable) for column in MESSAGES.columns
    }
    before = files(tmp_path)
    assert land(spark, tmp_path) == []
    assert files(tmp_path) == before
    gateway.seal(50)
    assert [one.messages for one in land(spark, tmp_path) if isinstance(one, Landed)] == [50]
    assert set(before) < set(files(tmp_path))
    assert messages(tmp_path) == [*expected(gateway, days=2), *expected(other)]
    other.close()


class Died(RuntimeError):
    """Stands for the end of the process in a test that goes on in the same one."""


def die() -> None:
    raise Died


def doomed(patch: pytest.MonkeyPatch, at: str) -> None:
    """Have this process end at a point, as far as a test can."""
    patch.setattr(crashpoints, "_plan", crashpoints.planned(at))
    patch.setattr(crashpoints, "_passes", {})
    patch.setattr(crashpoints, "die", die)


def bodies(_: str, offset: int) -> bytes:
    """Return a body of which every fifth does not fit."""
    return b'{"celsius": "hot"}' if offset % 5 == 0 else f'{{"sensor": "a", "celsius": {offset}}}'.encode()


def check_tables(lake: Path, count: int) -> None:
    """See that all three tables hold what belongs there, once."""
    fitting = sorted(row["gateway_offset"] for row in rows(lake, "readings"))
    rejected = sorted(row["gateway_offset"] for row in rows(lake, "rejected"))
    assert sorted(row["gateway_offset"] for row in rows(lake, "messages")) == list(range(count))
    assert fitting == [offset for offset in range(count) if offset % 5]
    assert rejected == list(range(0, count, 5))


POINTS = [f"{point}:{number}" for point in ("files-written", "table-committed", "table-synced") for number in (1, 2, 3)]
"""Before, in and after the commit of each of three tables: messages, rejected, readings."""
FEW_POINTS = ["table-committed:1", "files-written:2", "table-synced:3"]


@pytest.mark.parametrize("points", [FEW_POINTS, pytest.param(POINTS, marks=pytest.mark.long)], ids=["few", "all"])
def test_dying_between_any_two_commits_of_a_batch_loses_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, points: list[str]
) -> None:
    """There is no checkpoint to delete: every start begins without one. The batch that died comes back larger."""
    gateway.seal(20, bodies)
    land(spark, tmp_path, schemas=TYPED)
    for number, point in enumerate(points):
        gateway.seal(20, bodies)
        with monkeypatch.context() as patch:
            doomed(patch, point)
            with pytest.raises((FairwayError, Died)):
                land(spark, tmp_path)
        gateway.seal(10, bodies)
        land(spark, tmp_path)
        check_tables(tmp_path, 20 + 30 * (number + 1))
    assert land(spark, tmp_path) == []


def test_dying_while_landed_segments_are_removed_harms_nothing(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        gateway.seal(10)
    with monkeypatch.context() as patch:
        doomed(patch, "segment-removed:2")
        with pytest.raises(Died):
            land(spark, tmp_path, keep_s=-3_600)
    (account,) = reconcile(Lake(tmp_path))
    assert (account.balanced, account.in_tables) == (True, 40)
    gateway.seal(10)
    land(spark, tmp_path)
    assert messages(tmp_path) == expected(gateway, days=2)


@pytest.mark.parametrize("point", ["compacted", pytest.param("checkpointed", marks=pytest.mark.long)])
def test_dying_in_a_compaction_harms_nothing(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setattr(tending, "COMPACT_EVERY", 2)
    for number in range(3):
        gateway.seal(20)
        with monkeypatch.context() as patch:
            if number == 1:
                doomed(patch, point)
                with pytest.raises((FairwayError, Died)):
                    land(spark, tmp_path)
            else:
                land(spark, tmp_path)
    land(spark, tmp_path)
    assert messages(tmp_path) == expected(gateway, days=2)


def test_a_version_that_a_power_cut_takes_back_is_given_again_so_who_continues_goes_by_offsets(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway
) -> None:
    """A reader had seen version 2 with 20 messages; after the cut it has 30, and `since` leaves out the ten more."""
    register(spark)
    table = Lake(tmp_path).delta("messages")
    for _ in range(2):
        gateway.seal(10)
        land(spark, tmp_path)
    assert table.open().version() == 2
    entry = table.log.folder / f"{2:020}.json"
    entry.write_bytes(b'{"commitInfo":{"timesta')
    gateway.seal(10)
    happened = land(spark, tmp_path)
    assert Repaired("messages", entry.name) in happened
    assert [one.messages for one in happened if isinstance(one, Landed)] == [20]
    assert messages(tmp_path) == expected(gateway, days=2)
    new, above = (spark.read.format("fairway.delta") for _ in range(2))
    assert new.option("since", 2).load(table.location.uri).count() == 0
    rows = above.option("where", '[["gateway_offset", ">=", 20]]').load(table.location.uri).collect()
    assert sorted(row.gateway_offset for row in rows) == list(range(20, 30))


def test_two_streams_and_a_compaction_beside_a_stream_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with lake.lock("messages", "fairway stream"):
        with pytest.raises(TableBusy, match=r"^fairway stream \(process \d+\) writes to the table messages: stop it"):
            land(spark, tmp_path)
        with pytest.raises(TableBusy, match="fairway stream"):
            compact(lake, lambda done: None)


def test_while_a_compaction_runs_neither_another_nor_a_stream_begins(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two would double rows: delta-rs lets both succeed."""
    lake = Lake(tmp_path)
    for _ in range(2):
        gateway.seal(10)
        land(spark, tmp_path)
    whole, refused = tending.compact, []

    def beside_another(table: Delta) -> tending.Compacted | None:
        for begin in (lambda: compact(lake, lambda done: None), lambda: land(spark, tmp_path)):
            with pytest.raises(TableBusy, match="fairway compact"):
                begin()
            refused.append(table)
        return whole(table)

    monkeypatch.setattr(tending, "compact", beside_another)
    compact(lake, lambda done: None)
    assert len(refused) == 4
    assert messages(tmp_path) == expected(gateway, days=2)


def test_a_second_stream_that_no_lock_keeps_out_ends_with_a_sentence_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on an object store, where there are no locks: the other stream commits while this one's batch is written."""
    gateway.seal(20)
    land(spark, tmp_path)
    gateway.seal(20)
    whole = Landing._fill

    def overtaken(self: Landing, frame: DataFrame, ends: dict[str, int]) -> object:
        monkeypatch.setattr(Landing, "_fill", whole)
        other = Lake(tmp_path).delta("messages")
        other.commit(other.open(), [], advances={"fairway/one": (20, 40)})
        return whole(self, frame, ends)

    monkeypatch.setattr(Landing, "_fill", overtaken)
    with pytest.raises(Overtaken, match=r"is at 40 for fairway/one, not at 20: another writer fills it\.$"):
        land(spark, tmp_path)
    assert messages(tmp_path) == expected(gateway, days=2, end=20)


def test_what_spark_says_becomes_one_sentence() -> None:
    wrapped = PySparkException("x\nfairway.lake.landing.segments.DamagedLanding: Offsets 1 to 2 are missing.\n\tat y")
    assert str(failure_of(None, wrapped)) == "Offsets 1 to 2 are missing."
    full = PySparkException("java.io.IOException: No space left on device\n\tat y")
    assert str(failure_of(full, None)).startswith("A disk is full")
    other = failure_of(None, PySparkException("\n[SOME_CLASS] went wrong\n\tat y"))
    assert str(other) == "Spark stopped the stream: [SOME_CLASS] went wrong"
    kinds = [type(failure_of(None, wrapped)), type(failure_of(full, None)), type(other)]
    assert kinds == [StreamFailed, StreamFailed, StreamStumbled]
    unreachable = (
        "[X] perform latestOffset: Traceback (most recent call last):\n  File x\nOSError: nobody answers\n\tat y"
    )
    assert str(failure_of(None, PySparkException(unreachable))) == "Spark stopped the stream: nobody answers"


def test_a_query_that_spark_stumbles_over_is_started_again_but_not_for_ever(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.seal(10)
    stumbles = [PySparkException("Python worker failed to connect back.")] * 2
    whole = Landing._land

    def stumbling(self: Landing, frame: DataFrame, batch: int) -> None:
        if stumbles:
            raise stumbles.pop()
        whole(self, frame, batch)

    monkeypatch.setattr(Landing, "_land", stumbling)
    monkeypatch.setattr("fairway.lake.landing.stream.RESTARTS_MAX", 1)
    with pytest.raises(StreamStumbled, match="Python worker failed to connect back"):
        land(spark, tmp_path)
    stumbles = [PySparkException("Python worker failed to connect back.")]
    assert [type(one) for one in land(spark, tmp_path)] == [Restarted, Landed]
    assert messages(tmp_path) == expected(gateway, days=2)


def test_a_damaged_segment_stops_the_stream_and_nothing_of_its_batch_is_seen(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway
) -> None:
    gateway.seal(10)
    path = gateway.seal(10)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FairwayError, match=rf"^{path} cannot be read .*: put it back from a copy\.$"):
        land(spark, tmp_path)
    assert files(tmp_path) == []
    assert with_spark(spark)(tmp_path / "tables" / "messages") == []
    path.write_bytes(whole)
    land(spark, tmp_path)
    assert messages(tmp_path) == expected(gateway, days=2)


def test_a_segment_under_a_wrong_name_stops_the_stream(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway
) -> None:
    first, second = gateway.seal(10), gateway.seal(10)
    shutil.copy(first, second)
    with pytest.raises(FairwayError, match="holds other messages than its name says, from offset 10 on"):
        land(spark, tmp_path)


def test_segments_are_removed_when_they_have_landed_and_are_old_enough(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway
) -> None:
    old, young = gateway.seal(10), gateway.seal(10)
    os.utime(old, (0, 0))
    happened = land(spark, tmp_path)
    assert Removed(1) in happened
    assert (old.exists(), young.exists()) == (False, True)
    unlanded = gateway.seal(10)
    os.utime(young, (0, 0))
    os.utime(unlanded, (0, 0))
    land(spark, tmp_path)
    assert messages(tmp_path) == expected(gateway, days=2)
    assert list(gateway.folder.iterdir()) == [unlanded], "the newest stays, however old"


def test_the_open_day_is_compacted_by_the_stream_every_so_many_commits(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tending, "COMPACT_EVERY", 3)
    happened = []
    for _ in range(3):
        gateway.seal(40)
        happened += land(spark, tmp_path)
    assert [one for one in happened if isinstance(one, Compacted)] == [Compacted("messages", 12, 4)]
    assert len(files(tmp_path)) == 4
    assert messages(tmp_path) == with_spark(spark)(tmp_path / "tables" / "messages") == expected(gateway, days=2)
    monkeypatch.undo()
    gateway.seal(40)
    land(spark, tmp_path)
    assert len(files(tmp_path)) == 8, "the compaction was kept by the start after it"
    compact(Lake(tmp_path), happened.append)
    assert happened[-1] == Compacted("messages", 8, 4)
    assert messages(tmp_path) == expected(gateway, days=2)
    assert not doubles(messages(tmp_path))


def test_a_lost_table_is_a_gap_that_is_told_and_segments_that_are_still_there_land_again(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway
) -> None:
    first = gateway.seal(10)
    gateway.seal(10)
    land(spark, tmp_path)
    shutil.rmtree(tmp_path / "tables" / "messages")
    land(spark, tmp_path)
    assert messages(tmp_path) == expected(gateway, days=2)
    shutil.rmtree(tmp_path / "tables" / "messages")
    first.unlink()
    with pytest.raises(FairwayError, match=r"^Offsets 0 to 9 of gateway one are missing"):
        land(spark, tmp_path)
