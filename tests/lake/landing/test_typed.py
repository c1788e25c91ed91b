"""Bodies as columns: what fits, what does not and why, and that every message is in one of the two."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars
import pytest
from pyspark.sql import SparkSession

from fairway.core.errors import BadOption
from fairway.core.tables import REJECTED
from fairway.lake import register
from fairway.lake.landing import typed
from fairway.lake.landing.batch import Landed, landed
from fairway.lake.landing.typed import UNREADABLE, TypedSpec, parse_spec
from tests.lake.landing.fake import FakeGateway
from tests.lake.landing.landing import land
from tests.lake.landing.reading import rows
from tests.torture.readers import duckdb_with_delta

COLUMNS = "sensor STRING NOT NULL, celsius DOUBLE, count INT, at TIMESTAMP, tags ARRAY<STRING>"
SPEC = f"readings={COLUMNS}"
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
    b"": UNREADABLE,
    b"hello": UNREADABLE,
    b'{"sensor": "a"': UNREADABLE,
    b'{"sensor": "a"} {"sensor": "b"}': UNREADABLE,
    b'{"sensor": "a"}, {"sensor": "b"}': UNREADABLE,
    b'{"sensor": "a"}], [{"sensor": "b"}': UNREADABLE,
    b'{"sensor": "a"}, "value": {"sensor": "b"}': UNREADABLE,
    b'{"sensor": "a"}} {': UNREADABLE,
    b'{"sensor": "a"}]': UNREADABLE,
    b'{"sensor": "a", "sensor": "b"}': UNREADABLE,
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


def test_every_body_is_a_row_or_is_rejected_with_its_reason(spark: SparkSession, gateway: FakeGateway) -> None:
    bodies = [*FITTING, *UNFIT]
    segment = gateway.table(0, len(bodies) - 1, lambda _, offset: bodies[offset])
    schema = typed.declared(parse_spec(SPEC))
    judgements = typed.judged(landed(spark.createDataFrame(segment)), schema)
    fitting = typed.fitting(judgements, schema).toArrow().to_pylist()
    assert {bodies[row["gateway_offset"]]: tuple(row[name] for name in schema.names) for row in fitting} == FITTING
    assert list(fitting[0]) == ["gateway", "gateway_offset", "received", *schema.names, "day"]
    refused = typed.rejected(judgements, "readings")
    assert refused.columns == list(REJECTED.names)
    assert {row["body"]: row["reason"] for row in refused.toArrow().to_pylist()} == UNFIT


VALUES: dict[str, dict[str, Any]] = {
    "STRING": {'"NaN"': "NaN", '"\\u0000 \\n"': "\0 \n", "5": None, "true": None, '{"a": 1}': None, '["a"]': None},
    "BOOLEAN": {"true": True, '"true"': None, "1": None},
    "TINYINT": {"-128": -128, "128": None, '"1"': None},
    "BIGINT": {"9223372036854775807": 2**63 - 1, "9223372036854775808": None, "1.0": None, "1e3": None},
    "DOUBLE": {"20": 20.0, "0.1": 0.1, "1e3": 1000.0, "0e0": 0.0, "1e999": None, "-1e999": None, '"NaN"': None}
    | {'"1.5"': None, "true": None, "1" * 400: None},
    "FLOAT": {"1.5": 1.5, "1e39": None, '"Infinity"': None},
    "DECIMAL(5,2)": {"1.23": Decimal("1.23"), "1.2300": Decimal("1.23"), "-999.99": Decimal("-999.99"), "7": Decimal(7)}
    | {"1.239": None, "1000": None, "1e1": None, '"1.23"': None, "1." + "0" * 40 + "1": None, "true": None},
    "DECIMAL(12,10)": {"0.0000000001": Decimal("0.0000000001"), "0.00000000001": None},
    "DECIMAL(3,0)": {"999": Decimal(999), "1.0": Decimal(1), "1.5": None},
    "DATE": {'"2026-03-01"': date(2026, 3, 1), '"0001-01-01"': date(1, 1, 1), '"2026-03-01T12:30:00Z"': None}
    | {'"2026-03"': None, '"2026-02-30"': None, '"99999-01-01"': None, '"0000-01-01"': None, "5": None},
    "TIMESTAMP": {'"2026-03-01T13:30:00.000000000+01:00"': AT, '"2026-03-01 12:30"': AT, '"2026-03-01T12:30:00Z"': AT}
    | {'"9999-12-31T23:59:59.999999Z"': datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)}
    | {'"12:30"': None, '"T12:30:00"': None, '"2026"': None, '"2026-03-01"': None, '"99999-01-01T00:00:00Z"': None}
    | {'"9999-12-31T23:59:59-01:00"': None, '"0001-01-01T00:00:00+01:00"': None, '"0000-01-01T00:00:00Z"': None}
    | {'"2026-03-01T12:30:00.1234567Z"': None, '"2026-02-30T00:00:00Z"': None, "1772368200": None}
    | {'"2026-03-01T12:30:00Z\\n"': None, '"2026-03-01T12:30:00 Europe/Berlin"': None},
    "TIMESTAMP_NTZ": {
        '"2026-03-01T12:30:00"': AT.replace(tzinfo=None),
        '"2026-03-01T12:30:00Z"': None,
        '"12:30"': None,
    },
    "BINARY": {'"aGk="': b"hi", '""': b"", '"aGl="': None, '"hi!"': None, "5": None},
    "ARRAY<DOUBLE>": {"[1, null, 2.5]": [1.0, None, 2.5], "[]": [], "[1e999]": None, '["NaN"]': None, "{}": None},
    "MAP<STRING,ARRAY<INT>>": {'{"a": [1], "b": null}': [("a", [1]), ("b", None)], '{"a": ["1"]}': None, "[]": None},
    "STRUCT<x:DECIMAL(3,1) NOT NULL,s:ARRAY<STRUCT<t:STRING>>>": {
        '{"x": 1.5, "s": [{"t": "a"}, {}, null], "more": 5}': {
            "x": Decimal("1.5"),
            "s": [{"t": "a"}, {"t": None}, None],
        },
        '{"x": 1.55}': None,
        '{"x": 1.5, "s": [{"t": 5}]}': None,
        '{"s": []}': None,
        '"x"': None,
    },
}
"""What becomes of JSON values, by type; None where the body is rejected."""

EDGES = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "BINARY", "DECIMAL(12,10)", "MAP<STRING,ARRAY<INT>>")


def test_a_value_is_taken_unchanged_or_rejected(spark: SparkSession, gateway: FakeGateway) -> None:
    names = {f"c{number}": kind for number, kind in enumerate(VALUES)}
    cases = [(name, text, value) for name, kind in names.items() for text, value in VALUES[kind].items()]
    bodies = [f'{{"{name}": {text}}}'.encode() for name, text, _ in cases]
    schema = typed.declared(TypedSpec("readings", ", ".join(f"{name} {kind}" for name, kind in names.items())))
    segment = gateway.table(0, len(bodies) - 1, lambda _, offset: bodies[offset])
    judgements = typed.judged(landed(spark.createDataFrame(segment)), schema)
    fitting = {row["gateway_offset"]: row for row in typed.fitting(judgements, schema).toArrow().to_pylist()}
    refused = typed.rejected(judgements, "readings").toArrow().to_pylist()
    rejected = {row["gateway_offset"]: row["reason"] for row in refused}
    for offset, (name, text, value) in enumerate(cases):
        if value is not None:
            assert fitting[offset][name] == value, (names[name], text)
        else:
            assert rejected[offset].startswith(f"{name} is not of type "), (names[name], text)
    assert len(fitting) + len(rejected) == len(cases)


BEYOND_THE_PARSER = {
    "nested too deep": b'{"a": ' + b"[" * 1_001 + b"]" * 1_001 + b"}",
    "a key too long": b'{"' + b"k" * 50_001 + b'": 1}',
    "a number too long": b'{"a": ' + b"1" * 1_001 + b"}",
    "half a character": rb'{"a": "\ud800"}',
    "a key twice": b'{"a": "x", "a": "x"}',
}


def test_json_that_spark_cannot_parse_is_not_called_something_else(spark: SparkSession, gateway: FakeGateway) -> None:
    bodies = list(BEYOND_THE_PARSER.values())
    segment = gateway.table(0, len(bodies) - 1, lambda _, offset: bodies[offset])
    judgements = typed.judged(landed(spark.createDataFrame(segment)), typed.declared(TypedSpec("readings", "a STRING")))
    reasons = [row["reason"] for row in typed.rejected(judgements, "readings").toArrow().to_pylist()]
    assert reasons == [UNREADABLE] * len(bodies)
    assert "or has a key twice or more than Spark's parser takes" in UNREADABLE


def test_values_at_the_edges_of_their_types_land_and_are_read_by_others(
    spark: SparkSession, tmp_path: Path, gateway: FakeGateway
) -> None:
    names = {f"c{number}": kind for number, kind in enumerate(VALUES) if kind in EDGES}
    cases = [(name, text) for name, kind in names.items() for text, value in VALUES[kind].items() if value is not None]
    bodies = [f'{{"{name}": {text}}}'.encode() for name, text in cases]
    gateway.seal(len(bodies), lambda _, offset: bodies[offset])
    columns = ", ".join(f"{name} {kind}" for name, kind in names.items())
    (batch, *_) = land(spark, tmp_path, schemas=(f"readings={columns}",))
    assert isinstance(batch, Landed)
    assert (batch.messages, batch.rejected) == (len(bodies), 0)
    read = {row["gateway_offset"]: row for row in rows(tmp_path, "readings")}
    for offset, (name, text) in enumerate(cases):
        assert read[offset][name] == VALUES[names[name]][text], text
    with duckdb_with_delta() as connection:
        query = f"SELECT * FROM delta_scan('{tmp_path}/tables/readings')"
        assert len(connection.execute(query).fetchall()) == len(bodies)
    assert polars.read_delta(str(tmp_path / "tables" / "readings")).height == len(bodies)
    register(spark)
    assert spark.read.format("fairway.delta").load(str(tmp_path / "tables" / "readings")).count() == len(bodies)


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
    readings = rows(tmp_path, "readings")
    assert sorted(row["gateway_offset"] for row in readings) == [offset for offset in range(70) if offset % 5]
    assert all(row["celsius"] == row["gateway_offset"] for row in readings)
    rejected = rows(tmp_path, "rejected")
    assert sorted(row["gateway_offset"] for row in rejected) == list(range(0, 70, 5))
    assert {(row["typed_table"], row["reason"]) for row in rejected} == {("readings", "celsius is not of type DOUBLE")}
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
        ("captures=a STRING", "which Fairway fills itself"),
    ],
)
def test_a_schema_that_cannot_be_meant_is_refused_before_spark_starts(text: str, complaint: str) -> None:
    with pytest.raises(BadOption, match=complaint):
        parse_spec(text)


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ("a STRIN", "Spark cannot read 'a STRIN'"),
        ("a STRING, A INT", "cannot be called 'A'"),
        ("gateway_offset INT", "cannot be called 'gateway_offset'"),
        ("`a b` INT", "cannot be called 'a b'"),
        ("a STRUCT<b: INT, B: INT>", "cannot be called 'B'"),
        ("a STRING, i INTERVAL", "the column i cannot have the type INTERVAL"),
        ("i INTERVAL DAY TO SECOND", "the column i cannot have the type INTERVAL DAY TO SECOND"),
        ("a ARRAY<STRUCT<>>", "the column a cannot have the type STRUCT<>"),
        ("a STRUCT<b: ARRAY<VOID>>", "the column a.b cannot have the type VOID"),
        ("a MAP<INT, STRING>", "the column a cannot have the type MAP<INT,STRING>"),
        ("a VARCHAR(3)", r"the column a cannot have the type VARCHAR\(3\)"),
        ("a VARIANT", "the column a cannot have the type VARIANT"),
        ("a TIME", r"the column a cannot have the type TIME\(6\)"),
        ("a STRING COLLATE UNICODE", "the column a cannot have the type STRING COLLATE UNICODE"),
    ],
)
def test_columns_that_cannot_be_are_refused_in_a_sentence(spark: SparkSession, columns: str, complaint: str) -> None:
    assert spark.version
    with pytest.raises(BadOption, match=complaint):
        typed.declared(TypedSpec("readings", columns))
