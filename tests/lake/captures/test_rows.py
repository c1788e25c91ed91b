"""Rows built by columns say what the decoders of single frames and datagrams say."""

from __future__ import annotations

import re
import socket
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from fairway.capture.packets import encode_ip
from fairway.capture.pcap import PcapWriter
from fairway.core.addresses import format_address
from fairway.core.errors import MalformedDatagram
from fairway.gateway.columns import _address
from fairway.lake.captures.files import identity, listed, seen
from fairway.lake.captures.readings import _text
from fairway.protocols import NAMES, wire
from fairway.protocols.mrp.wire import Data
from tests.capture.adversaries import CAPTURES, pcap
from tests.capture.datagrams import Datagram, decode_frame
from tests.capture.reading import Frame, read_capture
from tests.lake.captures.reading import datagrams_of
from tests.lake.captures.traces import simulated

FIELDS = {
    "udpc": {"udpc_index": "index", "udpc_session": "session_id"},
    "mrp": {"mrp_version": "ver", "mrp_status": "stat", "mrp_client": "cl_conid", "mrp_server": "sv_conid"},
    "rup": {"rup_id": "id", "rup_position": "position", "rup_total": "total"},
    "pydevts": {"pydevts_id": "message_id", "pydevts_success": "success", "pydevts_crc": "crc"},
}
ACKS = ("response", "answering_request", "important_ack", "syn_ack", "heartbeat_ack")


def rows_of(folder: Path, capture: bytes, *, payload: bool = True) -> list[dict[str, Any]]:
    path = folder / "capture"
    path.write_bytes(capture)
    found: list[dict[str, Any]] = datagrams_of([path], payload=payload).to_pylist()
    return found


def scalar(frame: Frame) -> dict[str, Any]:
    """What a row must say about a frame, decoded alone."""
    datagram = decode_frame(frame)
    if not isinstance(datagram, Datagram):
        return {"undecoded": datagram.reason, "source": None, "udpc_kind": None, "payload": None}
    whole = len(datagram.payload) == datagram.payload_bytes
    found: dict[str, Any] = {
        "undecoded": None,
        "source": datagram.source[0],
        "source_port": datagram.source[1],
        "destination": datagram.destination[0],
        "destination_port": datagram.destination[1],
        "payload_bytes": datagram.payload_bytes,
        "payload": datagram.payload,
    }
    for name in NAMES if whole else ():
        found |= reading(name, datagram.payload)
    return found


def reading(name: str, payload: bytes) -> dict[str, Any]:
    try:
        packet = wire(name).decode(payload)
    except MalformedDatagram as error:
        return {f"{name}_kind": "malformed", f"{name}_reason": error.reason, f"{name}_body_crc": None} | dict.fromkeys(
            FIELDS[name]
        )
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", getattr(packet, "kind", type(packet).__name__)).lower()
    found: dict[str, Any] = {f"{name}_kind": kind, f"{name}_reason": None}
    found |= {column: getattr(packet, field, None) for column, field in FIELDS[name].items()}
    if isinstance(packet, Data):
        return found | both_readings(packet)
    if name == "udpc":
        found |= {"udpc_ack": packet.ack_index if kind in ACKS else None, "udpc_flag": payload[12]}
    if name == "rup":
        found |= {"rup_start": int(packet.start) if kind == "data" else None}
    if name == "mrp" and kind == "ack":
        found |= {"mrp_destination": packet.dest_conid, "mrp_sequence": packet.sequence, "mrp_stamp": packet.stamp}
    return found | {f"{name}_body_crc": crc32(getattr(packet, "body", b""))}


def both_readings(packet: Data) -> dict[str, Any]:
    stamped, piggyback = packet.as_stamped(), packet.as_piggyback()
    body = stamped.body if stamped else piggyback.body if piggyback else b""
    return {
        "mrp_stamped": stamped is not None,
        "mrp_piggyback": piggyback is not None,
        "mrp_destination": stamped and stamped.dest_conid,
        "mrp_origin": stamped and stamped.from_conid,
        "mrp_sequence": stamped and stamped.sequence,
        "mrp_stamp": stamped and stamped.stamp,
        "mrp_from_sequence": piggyback and piggyback.from_seq,
        "piggyback_destination": piggyback and piggyback.dest_conid,
        "piggyback_origin": piggyback and piggyback.from_conid,
        "piggyback_sequence": piggyback and piggyback.sequence,
        "piggyback_body_crc": piggyback and crc32(piggyback.body),
        "mrp_body_crc": crc32(body),
    }


def assert_as_scalar(folder: Path, capture: bytes) -> list[dict[str, Any]]:
    frames = list(read_capture(capture))
    rows = rows_of(folder, capture)
    assert [row["frame"] for row in rows] == list(range(1, len(frames) + 1))
    for row, frame in zip(rows, frames, strict=True):
        assert (row["at_ns"], row["point"], row["frame_bytes"]) == (frame.at_ns, frame.point or "", frame.wire_bytes)
        expected = scalar(frame)
        assert {name: row[name] for name in expected} == expected
    return rows


@pytest.mark.parametrize("protocol", NAMES)
def test_a_simulated_run_gives_the_rows_of_the_scalar_decoders(tmp_path: Path, protocol: str) -> None:
    rows = assert_as_scalar(tmp_path, simulated(protocol))
    assert len({row[f"{protocol}_kind"] for row in rows}) >= 2
    assert {row["point"] for row in rows} == {"server", "client"}


