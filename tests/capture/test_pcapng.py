"""pcapng: what is written comes back, ordinary files are read, damaged ones are refused in a sentence."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.capture.columns.records import NO_TIME
from fairway.capture.frames import LinkType
from fairway.capture.pcapng import PcapngWriter
from fairway.core.errors import BadOption
from tests.capture.reading import Frame, read_capture

Written = tuple[int, bytes, int]

WRITTEN = st.tuples(st.integers(0, 2**63 - 1), st.binary(max_size=70), st.integers(0, 2))


def write(frames: list[Written]) -> bytes:
    out = bytearray()
    writer = PcapngWriter(out.extend, ["client", "relay", "server"])
    for at_ns, data, interface in frames:
        writer.frame(at_ns, data, interface)
    return bytes(out)


def block(order: str, kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    length = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + length + body + length


def section(order: str) -> bytes:
    return block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))


def interface(order: str, options: bytes = b"", snap_bytes: int = 0) -> bytes:
    return block(order, 1, struct.pack(order + "HHI", LinkType.ETHERNET, 0, snap_bytes) + options)


def named(order: str, name: bytes) -> bytes:
    """Return the option that names an interface with four letters."""
    return struct.pack(order + "HH4s", 2, 4, name)


def packet(order: str, ticks: int, data: bytes, number: int = 0) -> bytes:
    fixed = struct.pack(order + "5I", number, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data) + 1)
    return block(order, 6, fixed + data)


@given(st.lists(WRITTEN, max_size=6))
def test_what_is_written_comes_back(frames: list[Written]) -> None:
    points = ("client", "relay", "server")
    expected = [Frame(at_ns, LinkType.RAW, data, len(data), points[point]) for at_ns, data, point in frames]
    assert read_capture(write(frames)) == expected


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    ("option", "ticks", "at_ns"),
    [
        (b"", 1_000_001, 1_000_001_000),
        (bytes([9]), 1_000_001, 1_000_001),
        (bytes([3]), 1_001, 1_001_000_000),
        (bytes([0x80 | 10]), 1_536, 1_500_000_000),
    ],
)
def test_time_is_read_in_the_resolution_of_its_interface(order: str, option: bytes, ticks: int, at_ns: int) -> None:
    options = struct.pack(order + "HH", 9, 1) + option + bytes(3) if option else b""
    data = section(order) + interface(order, options) + packet(order, ticks, b"abc")
    assert read_capture(data) == [Frame(at_ns, LinkType.ETHERNET, b"abc", 4)]


def test_the_offset_of_an_interface_is_added() -> None:
    options = struct.pack("<HHq", 14, 8, 1_700_000_000)
    (frame,) = read_capture(section("<") + interface("<", options) + packet("<", 5, b""))
    assert frame.at_ns == 1_700_000_000_000_005_000


def test_each_section_has_its_own_order_and_interfaces() -> None:
    one = section("<") + interface("<") + interface("<", named("<", b"near")) + packet("<", 1, b"first", number=1)
    two = section(">") + interface(">", named(">", b"far ")) + packet(">", 2, b"second")
    assert [(frame.point, frame.data) for frame in read_capture(one + two)] == [("near", b"first"), ("far ", b"second")]


def test_other_blocks_are_passed_over() -> None:
    names = block("<", 4, bytes(4))
    data = section("<") + names + interface("<") + names + packet("<", 1, b"x") + block("<", 0x80000001, b"ours")
    assert len(read_capture(data)) == 1


@pytest.mark.parametrize("order", ["<", ">"])
def test_an_old_packet_has_a_short_number_and_counts_drops(order: str) -> None:
    fixed = struct.pack(order + "HH4I", 1, 9, 0, 5, 4, 7)
    second = interface(order, named(order, b"near"))
    (frame,) = read_capture(section(order) + interface(order) + second + block(order, 2, fixed + b"four"))
    assert (frame.at_ns, frame.data, frame.wire_bytes, frame.point) == (5_000, b"four", 7, "near")


def test_a_simple_packet_is_cut_at_the_snap_length() -> None:
    simple = block("<", 3, struct.pack("<I", 9) + b"four")
    data = section("<") + interface("<", snap_bytes=4) + simple
    assert read_capture(data) == [Frame(NO_TIME, LinkType.ETHERNET, b"four", 9)]


def test_the_caller_is_told_of_a_point_or_a_time_that_cannot_be_written() -> None:
    writer = PcapngWriter(bytearray().extend, ["client"])
    with pytest.raises(BadOption, match="points from 0 to 0"):
        writer.frame(0, b"", 1)
    with pytest.raises(BadOption, match="at_ns is -1"):
        writer.frame(-1, b"")
