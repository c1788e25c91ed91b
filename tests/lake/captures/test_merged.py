"""Datagrams that were captured as one are rows of their own, as if each had been captured alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.capture.test_merged import BATCHES
from tests.lake.captures.reading import datagrams_of
from tests.lake.captures.traces import conversation

OF_THE_RECORD = ("file_id", "offset", "frame", "at", "at_ns")
FRAME_HEADER_BYTES = 28


def rows(path: Path, capture: bytes) -> list[dict[str, Any]]:
    path.write_bytes(capture)
    found: list[dict[str, Any]] = datagrams_of([path]).to_pylist()
    return found


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
