"""UDP datagrams as captured frames: synthetic IP and UDP headers with right checksums."""

from __future__ import annotations

import struct
from functools import lru_cache
from ipaddress import ip_address

from fairway.core.errors import BadAddress, BadMessage
from fairway.core.machine import Buffer

Endpoint = tuple[str, int]
"""A numeric IPv4 or IPv6 address and a port."""

PROTOCOL_UDP = 17
UDP_HEADER_BYTES = 8
IPV4_HEADER_BYTES = 20
HOPS_MAX = 64
DONT_FRAGMENT = 0x4000
IP_LENGTH_MAX = 0xFFFF


def encode_ip(source: Endpoint, destination: Endpoint, payload: Buffer) -> bytes:
    """Return the raw IP packet that carries a UDP payload from one address to the other."""
    source_packed, destination_packed = _packed(source[0]), _packed(destination[0])
    if len(source_packed) != len(destination_packed):
        raise BadAddress(f"{source[0]} and {destination[0]} are of different IP versions; a packet has one")
    pseudo_address = source_packed + destination_packed
    udp_bytes = UDP_HEADER_BYTES + len(payload)
    if udp_bytes + (IPV4_HEADER_BYTES if len(source_packed) == 4 else 0) > IP_LENGTH_MAX:
        raise BadMessage(f"a payload of {len(payload)} bytes does not fit an IP packet of {IP_LENGTH_MAX} bytes")
    try:
        ports = struct.pack("!HHH", source[1], destination[1], udp_bytes)
    except struct.error as error:
        raise BadAddress(f"the ports {source[1]} and {destination[1]} must be from 0 to 65535") from error
    # The lower half of the IPv6 pseudo header and the whole of the IPv4 one add up the same.
    pseudo = pseudo_address + struct.pack("!HH", PROTOCOL_UDP, udp_bytes)
    check = checksum(b"".join((pseudo, ports, payload, bytes(len(payload) % 2)))) or 0xFFFF
    header = _ipv4_header if len(source_packed) == 4 else _ipv6_header
    return b"".join((header(pseudo_address, udp_bytes), ports, check.to_bytes(2), payload))


def checksum(data: bytes) -> int:
    """Return the Internet checksum of an even number of bytes.

    The sum of 16-bit words in ones' complement is the whole number modulo 65,535, which one big division finds.
    """
    return -int.from_bytes(data) % 0xFFFF


@lru_cache(maxsize=4096)
def _packed(host: str) -> bytes:
    try:
        return ip_address(host).packed
    except ValueError as error:
        raise BadAddress(f"{host!r} is not a numeric IP address") from error


def _ipv4_header(addresses: bytes, udp_bytes: int) -> bytes:
    length = IPV4_HEADER_BYTES + udp_bytes
    front = struct.pack("!BBHHHBB", 0x45, 0, length, 0, DONT_FRAGMENT, HOPS_MAX, PROTOCOL_UDP)
    return front + checksum(front + addresses).to_bytes(2) + addresses


def _ipv6_header(addresses: bytes, udp_bytes: int) -> bytes:
    return struct.pack("!IHBB", 6 << 28, udp_bytes, PROTOCOL_UDP, HOPS_MAX) + addresses
