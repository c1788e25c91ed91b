"""A capture in an object store is the capture that it is on a disk, read by ranges."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairway.capture.columns.ranges import HEAD_BYTES, form_of, walked
from fairway.core.errors import DamagedCapture
from fairway.core.tables import RECORDS
from fairway.lake.captures import files
from fairway.lake.captures.files import identity, listed, opened, seen
from fairway.lake.captures.parts import Part, batches, edges, times
from fairway.lake.captures.rows import arrow_batch
from fairway.store.lakes import Lake
from tests.capture.adversaries import CAPTURES, pcap
from tests.lake.captures.reading import records_of


def test_names_folders_and_globs_are_listed(lake: Lake) -> None:
    for name in ("a.pcap", "b.pcap", "letter.txt"):
        with (lake.location / "in").create(name) as file:
            file.write(pcap([b"x"]))
    there = [f"{lake.location}/in/{name}" for name in ("a.pcap", "b.pcap")]
    assert listed([f"{lake.location}/in"]) == there
    assert listed([f"{lake.location}/in/*.pcap"]) == there
    assert listed([there[0]]) == there[:1]
    with pytest.raises(DamagedCapture, match=r"missing\.pcap cannot be read"):
        seen(f"{lake.location}/in/missing.pcap")


@pytest.mark.parametrize("name", ["a damaged length", "pcapng, two sections"])
def test_ranges_of_an_object_hold_the_rows_of_the_file(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    data = CAPTURES[name]()
    (tmp_path / "one.pcap").write_bytes(data)
    with lake.location.create("one.pcap") as file:
        file.write(data)
    local, remote = seen(str(tmp_path / "one.pcap")), seen(f"{lake.location}/one.pcap")
    assert (remote.size_bytes, identity(remote)) == (local.size_bytes, identity(local))
    monkeypatch.setattr(files, "BEYOND_BYTES", 4_096)
    with opened(local) as (view, _):
        ranges = walked(form_of(bytes(view[:HEAD_BYTES])), view, edges(local, len(data) // 5))
    parts = [Part(remote, identity(local), one) for one in ranges]
    found = [row for part in parts for batch in batches(part) for row in arrow_batch(batch, RECORDS.names).to_pylist()]
    assert found == records_of(tmp_path / "one.pcap", payload=False).to_pylist()
    assert len(parts) > 1
    assert times(parts[:1]) == times([Part(local, identity(local), ranges[0])])
