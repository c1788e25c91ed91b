"""A trace holds every datagram with its point, and Wireshark reads the same out of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fairway.capture.pcap import PcapWriter
from fairway.capture.pcapng import PcapngWriter
from tests.capture.reading import read_capture
from tests.conftest import Tshark

START_NS = 1_700_000_000_123_456_789
SENT = [
    (START_NS, ("10.0.0.1", 40_000), ("10.0.0.2", 40_001), b"hello", 0),
    (START_NS + 1, ("10.0.0.1", 40_000), ("10.0.0.2", 40_001), b"", 1),
    (START_NS + 2, ("fd00::1", 40_000), ("fd00::2", 40_001), bytes(range(255)), 0),
    (START_NS + 3_000_000_000, ("10.0.0.2", 40_001), ("10.0.0.1", 40_000), bytes(65_507), 1),
]
FIELDS = """frame.time_epoch frame.interface_name ip.src ip.dst ipv6.src ipv6.dst udp.srcport udp.dstport udp.payload
udp.checksum.status ip.checksum.status _ws.malformed _ws.expert.severity""".split()


def trace() -> bytes:
    out = bytearray()
    writer = PcapngWriter(out.extend, points=["client", "server"])
    for at_ns, source, destination, payload, point in SENT:
        writer.datagram(at_ns, source, destination, payload, point)
    return bytes(out)


def test_tshark_reads_the_same_out_of_a_trace(tshark: Tshark, tmp_path: Path) -> None:
    path = tmp_path / "trace.pcapng"
    path.write_bytes(trace())
    rows = tshark(path, FIELDS)
    assert len(rows) == len(SENT)
    for row, (at_ns, source, destination, payload, point) in zip(rows, SENT, strict=True):
        version = "ipv6" if ":" in source[0] else "ip"
        assert row["frame.time_epoch"] == f"{at_ns // 10**9}.{at_ns % 10**9:09}"
        assert row["frame.interface_name"] == ("client", "server")[point]
        assert (row[f"{version}.src"], row[f"{version}.dst"]) == (source[0], destination[0])
        assert (row["udp.srcport"], row["udp.dstport"]) == (str(source[1]), str(destination[1]))
        assert row["udp.payload"] == payload.hex()
        assert (row["udp.checksum.status"], row["_ws.malformed"]) == ("1", "")
        assert row["ip.checksum.status"] in ("1", "")


def test_tshark_notices_a_wrong_checksum(tshark: Tshark, tmp_path: Path) -> None:
    path = tmp_path / "trace.pcapng"
    path.write_bytes(trace().replace(b"hello", b"hellp"))
    assert tshark(path, FIELDS)[0]["udp.checksum.status"] == "0"


@pytest.mark.parametrize("nanoseconds", [True, False])
def test_tshark_reads_our_pcap(tshark: Tshark, tmp_path: Path, nanoseconds: bool) -> None:
    out = bytearray()
    writer = PcapWriter(out.extend, nanoseconds=nanoseconds, order=">")
    for frame in read_capture(trace()):
        writer.frame(frame.at_ns, frame.data)
    path = tmp_path / "trace.pcap"
    path.write_bytes(out)
    rows = tshark(path, FIELDS)
    assert [row["udp.payload"] for row in rows] == [sent[3].hex() for sent in SENT]
    assert rows[0]["frame.time_epoch"] == ("1700000000.123456789" if nanoseconds else "1700000000.123456000")


def test_what_wireshark_writes_is_read(tmp_path: Path, tshark: Tshark) -> None:
    """Out of a pcap file Wireshark makes sections and interfaces with options that we never write."""
    ours, theirs = tmp_path / "ours.pcap", tmp_path / "theirs.pcapng"
    out = bytearray()
    writer = PcapWriter(out.extend)
    for frame in read_capture(trace()):
        writer.frame(frame.at_ns, frame.data)
    ours.write_bytes(out)
    subprocess.run(["tshark", "-n", "-r", ours, "-w", theirs, "-F", "pcapng"], capture_output=True, check=True)
    read = [(frame.at_ns, frame.link_type, frame.data, frame.wire_bytes) for frame in read_capture(theirs.read_bytes())]
    assert read == [(frame.at_ns, frame.link_type, frame.data, frame.wire_bytes) for frame in read_capture(bytes(out))]
