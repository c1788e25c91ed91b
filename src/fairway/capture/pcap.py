"""pcap: one header, then records.

    header   magic u32, major u16, minor u16, two fields that nobody uses u32 u32, snap length u32, link type u32
    record   seconds u32, fraction u32, captured length u32, length on the wire u32, data

The magic tells the byte order, and whether the fraction counts micro- or nanoseconds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Literal

from fairway.capture.frames import NS_PER_S, SNAP_BYTES, Frame, LinkType, Write
from fairway.capture.source import RECORD_BYTES_MAX, Read, Source
from fairway.core.errors import BadOption, DamagedCapture

MAGIC_MICROSECONDS = 0xA1B2C3D4
MAGIC_NANOSECONDS = 0xA1B23C4D
FRACTION_NS = {MAGIC_MICROSECONDS: 1_000, MAGIC_NANOSECONDS: 1}

HEADER_BYTES = 24
RECORD_HEADER_BYTES = 16
SECONDS_MAX = 0xFFFFFFFF
LINK_TYPE_MASK = 0xFFFF
"""The upper bits of the link type hold the length of a frame check sequence, which no decoder here needs."""

ByteOrder = Literal["<", ">"]


class PcapWriter:
    """Writes one pcap file; with microseconds the rest of the time is cut off."""

    def __init__(
        self,
        write: Write,
        link_type: int = LinkType.RAW,
        *,
        nanoseconds: bool = True,
        order: ByteOrder = "<",
    ) -> None:
        self._write = write
        magic = MAGIC_NANOSECONDS if nanoseconds else MAGIC_MICROSECONDS
        self._fraction_ns = FRACTION_NS[magic]
        self._record = struct.Struct(order + "4I")
        write(struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, SNAP_BYTES, link_type))

    def frame(self, at_ns: int, data: bytes, *, wire_bytes: int | None = None) -> None:
        """Writes one record."""
        seconds, rest_ns = divmod(at_ns, NS_PER_S)
        if not 0 <= seconds <= SECONDS_MAX:
            raise BadOption(f"at_ns is {at_ns}; pcap holds times from 1970 to 2106")
        length = len(data)
        header = self._record.pack(
            seconds, rest_ns // self._fraction_ns, length, length if wire_bytes is None else wire_bytes
        )
        self._write(header + data)


def read_pcap(source: bytes | Read) -> Iterator[Frame]:
    """Gives every record in the order of the file; raises `DamagedCapture` where it is damaged."""
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
