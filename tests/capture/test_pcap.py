"""pcap in all four forms, and what is no pcap."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.capture.columns.walks import STEP_S_MAX
from fairway.capture.frames import LinkType
from fairway.capture.pcap import ByteOrder, PcapWriter
from fairway.core.errors import BadOption
from tests.capture.reading import Frame, read_capture

ORDERS: list[ByteOrder] = ["<", ">"]
STEP_NS_MAX = STEP_S_MAX * 10**9
FRAMES = st.integers(0, (2**32 - 1) * 10**9 - STEP_NS_MAX).flatmap(
    lambda first_ns: st.lists(
        st.tuples(st.integers(first_ns, first_ns + STEP_NS_MAX), st.binary(max_size=50)), max_size=6
    )
)
"""A larger step between two records is a sign of damage."""


def write(frames: list[tuple[int, bytes]], *, nanoseconds: bool, order: ByteOrder) -> bytes:
    out = bytearray()
    writer = PcapWriter(out.extend, LinkType.ETHERNET, nanoseconds=nanoseconds, order=order)
    for at_ns, data in frames:
        writer.frame(at_ns, data, wire_bytes=len(data) + 3)
    return bytes(out)


@given(FRAMES, st.booleans(), st.sampled_from(ORDERS))
def test_what_is_written_comes_back(frames: list[tuple[int, bytes]], nanoseconds: bool, order: ByteOrder) -> None:
    kept_ns = 1 if nanoseconds else 1_000
    expected = [Frame(at // kept_ns * kept_ns, LinkType.ETHERNET, data, len(data) + 3) for at, data in frames]
    assert read_capture(write(frames, nanoseconds=nanoseconds, order=order)) == expected


def test_the_bytes_are_those_of_tcpdump() -> None:
    header = bytes.fromhex("d4c3b2a1 0200 0400 00000000 00000000 00000400 01000000")
    record = bytes.fromhex("01000000 02000000 02000000 05000000 6869")
    assert write([(1_000_002_000, b"hi")], nanoseconds=False, order="<") == header + record


def test_the_check_sequence_bits_of_the_link_type_are_left_out() -> None:
    header = struct.pack(">IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 0x24000001)
    (frame,) = read_capture(header + struct.pack(">4I2s", 1, 0, 2, 2, b"hi"))
    assert frame.link_type == LinkType.ETHERNET


def test_a_time_past_the_format_is_the_callers_mistake() -> None:
    with pytest.raises(BadOption, match="2106"):
        PcapWriter(bytearray().extend).frame(2**32 * 10**9, b"")
