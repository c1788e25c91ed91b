"""Captures get into the lake once, whole or not at all, and bad ones are named in a sentence."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from fairway.core.tables import DATAGRAMS
from fairway.lake.captures import ingest as module
from fairway.lake.captures import slices
from fairway.lake.captures.buckets import read_bucket
from fairway.lake.captures.files import opened, seen
from fairway.lake.captures.ingest import OtherForm, capture_files, ingest, known
from fairway.lake.captures.parts import Part
from fairway.store.lakes import Lake
from tests.capture.adversaries import CAPTURES, pcap
from tests.capture.test_pcapng import interface, packet, section
from tests.lake.captures.test_rows import rows_of
from tests.lake.captures.traces import all_four, simulated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def in_lake(lake: Path) -> list[dict[str, Any]]:
    files = capture_files(Lake(lake), [about.file_id for about in known(lake)])
    rows: list[dict[str, Any]] = read_bucket(map(Path, files), 0, 1).to_pylist()
    return sorted(rows, key=lambda row: (row["file"], row["offset"]))


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


def files_under(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_lake_holds_the_rows_of_every_file_once(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    files = all_four(tmp_path / "in")
    (tmp_path / "in" / "a.pcap.gz").write_bytes(gzip.compress(pcap([b"packed"])) + gzip.compress(b""))
    (tmp_path / "in" / "b.pcap.zst").write_bytes(zstd(pcap([b"packed too"])))
    (tmp_path / "in" / "notes.txt").write_text("not a capture")
    lake = tmp_path / "lake"
    outcome = ingest(spark, [tmp_path / "in"], lake, payload=True, part_bytes=4_000)
    assert (outcome.known, outcome.problems) == ([], [])
    paths = [*files.values(), tmp_path / "in" / "a.pcap.gz", tmp_path / "in" / "b.pcap.zst"]
    expected = [row for path in sorted(paths) for row in rows_of(path)]
    assert in_lake(lake) == expected
    assert sum(about.rows for about in outcome.added) == len(expected)
    assert {about.file_id for about in known(lake)} == {row["file_id"] for row in expected}
    parts = [len(list((lake / "captures" / about.file_id).glob("*.slices"))) for about in outcome.added]
    assert max(parts) > 4

    before = files_under(lake / "captures")
    os.rename(files["udpc"], tmp_path / "in" / "another-name.pcapng")
    again = ingest(spark, [tmp_path / "in"], lake)
    assert (again.added, again.problems, len(again.known)) == ([], [], 6)
    assert files_under(lake / "captures") == before


def test_bad_files_are_named_and_the_readable_rest_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    good = pcap([bytes([number]) * 300 for number in range(200)])
    (tmp_path / "empty.pcap").write_bytes(b"")
    (tmp_path / "picture.pcap").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    (tmp_path / "short.pcap").write_bytes(good[:10])
    (tmp_path / "truncated.pcap.gz").write_bytes(gzip.compress(good)[:-700])
    (tmp_path / "nothing.pcap.gz").write_bytes(gzip.compress(good)[:12])
    (tmp_path / "damaged.pcap").write_bytes(CAPTURES["a damaged length"]())
    (tmp_path / "good.pcap").write_bytes(good)
    lake = tmp_path / "lake"
    names = ["empty", "picture", "short", "damaged", "good", "missing"]
    paths = [*(tmp_path / f"{name}.pcap" for name in names), *sorted(tmp_path.glob("*.gz"))]
    outcome = ingest(spark, paths, lake)
    assert [Path(problem.split(" ")[0]).name for problem in outcome.problems] == [
        "empty.pcap", "missing.pcap", "picture.pcap", "short.pcap", "damaged.pcap", "nothing.pcap.gz",
        "truncated.pcap.gz",
    ]  # fmt: skip
    assert all(problem.endswith(".") for problem in outcome.problems)
    by_file = {about.file: about for about in outcome.added}
    assert sorted(by_file) == ["damaged.pcap", "good.pcap", "truncated.pcap.gz"]
    assert by_file["damaged.pcap"].undecoded == {"damaged": 1}
    assert by_file["truncated.pcap.gz"].undecoded == {"file_ends_inside": 1}
    assert 1 < by_file["truncated.pcap.gz"].rows < 200 == by_file["good.pcap"].rows
    assert list((lake / "staging").iterdir()) == []


def test_bodies_that_are_asked_for_later_replace_the_rows_in_one_step(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "one.pcapng"
    path.write_bytes(simulated("pydevts"))
    ingest(spark, [path], tmp_path / "lake")
    without = in_lake(tmp_path / "lake")
    outcome = ingest(spark, [path], tmp_path / "lake", payload=True)
    assert len(outcome.added) == 1
    assert in_lake(tmp_path / "lake") == rows_of(path)
    assert [{**row, "payload": None} for row in rows_of(path)] == without
    assert ingest(spark, [path], tmp_path / "lake").added == []


def test_a_full_disk_refuses_the_file_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Spark: the task is a function, and what it answers decides."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "one.pcap"
    path.write_bytes(pcap([b"x"]))
    monkeypatch.setattr(slices, "open", full, raising=False)
    file = seen(str(path))
    wish = module._Wish(False, 16)
    answer = module._written(wish, (Part(file, "id"), str(tmp_path / "staging" / "id" / "part-0.slices")))
    outcome = module.Ingestion()
    lake = Lake(tmp_path / "lake")
    module._published(lake, tmp_path / "staging", [(file, "id")], [Part(file, "id")], [answer], outcome, wish)
    assert outcome.added == []
    assert "No space left on device" in outcome.problems[0]
    assert "make room" in outcome.problems[0]
    assert list(lake.captures.iterdir()) == []


def test_no_captures_give_no_rows_with_the_right_columns() -> None:
    rows = read_bucket([], 0, 1)
    assert (rows.column_names, rows.num_rows) == (list(DATAGRAMS.names), 0)


def test_captures_that_another_fairway_kept_are_refused_with_the_remedy(spark: SparkSession, tmp_path: Path) -> None:
    """Without their records, tables would be computed as if they had never been there."""
    path = tmp_path / "one.pcap"
    path.write_bytes(pcap([b"x"]))
    (about,) = ingest(spark, [path], tmp_path / "lake").added
    kept = tmp_path / "lake" / "captures" / about.file_id / "_file.json"
    kept.write_text(json.dumps({name: value for name, value in json.loads(kept.read_text()).items() if name != "form"}))
    with pytest.raises(OtherForm, match="analyze the captures into a new lake"):
        known(tmp_path / "lake")
    (tmp_path / "two.pcap").write_bytes(pcap([b"y"]))
    with pytest.raises(OtherForm):
        ingest(spark, [tmp_path / "two.pcap"], tmp_path / "lake")
    assert len(list((tmp_path / "lake" / "captures").iterdir())) == 1, "nothing is added to what is refused"


def test_what_is_kept_of_a_file_is_readable_by_anybody(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "one.pcap"
    path.write_bytes(pcap([b"x"]))
    (about,) = ingest(spark, [path], tmp_path / "lake").added
    kept = json.loads((tmp_path / "lake" / "captures" / about.file_id / "_file.json").read_text())
    assert (kept["file"], kept["rows"], kept["size_bytes"]) == ("one.pcap", 1, path.stat().st_size)
    assert (kept["buckets"], len(kept["touched"])) == (16, 1)


def test_a_packed_copy_of_a_known_capture_is_known(spark: SparkSession, tmp_path: Path) -> None:
    """Otherwise every packet would be there twice, and half of them would look like losses."""
    data = simulated("udpc")
    files = {"a.pcapng": data, "b.pcapng.gz": gzip.compress(data), "c.pcapng.zst": zstd(data)}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    outcome = ingest(spark, [tmp_path / name for name in files], tmp_path / "lake")
    assert ([about.file for about in outcome.added], len(outcome.known)) == (["a.pcapng"], 2)


@pytest.mark.parametrize("place", [0.5, 0.999])
def test_what_stands_before_a_damage_of_a_packed_capture_is_read(
    spark: SparkSession, tmp_path: Path, place: float
) -> None:
    """A step that fails takes with it what it has unpacked; so near a damage steps are short."""
    bodies = [Random(number).randbytes(500) for number in range(2_000)]
    packed = bytearray(gzip.compress(pcap(bodies), mtime=0))
    packed[int(len(packed) * place)] ^= 0xFF
    (tmp_path / "damaged.pcap.gz").write_bytes(packed)
    outcome = ingest(spark, [tmp_path / "damaged.pcap.gz"], tmp_path / "lake")
    (about,) = outcome.added
    assert about.rows >= place * len(bodies) - 130  # zlib may see a damage up to 64 kB late, and not at once
    assert len(outcome.problems) == 1
    assert "its gzip data is damaged" in outcome.problems[0]


PACKED = {"gzip": lambda data: gzip.compress(data, mtime=0), "zstd": zstd}
EARLY = "its {} data ends early: it is cut off or damaged"


def said_of(packed: bytes | bytearray, path: Path) -> str | None:
    path.write_bytes(packed)
    with opened(seen(str(path))) as (_, problem):
        return problem


@pytest.mark.parametrize("packing", PACKED)
def test_packed_data_that_is_cut_off_anywhere_ends_early_and_is_not_called_damaged(
    packing: str, tmp_path: Path
) -> None:
    random = Random(1)
    whole = PACKED[packing](pcap([random.randbytes(500) for _ in range(200)]))
    assert said_of(whole, tmp_path / "whole") is None
    for kept in [*range(4, 40), *random.sample(range(40, len(whole)), 40), len(whole) - 1]:
        assert said_of(whole[:kept], tmp_path / "cut") == EARLY.format(packing), f"of the first {kept} bytes"


@pytest.mark.parametrize("packing", PACKED)
def test_packed_data_that_is_damaged_is_called_so(packing: str, tmp_path: Path) -> None:
    random = Random(1)
    packed = bytearray(PACKED[packing](pcap([bytes(random.choices(b"abcd", k=500)) for _ in range(200)])))
    packed[len(packed) // 2] ^= 0xFF
    assert said_of(packed, tmp_path / "damaged") == f"its {packing} data is damaged"


def test_seed_3_a_damage_that_hides_the_end_of_the_data_is_named_as_possible(tmp_path: Path) -> None:
    """zlib takes the check sum for more data and wants still more, as it does of a file that is cut off."""
    random = Random(3)
    packed = bytearray(PACKED["gzip"](pcap([random.randbytes(500) for _ in range(200)])))
    packed[int(len(packed) * 0.999)] ^= 0xFF
    assert said_of(packed, tmp_path / "damaged") == EARLY.format("gzip")


def test_a_capture_that_ends_inside_a_record_or_holds_none_is_named(spark: SparkSession, tmp_path: Path) -> None:
    whole = pcap([b"one", b"two"])
    (tmp_path / "cut.pcap").write_bytes(whole[:-2])
    (tmp_path / "none.pcap").write_bytes(pcap([]))
    os.mkfifo(tmp_path / "pipe.pcap")
    names = ("cut.pcap", "none.pcap", "pipe.pcap")
    outcome = ingest(spark, [tmp_path / name for name in names], tmp_path / "lake")
    assert [about.rows for about in outcome.added] == [2]
    told = {name: [problem for problem in outcome.problems if name in problem] for name in names}
    assert {name: len(problems) for name, problems in told.items()} == {**dict.fromkeys(names, 1), "none.pcap": 0}
    assert "ends inside a record" in told["cut.pcap"][0]
    assert "no regular file" in told["pipe.pcap"][0]


@pytest.mark.parametrize("missing", [1, 2, 19])
def test_a_capture_that_ends_inside_an_interface_block_is_named(
    spark: SparkSession, tmp_path: Path, missing: int
) -> None:
    """Short by one byte it was taken for whole: a block that is cut off is said to end one byte behind the file."""
    whole = section("<") + interface("<") + packet("<", 1, bytes(60)) + interface("<")
    path = tmp_path / "short.pcapng"
    path.write_bytes(whole[:-missing])
    outcome = ingest(spark, [path], tmp_path / "lake")
    assert outcome.added[0].undecoded["file_ends_inside"] == 1
    assert "ends inside a record" in outcome.problems[0]
