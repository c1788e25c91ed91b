"""Captures record by record, as their formats describe them: the reference for the readers by columns."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fairway.capture.frames import NS_PER_S, RECORD_BYTES_MAX, Interface
from fairway.capture.pcap import FRACTION_NS, HEADER_BYTES, LINK_TYPE_MASK, RECORD_HEADER_BYTES
from fairway.capture.pcapng import (
    BLOCK_BYTES_MIN,
    BYTE_ORDER_MAGIC,
    ENHANCED_PACKET,
    INTERFACE,
    OLD_PACKET,
    OPTION_COMMENT,
    SECTION_HEADER,
    SIMPLE_PACKET,
    read_interface,
    read_options,
)
from fairway.core.errors import DamagedCapture

Read = Callable[[int], bytes]
"""Returns up to so many bytes, and none at the end, as a file's `read` does."""


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
    comments: tuple[str, ...] = ()


def read_capture(source: bytes | Read) -> Iterator[Frame]:
    """Return every frame of a pcap or pcapng file, in order; raise `DamagedCapture` where it is damaged."""
    whole = Source(source)
    reader = read_pcapng if whole.peek(4) == SECTION_HEADER.to_bytes(4) else read_pcap
    return reader(whole.read)


def read_pcap(source: bytes | Read) -> Iterator[Frame]:
    """Return every record in the order of the file; raise `DamagedCapture` where it is damaged."""
    bytes_left = Source(source)
    header = bytes_left.take(HEADER_BYTES, "the pcap header")
    order, fraction_ns = _byte_order(header[:4])
    link_type = struct.unpack_from(order + "I", header, 20)[0] & LINK_TYPE_MASK
    record = struct.Struct(order + "4I")
    while not bytes_left.exhausted:
        start = bytes_left.offset
        seconds, fraction, captured, wire_bytes = record.unpack(bytes_left.take(RECORD_HEADER_BYTES, "a record header"))
        if captured > RECORD_BYTES_MAX:
            raise DamagedCapture(
                f"the record at byte {start} has {captured} bytes; at most {RECORD_BYTES_MAX} are read"
            )
        data = bytes_left.take(captured, "a record")
        yield Frame(seconds * NS_PER_S + fraction * fraction_ns, link_type, data, wire_bytes)


def _byte_order(magic: bytes) -> tuple[str, int]:
    for order in "<>":
        fraction_ns = FRACTION_NS.get(struct.unpack(order + "I", magic)[0])
        if fraction_ns is not None:
            return order, fraction_ns
    raise DamagedCapture(f"the capture starts with {magic.hex()}, which is the magic of no pcap file")


def read_pcapng(source: bytes | Read) -> Iterator[Frame]:
    """Return every packet of every section in the order of the file; raise `DamagedCapture` where it is damaged."""
    bytes_left = Source(source)
    order = ""
    interfaces: list[Interface] = []
    while not bytes_left.exhausted:
        if bytes_left.peek(4) == SECTION_HEADER.to_bytes(4):
            order, interfaces = _section_order(bytes_left), []
        elif not order:
            raise DamagedCapture("the capture does not start with a pcapng section header")
        kind, body = _take_block(bytes_left, order)
        try:
            if kind == INTERFACE:
                interfaces.append(read_interface(body, order))
            elif kind in (ENHANCED_PACKET, OLD_PACKET):
                yield _read_enhanced(body, order, interfaces, kind)
            elif kind == SIMPLE_PACKET:
                yield _read_simple(body, order, interfaces)
        except (struct.error, IndexError) as error:
            where = f"the block of kind {kind} that ends at byte {bytes_left.offset}"
            raise DamagedCapture(f"{where} contradicts itself or names no interface of its section") from error


