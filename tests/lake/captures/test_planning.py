"""Files are cut into the same parts, whether they are walked over or probed by tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fairway.lake.captures import parts
from fairway.lake.captures.files import identity, seen
from fairway.lake.captures.parts import planned
from tests.capture.adversaries import CAPTURES
from tests.lake.captures.traces import all_four

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_tasks_and_a_walk_cut_files_in_the_same_places(
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
