"""From a captured frame to the UDP datagram inside, through whatever link the capture was taken on.

    frame ── link header ──▶ ether type ── VLAN tags ──▶ IPv4 or IPv6 ── extension headers ──▶ UDP

Decoding is total: a frame gives a `Datagram`, or a `NoDatagram` that says why there is none. A first fragment shows
ports and the front of its payload and is marked; later ones hold no UDP header and are `NoDatagram`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from fairway.capture.frames import (
    DESTINATION_OPTIONS,
    ETHER_IPV4,
    ETHER_IPV6,
    ETHER_VLANS,
    EXTENSION_HEADERS_MAX,
    FAMILIES_IPV4,
    FAMILIES_IPV6,
    FRAGMENT,
    HOP_BY_HOP,
    MORE_FRAGMENTS,
    ROUTING,
    VLAN_TAGS_MAX,
    LinkType,
)
from fairway.capture.packets import PROTOCOL_UDP, UDP_HEADER_BYTES, Endpoint, checksum
from tests.capture.reading import Frame


@dataclass(frozen=True, slots=True)
class Datagram:
    """One UDP datagram as it was captured."""

    source: Endpoint
    destination: Endpoint
    payload: bytes
    payload_bytes: int
    """The length that the UDP header announces; more than there is in `payload` when the frame was cut."""
    first_fragment: bool
    """The rest of the payload travels in other frames."""
    checksum_right: bool | None
    """None where it cannot be known: not sent, cut or a fragment."""


@dataclass(frozen=True, slots=True)
class NoDatagram:
    """The frame holds no datagram that can be read; `reason` is a stable short name."""

    reason: str


class _Unreadable(Exception):
    """Carries a reason out of the layers."""


class _Payload(NamedTuple):
    """What an IP packet carries: `data` may be cut, `announced_bytes` is what its header promises."""

    addresses: bytes
    data: bytes
    announced_bytes: int


_Network = tuple[int, bytes]
"""An ether type and what it announces."""


def decode_frame(frame: Frame) -> Datagram | NoDatagram:
    """Finds the UDP datagram in a frame, or the reason why there is none."""
    link = _LINKS.get(frame.link_type)
    if link is None:
        return NoDatagram("link_type_unknown")
    try:
        ether_type, data = _without_vlans(*link(frame.data))
        if ether_type == ETHER_IPV4:
            return _ipv4(data)
        if ether_type == ETHER_IPV6:
            return _ipv6(data)
        return NoDatagram("not_ip")
    except struct.error:
        return NoDatagram("cut_in_headers")
    except _Unreadable as error:
        return NoDatagram(str(error))


def _ethernet(data: bytes) -> _Network:
    return struct.unpack_from("!H", data, 12)[0], data[14:]


def _linux_cooked(data: bytes) -> _Network:
    return struct.unpack_from("!H", data, 14)[0], data[16:]


def _linux_cooked_2(data: bytes) -> _Network:
    protocol, _ = struct.unpack_from("!H18s", data)
    return protocol, data[20:]


def _raw(data: bytes) -> _Network:
    (first,) = struct.unpack_from("B", data)
    return {4: ETHER_IPV4, 6: ETHER_IPV6}.get(first >> 4, 0), data


def _null(data: bytes) -> _Network:
    """The family is in the byte order of the machine that captured; no family is above 255."""
    (family,) = struct.unpack_from("<I", data)
    return _loopback_family(family if family < 0x10000 else family >> 24), data[4:]


def _loop(data: bytes) -> _Network:
    return _loopback_family(struct.unpack_from("!I", data)[0]), data[4:]


def _loopback_family(family: int) -> int:
    if family in FAMILIES_IPV4:
        return ETHER_IPV4
    return ETHER_IPV6 if family in FAMILIES_IPV6 else 0


_LINKS: dict[int, Callable[[bytes], _Network]] = {
    LinkType.NULL: _null,
    LinkType.ETHERNET: _ethernet,
    LinkType.RAW: _raw,
    LinkType.LOOP: _loop,
    LinkType.LINUX_SLL: _linux_cooked,
    LinkType.LINUX_SLL2: _linux_cooked_2,
    LinkType.IPV4: _raw,
    LinkType.IPV6: _raw,
}


def _without_vlans(ether_type: int, data: bytes) -> _Network:
    for _ in range(VLAN_TAGS_MAX):
        if ether_type not in ETHER_VLANS:
            break
        (ether_type,) = struct.unpack_from("!H", data, 2)
        data = data[4:]
    return ether_type, data


def _ipv4(data: bytes) -> Datagram | NoDatagram:
    version, length, fragment, protocol, source, destination = struct.unpack_from("!BxH2xHxB2x4s4s", data)
    header_bytes = (version & 0x0F) * 4
    if version >> 4 != 4 or header_bytes < 20 or length < header_bytes:
        return NoDatagram("ip_header_damaged")
    if protocol != PROTOCOL_UDP:
        return NoDatagram("not_udp")
    if fragment & 0x1FFF:
        return NoDatagram("later_fragment")
    hosts = str(IPv4Address(source)), str(IPv4Address(destination))
    payload = _Payload(source + destination, data[header_bytes:length], length - header_bytes)
    return _udp(hosts, payload, bool(fragment & MORE_FRAGMENTS))


def _ipv6(data: bytes) -> Datagram | NoDatagram:
    version, length, kind, source, destination = struct.unpack_from("!B3xHBx16s16s", data)
    if version >> 4 != 6:
        return NoDatagram("ip_header_damaged")
    kind, rest, more_fragments = _without_extensions(kind, data[40 : 40 + length])
    if kind != PROTOCOL_UDP:
        return NoDatagram("not_udp")
    hosts = str(IPv6Address(source)), str(IPv6Address(destination))
    extensions_bytes = len(data[40 : 40 + length]) - len(rest)
    return _udp(hosts, _Payload(source + destination, rest, length - extensions_bytes), more_fragments)


def _without_extensions(kind: int, data: bytes) -> tuple[int, bytes, bool]:
    """Return the kind of what follows the extension headers, that, and whether it is a first fragment."""
    more_fragments = False
    for _ in range(EXTENSION_HEADERS_MAX):
        if kind == FRAGMENT:
            kind, position = struct.unpack_from("!BxH4x", data)
            if position >> 3:
                raise _Unreadable("later_fragment")
            more_fragments, data = bool(position & 1), data[8:]
        elif kind in (HOP_BY_HOP, ROUTING, DESTINATION_OPTIONS):
            kind, eights = struct.unpack_from("!BB", data)
            data = data[8 * (eights + 1) :]
        else:
            break
    return kind, data, more_fragments


def _udp(hosts: tuple[str, str], ip: _Payload, more_fragments: bool) -> Datagram | NoDatagram:
    source_port, destination_port, udp_bytes, check = struct.unpack_from("!4H", ip.data)
    if udp_bytes < UDP_HEADER_BYTES or (udp_bytes > ip.announced_bytes and not more_fragments):
        return NoDatagram("udp_length_wrong")
    data = ip.data[:udp_bytes]
    whole = len(data) == udp_bytes
    return Datagram(
        source=(hosts[0], source_port),
        destination=(hosts[1], destination_port),
        payload=data[UDP_HEADER_BYTES:],
        payload_bytes=udp_bytes - UDP_HEADER_BYTES,
        first_fragment=more_fragments,
        checksum_right=_checksum_right(ip.addresses, data) if whole and check else None,
    )


def _checksum_right(addresses: bytes, data: bytes) -> bool:
    pseudo = addresses + struct.pack("!HH", PROTOCOL_UDP, len(data))
    return checksum(pseudo + data + bytes(len(data) % 2)) == 0
