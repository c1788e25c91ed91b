"""Which typed tables a lake has: a spec that cannot come true leaves nothing behind, and can be mended."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import Field
from deltalake.schema import PrimitiveType
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from fairway.core.errors import BadOption
from fairway.core.tables import MESSAGES
from fairway.lake.landing import tables
from fairway.lake.landing.batch import Filled, Landed, landed
from fairway.lake.landing.stream import Happening, StreamFailed, StreamStumbled, failure_of
from fairway.lake.landing.tables import Begun
from fairway.lake.landing.typed import TypedSpec, parse_specs
from fairway.lake.schemas import arrow_schema
from fairway.lake.sink import write
from fairway.store.delta import by_itself
from fairway.store.lakes import Lake
from tests.lake.landing.fake import FakeGateway
from tests.lake.landing.landing import land
from tests.lake.landing.reading import rows


def batches(happened: list[Happening]) -> list[tuple[int, int]]:
    return [(one.messages, one.rejected) for one in happened if isinstance(one, Landed)]


def test_a_schema_that_cannot_be_written_is_refused_and_not_remembered(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway
) -> None:
    gateway.seal(10)
    with pytest.raises(BadOption, match="the column i cannot have the type INTERVAL"):
        land(spark, tmp_path, schemas=("readings=sensor STRING, i INTERVAL",))
    assert tables.known(Lake(tmp_path)) == ()
    assert batches(land(spark, tmp_path)) == [(10, 0)]


def test_columns_can_be_corrected_while_the_table_has_taken_nothing(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway
) -> None:
    gateway.seal(10)
    assert batches(land(spark, tmp_path, schemas=())) == [(10, 0)]
    assert batches(land(spark, tmp_path, schemas=("readings=senor STRING",))) == []
    assert tables.known(Lake(tmp_path)) == (TypedSpec("readings", "senor STRING"),)
    gateway.seal(5)
    assert batches(land(spark, tmp_path, schemas=("readings=sensor STRING",))) == [(5, 0)]
    assert {row["sensor"] for row in rows(tmp_path, "readings")} == {"one"}
    with pytest.raises(BadOption, match="has the columns 'sensor STRING'"):
        land(spark, tmp_path, schemas=("readings=senor STRING",))


def test_columns_stay_when_the_table_has_only_rejected_messages(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway
) -> None:
    gateway.seal(10)
    assert batches(land(spark, tmp_path, schemas=("readings=sensor INT",))) == [(10, 10)]
    with pytest.raises(BadOption, match="has the columns 'sensor INT'"):
        land(spark, tmp_path, schemas=("readings=sensor STRING",))


def test_two_specs_for_one_table_are_refused(tmp_path: Path) -> None:
    asked = (TypedSpec("readings", "a INT"), TypedSpec("readings", "a STRING"))
    with pytest.raises(BadOption, match="has the columns 'a INT'"):
        tables.together(Lake(tmp_path), asked)


def test_a_table_that_somebody_else_made_is_left_alone(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.delta("readings").create(arrow_schema(MESSAGES), (), configuration={}, positions={})
    with pytest.raises(BadOption, match="The table readings is there, and no stream made it"):
        tables.together(lake, [TypedSpec("readings", "a INT")])


def test_only_what_may_pass_is_tried_again() -> None:
    hopeless = AnalysisException("[UNSUPPORTED] Parquet has no such type.\n\tat y")
    assert type(failure_of(hopeless, None)) is StreamFailed
    assert type(failure_of(None, hopeless)) is StreamFailed
    assert isinstance(failure_of(None, None), StreamStumbled)


def readings(lake: Path) -> list[int]:
    return sorted(row["gateway_offset"] for row in rows(lake, "readings"))


SCHEMA = ("readings=sensor STRING NOT NULL, celsius DOUBLE",)


ROUTES = {
    "gateway=one": range(20),
    "gateway=two": range(0),
    "protocol=mrp": range(1, 20, 4),
    "port=9001": range(1, 20, 2),
    "prefix=%7B%22sensor%22": range(20),
    "prefix=x": range(0),
    "port=9001&protocol=mrp": range(1, 20, 4),
}


def test_a_table_gets_what_its_route_lets_through_and_rejects_nothing_else(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway
) -> None:
    def offsets(number: int) -> list[int]:
        return sorted(row["gateway_offset"] for row in rows(tmp_path, f"t{number}"))

    schemas = tuple(f"t{number}=sensor STRING NOT NULL, celsius DOUBLE" for number in range(len(ROUTES)))
    routes = tuple(f"t{number}={route}" for number, route in enumerate(ROUTES))
    gateway.seal(20)
    assert batches(land(spark, tmp_path, schemas=schemas, routes=routes)) == [(20, 0)]
    assert [offsets(number) for number in range(len(ROUTES))] == list(map(list, ROUTES.values()))
    assert rows(tmp_path, "rejected") == []
    gateway.seal(20)
    assert batches(land(spark, tmp_path)) == [(20, 0)], "the tables remember their routes"
    for number, expected in enumerate(ROUTES.values()):
        assert offsets(number) == [*expected, *(20 + offset for offset in expected)]


def test_of_what_a_route_lets_through_what_does_not_fit_is_rejected_for_that_table(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway
) -> None:
    gateway.seal(20, lambda _, offset: b"{}" if offset % 2 else b'{"sensor": "a"}')
    schemas = ("odd=sensor STRING NOT NULL", "even=sensor STRING NOT NULL")
    routes = ("odd=port=9001", "even=port=9000")
    assert batches(land(spark, tmp_path, schemas=schemas, routes=routes)) == [(20, 10)]
    assert (len(rows(tmp_path, "even")), len(rows(tmp_path, "odd"))) == (10, 0)
    assert {(row["typed_table"], row["gateway_offset"] % 2) for row in rows(tmp_path, "rejected")} == {("odd", 1)}


@pytest.mark.parametrize(
    "text", ["readings", "readings=", "readings=port", "readings=port=x", "readings=port=1&port=2", "readings=host=a"]
)
def test_a_route_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(BadOption, match="is not NAME=CONDITIONS"):
        parse_specs(SCHEMA, [text])


def test_a_route_without_its_table_is_refused() -> None:
    with pytest.raises(BadOption, match="for which there is no --json-schema"):
        parse_specs(SCHEMA, ["other=port=1"])


def test_a_new_table_begins_with_what_lands_from_then_on(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway
) -> None:
    old = gateway.seal(10)
    land(spark, tmp_path)
    old.unlink()
    gateway.seal(10)
    happened = land(spark, tmp_path, schemas=SCHEMA)
    assert Begun("readings") in happened
    assert batches(happened) == [(10, 0)]
    assert readings(tmp_path) == list(range(10, 20))


def test_a_table_of_an_earlier_release_gets_the_new_columns_and_goes_on(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway
) -> None:
    """As if `port` had been added since: a table without it, a segment without it, and a reader in the middle."""
    lake = Lake(tmp_path)
    whole = arrow_schema(MESSAGES)
    earlier = whole.remove(whole.get_field_index("port"))
    lake.delta("messages").create(earlier, MESSAGES.partitions, configuration={}, positions={})
    for _ in range(2):
        path = gateway.seal(10)
        pq.write_table(pq.read_table(path).drop_columns(["port"]), path)
    land(spark, tmp_path)
    before = lake.delta("messages").open()
    assert {row["port"] for row in rows(tmp_path, "messages")} == {None}
    gateway.seal(10)
    land(spark, tmp_path)
    found = {row["gateway_offset"]: row["port"] for row in rows(tmp_path, "messages")}
    assert found == {offset: None if offset < 20 else 9_000 + offset % 2 for offset in range(30)}
    new = spark.read.format("fairway.delta").option("since", before.version()).load(str(lake.table("messages")))
    assert {row["port"] for row in new.toArrow().to_pylist()} == {9_000, 9_001}
    assert len(before.file_uris()) < len(lake.delta("messages").open().file_uris()), "an open reader keeps its version"


def test_a_stream_that_is_open_while_a_table_gets_a_column_goes_on(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway
) -> None:
    gateway.seal(10)
    land(spark, tmp_path)
    lake = Lake(tmp_path)
    messages = Filled(lake.delta("messages"))
    snapshot = lake.delta("messages").open()
    snapshot.alter.add_columns([Field("later", PrimitiveType("string"))], post_commithook_properties=by_itself())
    frame = landed(spark.createDataFrame(gateway.table(10, 19)))
    advances = messages.advances({"one": 20})
    write(frame, messages.table, positions=advances, expected_rows=10)
    assert {row["later"] for row in rows(tmp_path, "messages")} == {None}
    assert len(rows(tmp_path, "messages")) == 20
