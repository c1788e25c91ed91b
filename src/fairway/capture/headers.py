"""Numbers in the headers between a captured frame and its UDP datagram."""

from __future__ import annotations

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
