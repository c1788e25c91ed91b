"""Frames decoded by columns agree with frames decoded one by one, whatever they hold."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.capture.columns.datagrams import REASONS, Datagrams, decode_frames
from fairway.capture.frames import LinkType
from fairway.capture.packets import Endpoint, encode_ip
from tests.capture.datagrams import Datagram, NoDatagram, decode_frame
from tests.capture.reading import Frame

IPV4 = encode_ip(("10.0.0.1", 1_000), ("10.0.0.2", 2_000), b"hello")
IPV6 = encode_ip(("fd00::1", 1_000), ("fd00::2", 2_000), b"hello")
HOP_BY_HOP = IPV6[:4] + (len(IPV6) - 24).to_bytes(2) + bytes([0]) + IPV6[7:40] + bytes([60, 0] + [0] * 6)
EXTENDED = HOP_BY_HOP + bytes([17, 0] + [0] * 6) + IPV6[40:]
FRAGMENTED = IPV6[:4] + (len(IPV6) - 32).to_bytes(2) + bytes([44]) + IPV6[7:40] + bytes([17] + [0] * 7) + IPV6[40:]
WITH_OPTIONS = bytes([0x46]) + IPV4[1:2] + (len(IPV4) + 4).to_bytes(2) + IPV4[4:20] + bytes(4) + IPV4[20:]
FIRST_OF_TWO = IPV4[:6] + b"\x20\x00" + IPV4[8:24] + (2_000).to_bytes(2) + IPV4[26:]
FIRST_OF_TWO_6 = FRAGMENTED[:43] + b"\1" + FRAGMENTED[44:52] + (2_000).to_bytes(2) + FRAGMENTED[54:]
PACKETS = (IPV4, IPV6, EXTENDED, FRAGMENTED, WITH_OPTIONS, FIRST_OF_TWO, FIRST_OF_TWO_6)
LINK_HEADERS = {
    LinkType.ETHERNET: (
        bytes(12) + b"\x08\x00",
        bytes(12) + b"\x86\xdd",
        bytes(12) + b"\x88\xa8\0\5\x81\0\0\6\x08\x00",
    ),
    LinkType.LINUX_SLL: (bytes(14) + b"\x08\x00", bytes(14) + b"\x86\xdd"),
    LinkType.LINUX_SLL2: (b"\x08\x00" + bytes(18), b"\x86\xdd" + bytes(18), b"\x81\x00" + bytes(20) + b"\x86\xdd"),
    LinkType.NULL: (b"\2\0\0\0", b"\0\0\0\x1e"),
    LinkType.LOOP: (b"\0\0\0\2", b"\0\0\0\x18"),
    LinkType.RAW: (b"",),
    LinkType.IPV4: (b"",),
    LinkType.IPV6: (b"",),
}


@st.composite
def frames(draw: st.DrawFn) -> tuple[int, bytes]:
    """A frame of a known link type, then a few bytes changed and the end cut or padded."""
    link_type = draw(st.sampled_from([*LINK_HEADERS]))
    data = bytearray(draw(st.sampled_from(LINK_HEADERS[link_type])) + draw(st.sampled_from(PACKETS)))
    for place, value in draw(st.lists(st.tuples(st.integers(0, len(data) - 1), st.integers(0, 255)), max_size=3)):
        data[place] = value
    length = draw(st.one_of(st.just(len(data)), st.integers(0, len(data) + 8)))
    return draw(st.sampled_from([link_type, link_type, link_type, 147])), bytes(data[:length].ljust(length, b"\0"))


def endpoint(high: int, low: int, port: int, *, is_ipv6: bool) -> Endpoint:
    return str(IPv6Address(high << 64 | low) if is_ipv6 else IPv4Address(low)), port


def row(found: Datagrams, number: int, buffer: bytes) -> Datagram | NoDatagram:
    if found.reason[number]:
        return NoDatagram(REASONS[found.reason[number]])
    is_ipv6 = bool(found.is_ipv6[number])
    start = int(found.payload_offset[number])
    source = int(found.source_high[number]), int(found.source_low[number]), int(found.source_port[number])
    destination = (
        int(found.destination_high[number]),
        int(found.destination_low[number]),
        int(found.destination_port[number]),
    )
    return Datagram(
        source=endpoint(*source, is_ipv6=is_ipv6),
        destination=endpoint(*destination, is_ipv6=is_ipv6),
        payload=buffer[start : start + int(found.payload_captured[number])],
        payload_bytes=int(found.payload_bytes[number]),
        first_fragment=bool(found.first_fragment[number]),
        checksum_right=None,
    )


def expected(link_type: int, data: bytes) -> Datagram | NoDatagram:
    decoded = decode_frame(Frame(0, link_type, data, len(data)))
    if isinstance(decoded, NoDatagram):
        return decoded
    return Datagram(
        decoded.source, decoded.destination, decoded.payload, decoded.payload_bytes, decoded.first_fragment, None
    )


@settings(max_examples=600, deadline=None)
@given(st.lists(frames(), max_size=6))
def test_columns_agree_with_one_frame_at_a_time(given_frames: list[tuple[int, bytes]]) -> None:
    buffer = b"".join(data for _, data in given_frames)
    lengths = np.array([len(data) for _, data in given_frames], dtype=np.int64)
    links = np.array([link for link, _ in given_frames], dtype=np.int64)
    found = decode_frames(np.frombuffer(buffer, dtype=np.uint8), np.cumsum(lengths) - lengths, lengths, links)
    assert [row(found, number, buffer) for number in range(len(given_frames))] == [
        expected(*frame) for frame in given_frames
    ]


def test_every_reason_is_one_that_a_single_frame_gives() -> None:
    assert len(set(REASONS)) == len(REASONS)
    assert REASONS[0] == ""
