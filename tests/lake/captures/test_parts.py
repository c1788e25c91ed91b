"""The parts of a file: each knows the damages before it, and tasks cut where a walk does."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fairway.capture.columns.ranges import HEAD_BYTES, Range, form_of, records
from fairway.capture.packets import encode_ip
from fairway.capture.pcap import PcapWriter
from fairway.lake.captures import parts
from fairway.lake.captures.files import identity, seen
from fairway.lake.captures.parts import Part, batches, exact_parts, planned
from tests.capture.adversaries import CAPTURES
from tests.lake.captures.traces import AT_NS, SERVER, all_four

FILE_ID = "0123456789abcdef0123456789abcdef"


def capture() -> bytearray:
    pieces: list[bytes] = []
    writer = PcapWriter(pieces.append)
    for number in range(60):
        writer.frame(AT_NS + number * 1_000_000, encode_ip(("10.0.0.1", 40_000), SERVER, b"%04d" % number))
    return bytearray(b"".join(pieces))


def test_every_part_of_a_file_knows_the_damages_before_it(tmp_path: Path) -> None:
    data = capture()
    form = form_of(bytes(data[:HEAD_BYTES]))
    (found,) = records(form, memoryview(bytes(data)), Range(form.start, len(data), 0))
    for victim in (10, 40):
        struct.pack_into("<I", data, int(found.offset[victim]) + 8, 0xFFFFFFFF)
    path = tmp_path / "damaged.pcap"
    path.write_bytes(data)
    file = seen(str(path))
    whole = [count for batch in batches(Part(file, FILE_ID)) for count in batch.gaps.tolist()]
    assert sorted(set(whole)) == [0, 1, 2]
    parts = exact_parts(file, FILE_ID, 400)
    assert len(parts) > 5
    assert [count for part in parts for batch in batches(part) for count in batch.gaps.tolist()] == whole


def test_tasks_and_a_walk_cut_files_at_the_same_offsets(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = list(all_four(tmp_path).values())
    for number, make in enumerate(CAPTURES.values()):
        paths.append(tmp_path / f"adversary-{number}.pcap")
        paths[-1].write_bytes(make())
    paths.append(tmp_path / "picture.pcap")
    paths[-1].write_bytes(b"\x89PNG" + bytes(9_000))
    files = [(file, identity(file)) for file in map(seen, map(str, paths))]
    walked = planned(spark, files, 4_000)
    monkeypatch.setattr(parts, "WALKED_BYTES_MAX", 0)
    assert planned(spark, files, 4_000) == walked
    assert len(walked) > len(files)
