"""Sound captures record by record, as their formats describe them: the reference for the readers by columns."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fairway.capture.frames import NS_PER_S, Interface
from fairway.capture.pcap import FRACTION_NS, HEADER_BYTES, LINK_TYPE_MASK, RECORD_HEADER_BYTES
from fairway.capture.pcapng import (
    BYTE_ORDER_MAGIC,
    ENHANCED_PACKET,
    INTERFACE,
    OLD_PACKET,
    SECTION_HEADER,
    SIMPLE_PACKET,
    read_interface,
)


@dataclass(frozen=True, slots=True)
class Frame:
    """One captured frame. `data` may be shorter than the `wire_bytes` that were on the wire.

    `link_type` stays a plain number: a file may hold link types that Fairway does not read.
    """

    at_ns: int
    link_type: int
    data: bytes
    wire_bytes: int
    interface: int = 0
    point: str | None = None
    """The name of the place of capture, where the file gives one."""


def read_capture(data: bytes) -> Iterator[Frame]:
    """Return every frame of a pcap or pcapng file, in order."""
    return read_pcapng(data) if data[:4] == SECTION_HEADER.to_bytes(4) else read_pcap(data)


def read_pcap(data: bytes) -> Iterator[Frame]:
    """Return every record in the order of the file."""
    order = next(order for order in "<>" if struct.unpack_from(order + "I", data)[0] in FRACTION_NS)
    fraction_ns = FRACTION_NS[struct.unpack_from(order + "I", data)[0]]
    link_type = struct.unpack_from(order + "I", data, 20)[0] & LINK_TYPE_MASK
    at = HEADER_BYTES
    while at < len(data):
        seconds, fraction, captured, wire_bytes = struct.unpack_from(order + "4I", data, at)
        at += RECORD_HEADER_BYTES + captured
        yield Frame(seconds * NS_PER_S + fraction * fraction_ns, link_type, data[at - captured : at], wire_bytes)


def read_pcapng(data: bytes) -> Iterator[Frame]:
    """Return every packet of every section in the order of the file."""
    order, at = "", 0
    interfaces: list[Interface] = []
    while at < len(data):
        if data[at : at + 4] == SECTION_HEADER.to_bytes(4):
            magic = struct.pack("<I", BYTE_ORDER_MAGIC)
            order, interfaces = "<" if data[at + 8 : at + 12] == magic else ">", []
        kind, length = struct.unpack_from(order + "II", data, at)
        body = data[at + 8 : at + length - 4]
        at += length
        if kind == INTERFACE:
            interfaces.append(read_interface(body, order))
        elif kind in (ENHANCED_PACKET, OLD_PACKET):
            yield _read_enhanced(body, order, interfaces, kind)
        elif kind == SIMPLE_PACKET:
            # It has no time and belongs to the first interface.
            (wire_bytes,) = struct.unpack_from(order + "I", body)
            captured = min(wire_bytes, interfaces[0].snap_bytes)
            yield Frame(0, interfaces[0].link_type, body[4 : 4 + captured], wire_bytes, 0, interfaces[0].name)


def _read_enhanced(body: bytes, order: str, interfaces: Sequence[Interface], kind: int) -> Frame:
    layout = "H2x4I" if kind == OLD_PACKET else "5I"
    number, high, low, captured, wire_bytes = struct.unpack_from(order + layout, body)
    interface, end = interfaces[number], 20 + captured
    at_ns = interface.at_ns(high << 32 | low)
    return Frame(at_ns, interface.link_type, body[20:end], wire_bytes, number, interface.name)
