"""pcap: one header, then records.

    header   magic u32, major u16, minor u16, two fields that nobody uses u32 u32, snap length u32, link type u32
    record   seconds u32, fraction u32, captured length u32, length on the wire u32, data

The magic tells the byte order, and whether the fraction counts micro- or nanoseconds.
"""

from __future__ import annotations

import struct
from typing import Literal

from fairway.capture.frames import NS_PER_S, SNAP_BYTES, LinkType, Write
from fairway.core.errors import BadOption

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
        seconds, rest_ns = divmod(at_ns, NS_PER_S)
        if not 0 <= seconds <= SECONDS_MAX:
            raise BadOption(f"at_ns is {at_ns}; pcap holds times from 1970 to 2106")
        length = len(data)
        header = self._record.pack(
            seconds, rest_ns // self._fraction_ns, length, length if wire_bytes is None else wire_bytes
        )
        self._write(header + data)
