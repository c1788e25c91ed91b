"""From segments to the table: every row once, whatever happens on the way."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

from fairway.core.errors import FairwayError
from fairway.core.tables import MESSAGES
from fairway.lake import crashpoints
from fairway.lake.landing import compaction
from fairway.lake.landing.batch import Landed, Landing
from fairway.lake.landing.checkpoint import Checkpoint
from fairway.lake.landing.compaction import Compacted
from fairway.lake.landing.failures import StreamFailed, StreamStumbled, failure_of
from fairway.lake.landing.housekeeping import Removed, remove_landed
from fairway.lake.landing.reconcile import reconcile
from fairway.lake.landing.stream import CheckpointLost, Restarted, compact
from fairway.lake.store import Lake, TableBusy
from tests.lake.landing.fake import FakeGateway
from tests.lake.landing.landing import expected, land, messages
from tests.lake.landing.reading import doubles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[FakeGateway]:
    Lake(tmp_path)
    gateway = FakeGateway(tmp_path, "one", days=2)
    yield gateway
    gateway.close()


def files(lake: Path, table: str = "messages") -> list[str]:
    return sorted(
        str(path.relative_to(lake / "tables" / table)) for path in (lake / "tables" / table).rglob("*.parquet")
    )


def checksums(lake: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in (lake / "tables").rglob("*") if path.is_file()}


def test_every_reader_finds_every_message_of_every_gateway_once(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway
) -> None:
    other = FakeGateway(tmp_path, "two")
    for count in (300, 1, 200):
        gateway.seal(count)
        other.seal(count)
    happened = land(spark, tmp_path)
    assert [one.messages for one in happened if isinstance(one, Landed)] == [1002]
    assert messages(tmp_path) == [*expected(gateway, days=2), *expected(other)]
    table = spark.read.parquet(str(tmp_path / "tables" / "messages")).select(*MESSAGES.names)
    assert table.count() == 1002
    assert {field.name: field.dataType.simpleString() for field in table.schema} == {
        **{column.name: column.type.replace("long", "bigint") for column in MESSAGES.columns}
    }
    assert all(name.endswith(".parquet") for name in checksums(tmp_path))
    other.close()


def test_a_second_pass_lands_what_is_new_and_touches_nothing_else(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "SMALL_BYTES", 0)
    gateway.seal(100)
    land(spark, tmp_path)
    before = checksums(tmp_path)
    assert land(spark, tmp_path) == []
    assert checksums(tmp_path) == before
    gateway.seal(50)
    assert [one.messages for one in land(spark, tmp_path) if isinstance(one, Landed)] == [50]
    assert {name: checksums(tmp_path)[name] for name in before} == before
    assert messages(tmp_path) == expected(gateway, days=2)


class Died(RuntimeError):
    """Stands for the end of the process in a test that goes on in the same one."""


def die() -> None:
    raise Died


PLACES = (
    "after-staging:1",
    "between-renames:3",
    "published-not-checkpointed:1",
    "compaction-staged:1",
    "exchanged-not-removed:2",
    "between-removals:2",
    "between-renames:1",
    "compaction-staged:3",
)


def test_dying_at_every_named_place_in_turn_loses_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {place.partition(":")[0] for place in PLACES} == set(crashpoints.PLACES)
    gateway.seal(40)
    land(spark, tmp_path)
    held = expected(gateway, days=2)
    for place in PLACES:
        gateway.seal(20)
        gateway.seal(10)
        with monkeypatch.context() as patch:
            patch.setenv(crashpoints.VARIABLE, place)
            patch.setattr(crashpoints, "die", die)
            crashpoints._passed.clear()
            with pytest.raises((FairwayError, Died)):
                land(spark, tmp_path, keep_s=-3600)
        after = messages(tmp_path)
        assert not doubles(after), place
        assert set(held) <= set(after) <= set(expected(gateway, days=2)), place
        (account,) = reconcile(Lake(tmp_path))
        assert (account.balanced, account.in_tables) == (True, len(after)), place
        held = after
    land(spark, tmp_path)
    assert messages(tmp_path) == expected(gateway, days=2)
    assert [path for path in (tmp_path / "staging").rglob("*") if path.is_file()] == []


def test_a_replayed_batch_that_was_compacted_already_is_not_landed_again(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway
) -> None:
    for _ in range(2):
        gateway.seal(40)
        land(spark, tmp_path)
    assert all("to" in name for name in files(tmp_path))
    before = files(tmp_path)
    commits = tmp_path / "checkpoints" / "messages" / "commits"
    (commits / "1").unlink()  # as a power cut may, where the disk lies about syncing
    (commits / ".1.crc").unlink()
    assert [one.batch for one in land(spark, tmp_path) if isinstance(one, Landed)] == [1]
    assert files(tmp_path) == before
    assert messages(tmp_path) == expected(gateway, days=2)


def test_notes_that_a_power_cut_left_empty_are_written_anew(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway
) -> None:
    checkpoint = tmp_path / "checkpoints" / "messages"
    checkpoint.mkdir(parents=True)
    (checkpoint / "metadata").touch()
    for _ in range(2):
        gateway.seal(40)
        land(spark, tmp_path)
    for note in ("commits/1", "commits/.1.crc", "offsets/2", "offsets/.2.crc"):
        (checkpoint / note).write_bytes(b"")
    gateway.seal(40)
    assert [one.batch for one in land(spark, tmp_path) if isinstance(one, Landed)] == [1, 2]
    assert messages(tmp_path) == expected(gateway, days=2)


def test_a_filled_table_without_its_checkpoint_is_refused(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway
) -> None:
    gateway.seal(10)
    land(spark, tmp_path)
    checkpoint = tmp_path / "checkpoints" / "messages"
    shutil.move(checkpoint, tmp_path / "checkpoints" / "away")
    with pytest.raises(CheckpointLost, match="is filled, but its checkpoint"):
        land(spark, tmp_path)
    table = tmp_path / "tables" / "messages"
    shutil.move(table, tmp_path / "tables" / "away")
    land(spark, tmp_path)
    shutil.rmtree(table)
    shutil.move(tmp_path / "tables" / "away", table)
    with pytest.raises(CheckpointLost, match="was not filled with the checkpoint"):
        land(spark, tmp_path)


def test_two_streams_and_a_compaction_beside_a_stream_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with lake.lock("messages", "fairway stream"):
        with pytest.raises(TableBusy, match="fairway stream"):
            land(spark, tmp_path)
        with pytest.raises(TableBusy, match="fairway stream"):
            compact(lake, lambda done: None)


def test_the_java_process_holds_the_lock_too(spark: SparkSession, tmp_path: Path) -> None:
    with Lake(tmp_path).lock("messages", "fairway stream") as lock:
        lock.share_with_jvm(spark)
        with open(lock.orphans, "ab") as file, pytest.raises(BlockingIOError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with open(lock.orphans, "ab") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_what_spark_says_becomes_one_sentence() -> None:
    wrapped = PySparkException("x\nfairway.lake.landing.segments.DamagedLanding: Offsets 1 to 2 are missing.\n\tat y")
    assert str(failure_of(None, wrapped)) == "Offsets 1 to 2 are missing."
    full = PySparkException("java.io.IOException: No space left on device\n\tat y")
    assert str(failure_of(full, None)).startswith("A disk is full")
    other = failure_of(None, PySparkException("\n[SOME_CLASS] went wrong\n\tat y"))
    assert str(other) == "Spark stopped the stream: [SOME_CLASS] went wrong"
    kinds = [type(failure_of(None, wrapped)), type(failure_of(full, None)), type(other)]
    assert kinds == [StreamFailed, StreamFailed, StreamStumbled]


def test_a_query_that_spark_stumbles_over_is_started_again_but_not_for_ever(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.seal(10)
    stumbles = [PySparkException("Python worker failed to connect back.")] * 2
    whole = Landing._land

    def stumbling(self: Landing, frame: DataFrame, batch: int) -> Landed:
        if stumbles:
            raise stumbles.pop()
        return whole(self, frame, batch)

    monkeypatch.setattr(Landing, "_land", stumbling)
    monkeypatch.setattr("fairway.lake.landing.stream.RESTARTS_MAX", 1)
    with pytest.raises(StreamStumbled, match="Python worker failed to connect back"):
        land(spark, tmp_path)
    stumbles = [PySparkException("Python worker failed to connect back.")]
    assert [type(one) for one in land(spark, tmp_path)] == [Restarted, Landed]
    assert messages(tmp_path) == expected(gateway, days=2)


def test_a_gap_stops_the_stream_with_a_sentence_that_names_it(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway
) -> None:
    gateway.seal(10)
    gateway.seal(10).unlink()
    gateway.seal(10)
    with pytest.raises(FairwayError, match=r"^Offsets 10 to 19 of gateway one are missing in .*landing/one: put"):
        land(spark, tmp_path)


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


def test_segments_of_a_gateway_that_began_anew_are_refused_and_not_removed(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway
) -> None:
    landed = gateway.seal(10)
    land(spark, tmp_path)
    landed.unlink()
    gateway.next = 0
    again = gateway.folder / landed.name.replace("09.parquet", "04.parquet")
    pq.write_table(gateway.table(0, 4), again)
    os.utime(again, (0, 0))
    with pytest.raises(FairwayError, match="holds offsets that were given before"):
        land(spark, tmp_path)
    with pytest.raises(FairwayError, match="holds offsets that were given before"):
        remove_landed(Lake(tmp_path), Checkpoint(tmp_path / "checkpoints" / "messages"), 0.0, time.time())
    assert again.exists()


def test_closed_days_are_compacted_by_the_stream_and_growing_ones_are_not(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "is_closed", lambda folder, now: "day=2026-03-01" in str(folder))
    monkeypatch.setattr("fairway.lake.landing.housekeeping.is_closed", compaction.is_closed)
    happened = []
    for _ in range(3):
        gateway.seal(40)
        happened += land(spark, tmp_path)
    done = [one for one in happened if isinstance(one, Compacted)]
    assert {one.folder.parts[-2] for one in done} == {"day=2026-03-01"}
    assert len([name for name in files(tmp_path) if "day=2026-03-01" in name]) == 2
    assert len([name for name in files(tmp_path) if "day=2026-03-02" in name]) == 6
    assert messages(tmp_path) == expected(gateway, days=2)
    compact(Lake(tmp_path), happened.append)
    assert len(files(tmp_path)) == 4
    assert messages(tmp_path) == expected(gateway, days=2)
    gateway.seal(40)
    land(spark, tmp_path)
    assert messages(tmp_path) == expected(gateway, days=2)
