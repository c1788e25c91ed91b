"""Bodies as columns: what fits, what does not and why, and that every message is in one of the two."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from fairway.core.errors import BadOption
from fairway.core.tables import REJECTED
from fairway.lake.landing import typed
from fairway.lake.landing.batch import Landed, landed
from fairway.lake.landing.typed import Wish, parse_wish
from fairway.lake.store import Lake
from tests.lake.landing.fake import FakeGateway
from tests.lake.landing.landing import land

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "sensor STRING NOT NULL, celsius DOUBLE, count INT, at TIMESTAMP, tags ARRAY<STRING>"
WISH = f"readings={COLUMNS}"
AT = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)

FITTING: dict[bytes, tuple[Any, ...]] = {
    b'{"sensor": "a", "celsius": 1.5, "count": 3, "at": "2026-03-01T12:30:00Z", "tags": ["x"]}': (
        "a",
        1.5,
        3,
        AT,
        ["x"],
    ),
    b'{"sensor": "b"}': ("b", None, None, None, None),
    b' {"sensor": "\xc3\xa4", "celsius": null, "more": {"deep": []}} ': ("ä", None, None, None, None),
    b'{"sensor": "c", "celsius": 20}': ("c", 20.0, None, None, None),
}
UNFIT = {
    b"": "the body is not JSON",
    b"hello": "the body is not JSON",
    b'{"sensor": "a"': "the body is not JSON",
    b'{"sensor": "a"} {"sensor": "b"}': "the body is not JSON",
    b'{"sensor": "a"}, {"sensor": "b"}': "the body is not JSON",
    b'{"sensor": "a"}], [{"sensor": "b"}': "the body is not JSON",
    b'{"sensor": "a"}, "value": {"sensor": "b"}': "the body is not JSON",
    b'{"sensor": "a"}} {': "the body is not JSON",
    b'{"sensor": "a"}]': "the body is not JSON",
    b'{"sensor": "a", "sensor": "b"}': "the body is not JSON",
    b'\xff{"sensor": "a"}': "the body is not UTF-8",
    b"17": "the body is not a JSON object",
    b"null": "the body is not a JSON object",
    b'[{"sensor": "a"}]': "the body is not a JSON object",
    b"{}": "sensor is missing",
    b'{"sensor": null, "celsius": 1}': "sensor is missing",
    b'{"sensor": "a", "celsius": "warm"}': "celsius is not of type DOUBLE",
    b'{"sensor": "a", "count": 1.5}': "count is not of type INT",
    b'{"sensor": "a", "count": 3000000000}': "count is not of type INT",
    b'{"sensor": "a", "at": "yesterday"}': "at is not of type TIMESTAMP",
    b'{"sensor": "a", "tags": 5}': "tags is not of type ARRAY<STRING>",
}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[FakeGateway]:
    Lake(tmp_path)
    gateway = FakeGateway(tmp_path, "one")
    yield gateway
    gateway.close()


def test_every_body_is_a_row_or_is_rejected_with_its_reason(spark: SparkSession, gateway: FakeGateway) -> None:
    bodies = [*FITTING, *UNFIT]
    segment = gateway.table(0, len(bodies) - 1, lambda _, offset: bodies[offset])
    schema = typed.declared(parse_wish(WISH))
    judgements = typed.judged(landed(spark.createDataFrame(segment)), schema)
    fitting = typed.fitting(judgements, schema).toArrow().to_pylist()
    assert {bodies[row["offset"]]: tuple(row[name] for name in schema.names) for row in fitting} == FITTING
    assert list(fitting[0]) == ["gateway", "offset", "received", *schema.names, "day"]
    refused = typed.rejected(judgements, "readings")
    assert refused.columns == list(REJECTED.names)
    assert {row["body"]: row["reason"] for row in refused.toArrow().to_pylist()} == UNFIT


def test_typed_tables_and_rejected_ones_are_filled_with_the_messages_and_remembered(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway
) -> None:
    def body(_: str, offset: int) -> bytes:
        return json.dumps({"sensor": "a", "celsius": "hot" if offset % 5 == 0 else offset}).encode()

    gateway.seal(50, body)
    first = land(spark, tmp_path, schemas=("readings=sensor STRING, celsius DOUBLE",))
    gateway.seal(20, body)
    second = land(spark, tmp_path)
    assert [(one.messages, one.rejected) for one in (*first, *second) if isinstance(one, Landed)] == [(50, 10), (20, 4)]
    readings = pq.read_table(tmp_path / "tables" / "readings").to_pylist()
    assert sorted(row["offset"] for row in readings) == [offset for offset in range(70) if offset % 5]
    assert all(row["celsius"] == row["offset"] for row in readings)
    rejected = pq.read_table(tmp_path / "tables" / "rejected").to_pylist()
    assert sorted(row["offset"] for row in rejected) == list(range(0, 70, 5))
    assert {(row["table"], row["reason"]) for row in rejected} == {("readings", "celsius is not of type DOUBLE")}
    with pytest.raises(BadOption, match="has the columns 'sensor STRING, celsius DOUBLE'"):
        land(spark, tmp_path, schemas=("readings=sensor STRING",))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("readings", "is not NAME=COLUMNS"),
        ("readings=", "is not NAME=COLUMNS"),
        ("re/ad=a STRING", "is not NAME=COLUMNS"),
        ("messages=a STRING", "which Fairway fills itself"),
        ("packets=a STRING", "which Fairway fills itself"),
    ],
)
def test_a_schema_that_cannot_be_meant_is_refused_before_spark_starts(text: str, complaint: str) -> None:
    with pytest.raises(BadOption, match=complaint):
        parse_wish(text)


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ("a STRIN", "Spark cannot read 'a STRIN'"),
        ("a STRING, A INT", "cannot be called 'A'"),
        ("offset INT", "cannot be called 'offset'"),
        ("`a b` INT", "cannot be called 'a b'"),
    ],
)
def test_columns_that_cannot_be_are_refused_in_a_sentence(spark: SparkSession, columns: str, complaint: str) -> None:
    assert spark.version
    with pytest.raises(BadOption, match=complaint):
        typed.declared(Wish("readings", columns))
