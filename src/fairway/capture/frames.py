"""What readers and writers of captures share: link types, numbers in the headers of frames, limits, interfaces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

ETHER_IPV4 = 0x0800
ETHER_IPV6 = 0x86DD
ETHER_VLANS = (0x8100, 0x88A8, 0x9100)
VLAN_TAGS_MAX = 4
EXTENSION_HEADERS_MAX = 8

FAMILIES_IPV4 = (2,)
FAMILIES_IPV6 = (10, 24, 28, 30)
"""AF_INET6 of Linux, of NetBSD and OpenBSD, of FreeBSD and of macOS."""

HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION_OPTIONS = 0, 43, 44, 60
MORE_FRAGMENTS = 0x2000


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
    """What a pcapng file says about the point where frames were captured."""

    link_type: int
    snap_bytes: int
    name: str | None
    ticks_per_s: int
    offset_s: int

    def at_ns(self, ticks: int) -> int:
        """Return a time of this interface in nanoseconds since 1970."""
        return self.offset_s * NS_PER_S + ticks * NS_PER_S // self.ticks_per_s
