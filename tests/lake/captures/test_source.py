"""The source gives the same rows for any number of partitions, and only the rows and columns that are asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from fairway.core.errors import BadOption
from fairway.core.tables import MAPPED, RECORDS
from fairway.lake import register
from fairway.lake.captures.source import NAME, ReadOptions, load
from fairway.lake.schemas import spark_schema
from tests.capture.adversaries import CAPTURES
from tests.lake.captures.reading import datagrams_of, records_of
from tests.lake.captures.traces import all_four, simulated


@pytest.mark.parametrize("name", ["a whole capture inside payloads", "a damaged length", "pcapng, two sections"])
def test_rows_do_not_depend_on_the_number_of_partitions(spark: SparkSession, tmp_path: Path, name: str) -> None:
    path = tmp_path / "one"
    path.write_bytes(CAPTURES[name]())
    register(spark)
    expected = records_of(path, payload=False).to_pylist()
    for count in (1, 7):
        size = -(-path.stat().st_size // count)
        bare = spark.read.format(NAME).option("part_bytes", size).load(str(path))
        probed = load(spark, [path], part_bytes=size)
        for frame in (bare, probed):
            assert sorted(frame.toArrow().to_pylist(), key=lambda row: row["offset"]) == expected


def test_only_the_asked_for_columns_are_built(spark: SparkSession, tmp_path: Path) -> None:
    expected = [row for path in all_four(tmp_path).values() for row in records_of(path).to_pylist()]
    names = ["at_ns", "point", "frame"]
    frame = load(spark, [tmp_path], columns=names, part_bytes=5_000)
    assert frame.columns == names
    assert sorted(map(str, frame.toArrow().to_pylist())) == sorted(
        str({name: row[name] for name in names}) for row in expected
    )


def test_with_a_map_the_datagrams_of_its_ports_are_decoded(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    paths = list(all_four(tmp_path).values())
    ports = {row["destination_port"] for row in records_of(paths[0]).to_pylist()}
    frame = spark.read.format(NAME).option("map", " ".join(f"udpc={port}" for port in ports)).load(str(paths[0]))
    assert frame.columns == list(MAPPED.names)
    names = ("kind", "reason", "udpc_index", "udpc_session", "udpc_ack")
    found = [[row[name] for name in names] for row in frame.orderBy("offset").toArrow().to_pylist()]
    whole = datagrams_of([paths[0]]).to_pylist()
    assert found == [[row[name if "udpc" in name else f"udpc_{name}"] for name in names] for row in whole]
    assert {row["protocol"] for row in frame.toArrow().to_pylist()} == {"udpc"}
    assert any(found)


def test_two_queries_of_one_frame_do_not_see_each_others_filters(spark: SparkSession, tmp_path: Path) -> None:
    """Spark keeps what it pushed down in the frame, so this source takes nothing that is pushed down."""
    path = tmp_path / "one.pcapng"
    path.write_bytes(simulated("mrp"))
    frame, rows = load(spark, [path], columns=["frame", "point"]), records_of(path).to_pylist()
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
        {"path": "a", "map": "udpc"},
        {"path": "a", "map": "udpc=9000 mrp=9000"},
    ],
)
def test_a_bad_option_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(BadOption):
        ReadOptions.parsed(options)


def test_options_are_read_once() -> None:
    options = ReadOptions.parsed({"paths": json.dumps(["a", "b"]), "part_bytes": "77", "payload": "True"})
    assert (options.paths, options.part_bytes, options.payload) == (("a", "b"), 77, True)
    assert [field.name for field in spark_schema(RECORDS).fields] == list(RECORDS.names)
