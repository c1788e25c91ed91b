"""pcapng: sections of blocks, each with its length at both ends.

    every block      type u32, total length u32, body, total length u32; padded to 4 bytes
    section header   0a0d0d0a; byte-order magic 1a2b3c4d u32, major u16, minor u16, section length i64, options
    interface        1; link type u16, reserved u16, snap length u32, options
    simple packet    3; length on the wire u32, data
    enhanced packet  6; interface u32, time high u32, time low u32, captured u32, length on the wire u32, data, options
    an option        code u16, length u16, value, padded to 4 bytes; code 0 ends the list

Each section has a byte order of its own, and its own interfaces counted from 0. Other blocks are passed over: the
format asks readers to.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from fairway.capture.frames import RECORD_BYTES_MAX, SNAP_BYTES, Interface, LinkType, Write
from fairway.capture.packets import Endpoint, encode_ip
from fairway.core.errors import BadOption
from fairway.core.machine import Buffer

SECTION_HEADER = 0x0A0D0D0A
INTERFACE = 1
OLD_PACKET = 2
"""What stood before the enhanced packet: the interface's number has two bytes, and two more count drops."""
SIMPLE_PACKET = 3
ENHANCED_PACKET = 6

BYTE_ORDER_MAGIC = 0x1A2B3C4D
LENGTH_UNKNOWN = -1
NANOSECONDS_DIGITS = 9
MICROSECONDS_DIGITS = 6

OPTION_END = 0
OPTION_INTERFACE_NAME = 2
OPTION_USER_APPLICATION = 4
OPTION_TIME_RESOLUTION = 9
OPTION_TIME_OFFSET = 14
OPTION_BYTES_MAX = 0xFFFF

BLOCK_BYTES_MIN = 12


class PcapngWriter:
    """Writes one little-endian section with nanosecond interfaces, one for each named point of capture."""

    def __init__(self, write: Write, points: Sequence[str], link_type: int = LinkType.RAW) -> None:
        self._write = write
        self._interfaces = len(points)
        write(_section_header())
        for point in points:
            write(_interface(point, link_type))

    def frame(self, at_ns: int, data: bytes, interface: int = 0, *, wire_bytes: int | None = None) -> None:
        """Write one enhanced packet block."""
        if not 0 <= interface < self._interfaces:
            raise BadOption(f"point is {interface}; the trace has points from 0 to {self._interfaces - 1}")
        if not 0 <= at_ns < 1 << 64:
            raise BadOption(f"at_ns is {at_ns}; pcapng holds 64 bits of nanoseconds since 1970")
        length = len(data)
        fixed = struct.pack(
            "<5I", interface, at_ns >> 32, at_ns & 0xFFFFFFFF, length, length if wire_bytes is None else wire_bytes
        )
        self._write(_block(ENHANCED_PACKET, fixed + data + bytes(-length % 4)))

    def datagram(self, at_ns: int, source: Endpoint, destination: Endpoint, payload: Buffer, point: int = 0) -> None:
        """Write a datagram as it would have been captured at a point: inside a raw IP packet."""
        self.frame(at_ns, encode_ip(source, destination, payload), point)


def _section_header() -> bytes:
    fixed = struct.pack("<IHHq", BYTE_ORDER_MAGIC, 1, 0, LENGTH_UNKNOWN)
    return _block(SECTION_HEADER, fixed + _options([(OPTION_USER_APPLICATION, b"Fairway")]))


def _interface(point: str, link_type: int) -> bytes:
    options = _options(
        [(OPTION_INTERFACE_NAME, _cut(point)), (OPTION_TIME_RESOLUTION, bytes([NANOSECONDS_DIGITS]))],
    )
    return _block(INTERFACE, struct.pack("<HHI", link_type, 0, SNAP_BYTES) + options)


def _block(kind: int, body: bytes) -> bytes:
    length = len(body) + BLOCK_BYTES_MIN
    return struct.pack("<II", kind, length) + body + struct.pack("<I", length)


def _options(options: Sequence[tuple[int, bytes]]) -> bytes:
    pieces = [struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4) for code, value in options]
    return b"".join(pieces) + struct.pack("<HH", OPTION_END, 0)


def _cut(text: str) -> bytes:
    """Return text as UTF-8 that fits an option, cut between characters."""
    return text.encode()[:OPTION_BYTES_MAX].decode(errors="ignore").encode()


def read_interface(body: bytes, order: str) -> Interface:
    """Read what an interface block says; raise `struct.error` or `IndexError` where it contradicts itself."""
    link_type, _, snap_bytes = struct.unpack_from(order + "HHI", body)
    options = dict(read_options(body, 8, order))
    name = options.get(OPTION_INTERFACE_NAME)
    return Interface(
        link_type,
        snap_bytes or RECORD_BYTES_MAX,
        None if name is None else name.decode(errors="replace"),
        _ticks_per_s(options.get(OPTION_TIME_RESOLUTION, bytes([MICROSECONDS_DIGITS]))[0]),
        struct.unpack(order + "q", options.get(OPTION_TIME_OFFSET, bytes(8)))[0],
    )


def _ticks_per_s(resolution: int) -> int:
    """The high bit chooses between powers of two and of ten."""
    return 1 << (resolution & 0x7F) if resolution & 0x80 else pow(10, resolution)


def read_options(body: bytes, position: int, order: str) -> Iterator[tuple[int, bytes]]:
    """Yield the code and value of each option from an offset on; raise `struct.error` where one is damaged."""
    while position + 4 <= len(body):
        code, length = struct.unpack_from(order + "HH", body, position)
        if code == OPTION_END:
            return
        position += 4
        if position + length > len(body):
            raise struct.error("an option reaches past its block")
        yield code, body[position : position + length]
        position += length + -length % 4
