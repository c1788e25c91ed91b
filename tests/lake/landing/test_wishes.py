"""Which typed tables a lake has: a wish that cannot come true leaves nothing behind, and can be mended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException

from fairway.core.errors import BadOption
from fairway.lake.landing import typed_values, wishes
from fairway.lake.landing.batch import Landed
from fairway.lake.landing.failures import StreamFailed, StreamStumbled, failure_of
from fairway.lake.landing.stream import Happening, Restarted
from fairway.lake.landing.typed import Wish
from fairway.lake.store import Lake
from tests.lake.landing.fake import FakeGateway
from tests.lake.landing.landing import land

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def batches(happened: list[Happening]) -> list[tuple[int, int]]:
    return [(one.messages, one.rejected) for one in happened if isinstance(one, Landed)]


def test_a_schema_that_cannot_be_written_is_refused_and_not_remembered(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway
) -> None:
    gateway.seal(10)
    with pytest.raises(BadOption, match="the column i cannot have the type INTERVAL"):
        land(spark, tmp_path, schemas=("readings=sensor STRING, i INTERVAL",))
    assert wishes.known(Lake(tmp_path)) == ()
    assert batches(land(spark, tmp_path)) == [(10, 0)]


def test_columns_can_be_corrected_while_the_table_has_taken_nothing(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway
) -> None:
    gateway.seal(10)
    assert batches(land(spark, tmp_path, schemas=())) == [(10, 0)]
    assert batches(land(spark, tmp_path, schemas=("readings=senor STRING",))) == []
    assert wishes.known(Lake(tmp_path)) == (Wish("readings", "senor STRING"),)
    gateway.seal(5)
    assert batches(land(spark, tmp_path, schemas=("readings=sensor STRING",))) == [(5, 0)]
    assert {row["sensor"] for row in pq.read_table(tmp_path / "tables" / "readings").to_pylist()} == {"one"}
    with pytest.raises(BadOption, match="has the columns 'sensor STRING'"):
        land(spark, tmp_path, schemas=("readings=senor STRING",))


def test_columns_stay_when_the_table_has_only_rejected_messages(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway
) -> None:
    gateway.seal(10)
    assert batches(land(spark, tmp_path, schemas=("readings=sensor INT",))) == [(10, 10)]
    with pytest.raises(BadOption, match="has the columns 'sensor INT'"):
        land(spark, tmp_path, schemas=("readings=sensor STRING",))


def test_two_wishes_for_one_table_are_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    asked = (Wish("readings", "a INT"), Wish("readings", "a STRING"))
    for _ in range(2):
        with pytest.raises(BadOption, match="has the columns 'a INT'"):
            wishes.together(lake, asked)
        wishes.remember(lake, asked[:1])


def test_what_spark_can_never_do_ends_the_stream_at_once(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typed_values, "SIMPLE", (*typed_values.SIMPLE, "interval"))
    monkeypatch.setattr("fairway.lake.landing.typed.is_taken", lambda value, kind: value.isNotNull())
    gateway.seal(10)
    happened: list[Happening] = []
    with pytest.raises(StreamFailed, match=r"^Spark stopped the stream: \[.*INTERVAL") as failed:
        land(spark, tmp_path, schemas=("readings=sensor STRING, i INTERVAL",), happened=happened)
    assert type(failed.value) is StreamFailed
    assert [one for one in happened if isinstance(one, Restarted)] == []
    monkeypatch.undo()
    assert batches(land(spark, tmp_path, schemas=("readings=sensor STRING",))) == [(10, 0)]


def test_only_what_may_pass_is_tried_again() -> None:
    hopeless = AnalysisException("[UNSUPPORTED] Parquet has no such type.\n\tat y")
    assert type(failure_of(hopeless, None)) is StreamFailed
    assert type(failure_of(None, hopeless)) is StreamFailed
    assert isinstance(failure_of(None, None), StreamStumbled)
