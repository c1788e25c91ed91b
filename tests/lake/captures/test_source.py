"""The source gives the same rows for any number of partitions, and only the rows and columns that are asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, PySparkException

from fairway.core.errors import BadOption
from fairway.core.tables import DATAGRAMS
from fairway.lake.captures.source import NAME, ReadOptions, load, register
from fairway.lake.schemas import spark_schema
from tests.capture.adversaries import CAPTURES
from tests.lake.captures.test_rows import rows_of
from tests.lake.captures.traces import all_four, simulated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("name", ["a whole capture inside payloads", "a damaged length", "pcapng, two sections"])
def test_rows_do_not_depend_on_the_number_of_partitions(spark: SparkSession, tmp_path: Path, name: str) -> None:
    path = tmp_path / "one"
    path.write_bytes(CAPTURES[name]())
    register(spark)
    expected = rows_of(path, payload=False)
    for count in (1, 7):
        size = -(-path.stat().st_size // count)
        bare = spark.read.format(NAME).option("part_bytes", size).load(str(path))
        probed = load(spark, [path], part_bytes=size)
        for frame in (bare, probed):
            assert sorted(frame.toArrow().to_pylist(), key=lambda row: row["offset"]) == expected


def test_only_the_asked_for_columns_are_built_and_conditions_are_exact(spark: SparkSession, tmp_path: Path) -> None:
    files = all_four(tmp_path)
    rows = [row for path in files.values() for row in rows_of(path)]
    middle, port = sorted(row["at"] for row in rows)[len(rows) // 2], rows[0]["source_port"]
    names = ["at", "udpc_kind", "frame"]
    conditions = [("at", ">=", middle.isoformat()), ("source_port", "=", port), ("udpc_kind", "!=", "syn")]
    frame = load(spark, [tmp_path], columns=names, where=conditions, part_bytes=5_000)
    expected = [row for row in rows if row["at"] >= middle and row["source_port"] == port and row["udpc_kind"] != "syn"]
    assert frame.columns == names
    assert sorted(map(str, frame.toArrow().to_pylist())) == sorted(
        str({name: row[name] for name in names}) for row in expected
    )
    assert 0 < len(expected) < len(rows)


def test_two_queries_of_one_frame_do_not_see_each_others_filters(spark: SparkSession, tmp_path: Path) -> None:
    """Spark keeps what it pushed down in the frame, so this source takes nothing that is pushed down."""
    path = tmp_path / "one.pcapng"
    path.write_bytes(simulated("mrp"))
    frame, rows = load(spark, [path], columns=["frame", "point"]), rows_of(path)
    server = frame.where("point = 'server'")
    at_server = sum(row["point"] == "server" for row in rows)
    assert server.count() == at_server
    assert frame.count() == len(rows)
    assert frame.where("point = 'client'").unionAll(server).unionAll(server).count() == len(rows) + at_server


def test_mistakes_are_named_in_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    picture = tmp_path / "picture.pcap"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    for reader, sentence in (
        (spark.read.format(NAME).option("colour", "red").option("path", str(picture)), "has no option 'colour'"),
        (spark.read.format(NAME).schema("height long").option("path", str(picture)), "no column height"),
        (spark.read.format(NAME).option("path", str(picture)), "is no capture that Fairway reads"),
        (spark.read.format(NAME).option("path", str(tmp_path / "missing")), "cannot be read"),
    ):
        with pytest.raises((AnalysisException, PySparkException), match=sentence):
            reader.load().count()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"paths": "a.pcap"},
        {"paths": "[]"},
        {"path": "a", "part_bytes": "0"},
        {"path": "a", "payload": "perhaps"},
        {"path": "a", "where": "source_port = 9000"},
        {"path": "a", "where": '[["payload", "=", "x"]]'},
        {"path": "a", "where": '[["source_port", "~", 1]]'},
        {"path": "a", "where": '[["source_port", "=", "many"]]'},
        {"path": "a", "where": '[["at", ">", "yesterday"]]'},
    ],
)
def test_a_bad_option_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(BadOption):
        ReadOptions.parsed(options)


def test_options_are_read_once() -> None:
    options = ReadOptions.parsed({"paths": json.dumps(["a", "b"]), "part_bytes": "77", "payload": "True"})
    assert (options.paths, options.part_bytes, options.payload) == (("a", "b"), 77, True)
    assert [field.name for field in spark_schema(DATAGRAMS).fields] == list(DATAGRAMS.names)
