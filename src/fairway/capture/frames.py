"""What pcap and pcapng share: link types, limits, interfaces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

Write = Callable[[bytes], object]
"""Takes bytes away, as a file's `write` does."""

NS_PER_S = 1_000_000_000

RECORD_BYTES_MAX = 16 << 20
"""The longest record that is believed: a damaged length must not make a reader ask for gigabytes."""

SNAP_BYTES = 262_144
"""The capture length that files announce; larger than any frame that a UDP datagram fits into."""


class LinkType(IntEnum):
    """The link types that Fairway finds a datagram in, numbered as in the registry of tcpdump.org."""

    NULL = 0
    ETHERNET = 1
    RAW = 101
    LOOP = 108
    LINUX_SLL = 113
    IPV4 = 228
    IPV6 = 229
    LINUX_SLL2 = 276


@dataclass(frozen=True, slots=True)
class Interface:
    """What a pcapng file says about the place where frames were captured."""

    link_type: int
    snap_bytes: int
    name: str | None
    ticks_per_s: int
    offset_s: int

    def at_ns(self, ticks: int) -> int:
        """Return a time of this interface in nanoseconds since 1970."""
        return self.offset_s * NS_PER_S + ticks * NS_PER_S // self.ticks_per_s