def test_the_piggyback_layout_is_read_both_ways(tmp_path: Path) -> None:
    rows = assert_as_scalar(tmp_path, simulated("mrp", layout="piggyback"))
    assert sum(row["mrp_piggyback"] is True for row in rows) > 20


def test_vectors_cut_at_every_length_give_the_rows_of_the_scalar_decoders(tmp_path: Path) -> None:
    """Also payloads of none of the protocols, and of two of them at once."""
    samples = [bytes.fromhex(text) for text in (
        "00000007 0a0b0c0d 00000000 10 6869", "00000003 0a0b0c0d 00000007 11", "4d525001 00 000001",
        "4d525002 01 00 000001 000007", "4d525003 000007 000001 0001 beef 6869", "4d525004 000001 000007 0001 beef",
        "00 00 1234 3610a686 68656c6c6f", "01 00 1234 3610a686", "03 01 1234 3610a686",
    )]  # fmt: skip
    samples.append(b"d\1" + b"0123456789abcdef" * 2 + bytes([0, 0, 0, 0, 5, 0, 0, 0]) + b"hello")
    samples.append(b"r" + b"0123456789abcdef" * 2 + bytes([0, 4, 4, 0, 0]))
    assert_as_scalar(tmp_path, pcap([sample[:end] for sample in samples for end in range(len(sample) + 1)]))


def test_a_flow_is_the_same_in_both_directions_and_differs_between_endpoints(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, simulated("udpc"))
    assert len({(row["source"], row["source_port"]) for row in rows}) == 2
    assert len({row["flow"] for row in rows}) == 1
    assert rows_of(tmp_path, pcap([b"x"]))[0]["flow"] != rows[0]["flow"]


def test_a_datagram_cut_by_the_snap_length_keeps_its_header_and_has_no_crc(tmp_path: Path) -> None:
    important = bytes.fromhex("00000007 0a0b0c0d 00000000 10") + bytes(100)
    (row,) = rows_of(tmp_path, pcap([important], snap_bytes=28 + 20))
    assert (row["truncated"], row["udpc_kind"]) == (True, "important")
    assert (row["udpc_body_crc"], row["payload_bytes"]) == (None, 113)


def test_the_size_on_the_wire_decides_and_half_a_header_is_none(tmp_path: Path) -> None:
    """An acknowledgement with a body is malformed, also when the capture holds no more than its header."""
    with_body = bytes.fromhex("00000007 0a0b0c0d 00000003 11") + bytes(100)
    connect = bytes.fromhex("4d525001 00 000001") + bytes(100)
    for sent, captured, reason in (
        (with_body, 13, ("udpc_reason", "control_with_body")),
        (with_body, 5, ("udpc_reason", "too_short")),
        (connect, 8, ("mrp_reason", "too_short")),
    ):
        (row,) = rows_of(tmp_path, pcap([sent], snap_bytes=28 + captured))
        assert row[reason[0]] == reason[1]


def test_a_damaged_stretch_is_a_row_with_its_offset_and_size(tmp_path: Path) -> None:
    found = rows_of(tmp_path, CAPTURES["a damaged length"]())
    (row,) = [row for row in found if row["undecoded"] == "damaged"]
    assert (row["offset"], row["frame"], row["at"], row["flow"], row["udpc_kind"]) == (68, 1, None, None, None)
    assert row["frame_bytes"] > 16


def test_ipv6_and_ipv4_in_one_batch_have_their_own_addresses(tmp_path: Path) -> None:
    pieces: list[bytes] = []
    writer = PcapWriter(pieces.append)
    writer.frame(1, encode_ip(("10.0.0.1", 1), ("10.0.0.2", 2), b"four"))
    writer.frame(2, encode_ip(("fd00::1", 1), ("fd00::2", 2), b"six"))
    writer.frame(3, b"\x45")
    rows = rows_of(tmp_path, b"".join(pieces))
    assert [row["source"] for row in rows] == ["10.0.0.1", "fd00::1", None]
    assert [row["destination"] for row in rows] == ["10.0.0.2", "fd00::2", None]
    assert rows[2]["undecoded"] == "cut_in_headers"


def test_without_payload_nothing_else_changes(tmp_path: Path) -> None:
    capture = simulated("rup")
    with_payload, without = rows_of(tmp_path, capture), rows_of(tmp_path, capture, payload=False)
    assert any(row["payload"] for row in with_payload)
    assert [{**row, "payload": None} for row in with_payload] == without


def test_the_same_content_has_one_identity_whatever_its_name(tmp_path: Path) -> None:
    for name in ("a.pcap", "b.pcap"):
        (tmp_path / name).write_bytes(pcap([b"x"]))
    (tmp_path / "c.pcap").write_bytes(pcap([b"y"]))
    one, copy, other = (identity(seen(path)) for path in listed([str(tmp_path)]))
    assert one == copy != other


@pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::1", "2001:DB8:0:0:1:0:0:1", "fe80::1", "::1", "1:0:0:2::"])
def test_a_gateway_and_a_capture_write_an_address_alike(address: str) -> None:
    packed = ip_address(address).packed
    seen = socket.inet_ntop(socket.AF_INET6 if len(packed) == 16 else socket.AF_INET, packed)
    assert _address(format_address((seen, 9000)))[0] == _text(packed)


def test_ipv4_on_a_socket_of_both_families_is_ipv4() -> None:
    assert _address(format_address(("::ffff:192.0.2.1", 9000, 0, 0))) == ("192.0.2.1", 9000)
