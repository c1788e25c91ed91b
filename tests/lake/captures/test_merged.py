"""Datagrams that were captured as one are rows of their own where their flow is ours, and only there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairway.core.tables import PROTOCOLS, RECORDS
from fairway.lake.captures.source import CaptureReader, ReadOptions
from fairway.lake.schemas import spark_schema
from fairway.protocols.udpc.wire import ACK, SYN, Control, encode
from tests.capture.test_merged import BATCHES, SESSION
from tests.lake.captures.reading import datagrams_of as read
from tests.lake.captures.test_recognition import datagrams_of, packet, packets_of
from tests.lake.captures.traces import conversation

OF_THE_RECORD = ("file_id", "offset", "frame", "at", "at_ns", "piece", "merged_as")
FRAME_HEADER_BYTES = 28


def rows(path: Path, capture: bytes) -> list[dict[str, Any]]:
    path.write_bytes(capture)
    found: list[dict[str, Any]] = read([path]).to_pylist()
    return found


def test_merged_datagrams_give_the_rows_of_single_ones(tmp_path: Path) -> None:
    found = rows(tmp_path / "x", conversation(*((True, b"".join(batch)) for batch in BATCHES.values())))
    single = rows(tmp_path / "x", conversation(*((True, datagram) for batch in BATCHES.values() for datagram in batch)))
    records, merged = [row for row in found if not row["piece"]], [row for row in found if row["piece"]]
    assert [row["frame"] for row in records] == list(range(1, len(BATCHES) + 1))
    assert [_content(row) for row in merged] == [_content(row) for row in single]
    assert [(row["frame"], row["piece"]) for row in merged] == [
        (number, piece) for number, batch in enumerate(BATCHES.values(), 1) for piece in range(1, len(batch) + 1)
    ]
    assert [PROTOCOLS[row["merged_as"]] for row in records] == [name.split()[0] for name in BATCHES]
    offsets = [row["offset"] for row in merged]
    assert offsets == sorted(set(offsets))
    assert [row["frame_bytes"] for row in merged] == [FRAME_HEADER_BYTES + row["payload_bytes"] for row in merged]
    assert not any(row["truncated"] for row in merged)


@pytest.mark.parametrize("name", [name for name in BATCHES if name.startswith("udpc")])
def test_only_a_flow_that_is_recognised_without_the_cut_is_cut(name: str, tmp_path: Path) -> None:
    """sFlow and others have payloads that can be cut like ours; the number of records is that of the file."""
    merged = b"".join(BATCHES[name])
    syn = encode(Control(index=77, session_id=5, flag=SYN))
    answer = encode(Control(index=1, session_id=int.from_bytes(SESSION), ack_index=77, flag=SYN | ACK))
    alone = packets_of(datagrams_of(tmp_path, [conversation(*[(True, merged)] * 9)]))
    assert [(row["frame"], row["piece"], row["protocol"]) for row in alone] == [(n, 0, "unknown") for n in range(1, 10)]
    ours = packets_of(datagrams_of(tmp_path, [conversation((True, syn), (False, answer), (True, merged))]))
    assert [(row["frame"], row["piece"]) for row in ours] == [
        *((1, 0), (2, 0)),
        *((3, piece) for piece in range(1, len(BATCHES[name]) + 1)),
    ]
    assert {row["kind"] for row in ours[2:]} == {"important_ack" if "acknow" in name else "important"}


@pytest.mark.parametrize("name", ["mrp messages", "rup parts", "rup confirms", "pydevts packets"])
def test_datagrams_that_prove_themselves_are_cut_though_all_were_merged(name: str, tmp_path: Path) -> None:
    found = packets_of(datagrams_of(tmp_path, [conversation((True, b"".join(BATCHES[name])))]))
    assert [row["piece"] for row in found] == list(range(1, len(BATCHES[name]) + 1))
    assert {row["protocol"] for row in found} == {name.split(maxsplit=1)[0]}


def test_acknowledgements_of_pydevts_are_cut_where_a_packet_proves_the_flow(tmp_path: Path) -> None:
    answers = b"".join(BATCHES["pydevts acknowledgements"])
    alone = packets_of(datagrams_of(tmp_path, [conversation((True, answers))]))
    assert [(row["piece"], row["protocol"]) for row in alone] == [(0, "unknown")]
    ours = packets_of(datagrams_of(tmp_path, [conversation((False, packet(1, b"hello")), (True, answers))]))
    assert [row["piece"] for row in ours] == [0, *range(1, 11)]


def _content(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in OF_THE_RECORD}


def test_the_source_returns_one_row_per_record_whatever_it_may_hold(tmp_path: Path) -> None:
    path = tmp_path / "merged.pcapng"
    path.write_bytes(conversation(*((True, b"".join(batch)) for batch in BATCHES.values())))
    reader = CaptureReader(ReadOptions((str(path),)), spark_schema(RECORDS))
    found = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert [(row["frame"], row["piece"]) for row in found] == [(number, 0) for number in range(1, len(BATCHES) + 1)]