def _section_order(source: Source) -> str:
    """Finds the byte order of the section that starts here; its length cannot be read before."""
    magic = source.peek(12)[8:]
    for order in "<>":
        if magic == struct.pack(order + "I", BYTE_ORDER_MAGIC):
            return order
    raise DamagedCapture(f"the section header at byte {source.offset} has no byte-order magic")


def _take_block(source: Source, order: str) -> tuple[int, bytes]:
    start = source.offset
    kind, length = struct.unpack(order + "II", source.take(8, "a block header"))
    if length < BLOCK_BYTES_MIN or length % 4 or length > RECORD_BYTES_MAX:
        rule = f"it must be a multiple of 4 from {BLOCK_BYTES_MIN} to {RECORD_BYTES_MAX}"
        raise DamagedCapture(f"the block at byte {start} has the length {length}; {rule}")
    body = source.take(length - BLOCK_BYTES_MIN, "a block")
    (length_again,) = struct.unpack(order + "I", source.take(4, "a block's second length"))
    if length_again != length:
        raise DamagedCapture(f"the block at byte {start} has the length {length} in front and {length_again} behind")
    return kind, body


def _read_enhanced(body: bytes, order: str, interfaces: Sequence[Interface], kind: int) -> Frame:
    layout = "H2x4I" if kind == OLD_PACKET else "5I"
    number, high, low, captured, wire_bytes = struct.unpack_from(order + layout, body)
    interface = interfaces[number]
    end = 20 + captured
    if end > len(body):
        raise struct.error("the captured length reaches past the block")
    comments = tuple(
        value.decode(errors="replace")
        for code, value in read_options(body, end + -captured % 4, order)
        if code == OPTION_COMMENT
    )
    at_ns = interface.at_ns(high << 32 | low)
    return Frame(at_ns, interface.link_type, body[20:end], wire_bytes, number, interface.name, comments)


def _read_simple(body: bytes, order: str, interfaces: Sequence[Interface]) -> Frame:
    """A simple packet has no time and belongs to the first interface."""
    (wire_bytes,) = struct.unpack_from(order + "I", body)
    interface = interfaces[0]
    captured = min(wire_bytes, interface.snap_bytes)
    if 4 + captured > len(body):
        raise struct.error("the captured length reaches past the block")
    return Frame(0, interface.link_type, body[4 : 4 + captured], wire_bytes, 0, interface.name)


class Source:
    """Hands out exact runs of bytes in order and knows how far it has come."""

    __slots__ = ("_ahead", "_read", "offset")

    def __init__(self, source: bytes | Read) -> None:
        self._read = _from_bytes(source) if isinstance(source, bytes) else source
        self._ahead = b""
        self.offset = 0

    def take(self, count: int, what: str) -> bytes:
        """Return exactly `count` bytes; raise `DamagedCapture` when the capture ends before."""
        data = self._fetch(count)
        if len(data) < count:
            raise DamagedCapture(f"the capture ends at byte {self.offset + len(data)}, in the middle of {what}")
        self.offset += count
        return data

    def peek(self, count: int) -> bytes:
        """Return the next `count` bytes, or fewer at the end, without taking them."""
        self._ahead = self._fetch(count)
        return self._ahead

    def read(self, count: int) -> bytes:
        """Return up to `count` bytes, and none at the end: a source is a `Read` of its own."""
        data = self._fetch(count)
        self.offset += len(data)
        return data

    @property
    def exhausted(self) -> bool:
        """Whether nothing follows."""
        return not self.peek(1)

    def _fetch(self, count: int) -> bytes:
        """A `read` may give less than it was asked for before the end; only an empty answer is the end."""
        pieces = [self._ahead[:count]]
        self._ahead = self._ahead[count:]
        missing = count - len(pieces[0])
        while missing > 0 and (piece := self._read(missing)):
            pieces.append(piece)
            missing -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _from_bytes(data: bytes) -> Read:
    position = 0

    def read(count: int) -> bytes:
        nonlocal position
        piece = data[position : position + count]
        position += len(piece)
        return piece

    return read
