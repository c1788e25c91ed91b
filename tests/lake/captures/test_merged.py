"""Datagrams that were captured as one are rows of their own, as if each had been captured alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairway.core.tables import DATAGRAMS
from fairway.lake.captures.files import seen
from fairway.lake.captures.parts import Part, batches
from fairway.lake.captures.rows import arrow_batch
from tests.capture.test_merged import BATCHES
from tests.lake.captures.traces import conversation

OF_THE_RECORD = ("offset", "frame", "at", "at_ns")
FRAME_HEADER_BYTES = 28


def rows(path: Path, capture: bytes) -> list[dict[str, Any]]:
    path.write_bytes(capture)
    found = batches(Part(seen(str(path)), "id"), [])
    read = [arrow_batch(batch, DATAGRAMS.names, dictionaries=False, payload=True).to_pylist() for batch in found]
    return [row for batch in read for row in batch]


def test_merged_datagrams_give_the_rows_of_single_ones(tmp_path: Path) -> None:
    merged = rows(tmp_path / "x", conversation(*((True, b"".join(batch)) for batch in BATCHES.values())))
    single = rows(tmp_path / "x", conversation(*((True, datagram) for batch in BATCHES.values() for datagram in batch)))
    assert [_content(row) for row in merged] == [_content(row) for row in single]
    assert [row["frame"] for row in merged] == [
        number for number, batch in enumerate(BATCHES.values(), 1) for _ in batch
    ]
    offsets = [row["offset"] for row in merged]
    assert offsets == sorted(set(offsets))
    assert [row["frame_bytes"] for row in merged] == [FRAME_HEADER_BYTES + row["payload_bytes"] for row in merged]
    assert not any(row["truncated"] for row in merged)


def _content(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in OF_THE_RECORD}
