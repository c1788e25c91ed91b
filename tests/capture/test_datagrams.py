"""A datagram goes into a frame and comes out again, through every link type."""

from __future__ import annotations

import struct
from hashlib import blake2b
from ipaddress import IPv4Address, IPv6Address
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.capture.frames import LinkType
from fairway.capture.packets import Endpoint, checksum, encode_ip
from fairway.core.errors import BadAddress, BadMessage
from tests.capture.datagrams import Datagram, NoDatagram, decoded

PORTS = st.integers(0, 65_535)
HOSTS_4 = st.integers(0, 2**32 - 1).map(lambda number: str(IPv4Address(number)))
HOSTS_6 = st.integers(0, 2**128 - 1).map(lambda number: str(IPv6Address(number)))
PAIRS = st.one_of(
    st.tuples(st.tuples(HOSTS_4, PORTS), st.tuples(HOSTS_4, PORTS)),
    st.tuples(st.tuples(HOSTS_6, PORTS), st.tuples(HOSTS_6, PORTS)),
)
CLIENT_4, SERVER_4 = ("10.0.0.1", 1_000), ("10.0.0.2", 2_000)
CLIENT_6, SERVER_6 = ("fd00::1", 1_000), ("fd00::2", 2_000)
IPV4 = encode_ip(CLIENT_4, SERVER_4, b"hello")
IPV6 = encode_ip(CLIENT_6, SERVER_6, b"hello")


def decode(link_type: int, data: bytes) -> Datagram | NoDatagram:
    return decoded([(link_type, data)])[0]


def expected(source: Endpoint, destination: Endpoint, payload: bytes) -> Datagram:
    return Datagram(source, destination, payload, len(payload), first_fragment=False)


def sum_by_hand(data: bytes) -> int:
    """RFC 1071, word by word."""
    total = 0
    for (word,) in struct.iter_unpack("!H", data):
        total += word
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


@given(PAIRS, st.binary(max_size=60))
def test_a_datagram_comes_back_from_its_packet(pair: tuple[Endpoint, Endpoint], payload: bytes) -> None:
    assert decode(LinkType.RAW, encode_ip(*pair, payload)) == expected(*pair, payload)


@given(st.binary(min_size=2, max_size=80).map(lambda data: data[: len(data) // 2 * 2]).filter(any))
def test_the_checksum_is_that_of_rfc_1071(data: bytes) -> None:
    assert checksum(data) == sum_by_hand(data)


def test_a_checksum_of_zero_is_sent_as_all_ones() -> None:
    """Zero would say that there is none. A payload equal to the checksum of an empty word makes the sum come out so."""
    blank = encode_ip(CLIENT_4, SERVER_4, bytes(2))
    packet = encode_ip(CLIENT_4, SERVER_4, blank[26:28])
    assert packet[26:28] == b"\xff\xff"
    assert decode(LinkType.RAW, packet) == expected(CLIENT_4, SERVER_4, blank[26:28])


@pytest.mark.parametrize(
    ("link_type", "before_ipv4", "before_ipv6"),
    [
        (LinkType.ETHERNET, "00" * 12 + "0800", "00" * 12 + "86dd"),
        (LinkType.ETHERNET, "00" * 12 + "81000005" + "0800", "00" * 12 + "88a80005" + "81000006" + "86dd"),
        (LinkType.LINUX_SLL, "00" * 14 + "0800", "00" * 14 + "86dd"),
        (LinkType.LINUX_SLL2, "0800" + "00" * 18, "86dd" + "00" * 18),
        (LinkType.RAW, "", ""),
        (LinkType.IPV4, "", ""),
        (LinkType.IPV6, "", ""),
        (LinkType.NULL, "02000000", "1e000000"),
        (LinkType.NULL, "00000002", "0000000a"),
        (LinkType.LOOP, "00000002", "00000018"),
    ],
)
def test_every_link_type_leads_to_the_datagram(link_type: LinkType, before_ipv4: str, before_ipv6: str) -> None:
    padding = bytes(6)
    assert decode(link_type, bytes.fromhex(before_ipv4) + IPV4 + padding) == expected(CLIENT_4, SERVER_4, b"hello")
    assert decode(link_type, bytes.fromhex(before_ipv6) + IPV6 + padding) == expected(CLIENT_6, SERVER_6, b"hello")


def test_options_and_extension_headers_are_passed_over() -> None:
    longer = bytes([0x46]) + IPV4[1:2] + (len(IPV4) + 4).to_bytes(2) + IPV4[4:20] + bytes(4) + IPV4[20:]
    assert decode(LinkType.RAW, longer) == expected(CLIENT_4, SERVER_4, b"hello")
    hop_by_hop, options = bytes([60, 0]) + bytes(6), bytes([17, 1]) + bytes(14)
    extended = IPV6[:4] + (len(IPV6) - 40 + 24).to_bytes(2) + bytes([0]) + IPV6[7:40] + hop_by_hop + options + IPV6[40:]
    assert decode(LinkType.RAW, extended) == expected(CLIENT_6, SERVER_6, b"hello")
    past_its_end = extended[:68] + (len(IPV6) - 40 + 8).to_bytes(2) + extended[70:]
    assert decode(LinkType.RAW, past_its_end) == NoDatagram("udp_length_wrong")


def test_a_packet_longer_than_its_datagram_is_cut_to_it() -> None:
    longer = IPV4[:2] + (len(IPV4) + 3).to_bytes(2) + IPV4[4:] + b"???"
    assert decode(LinkType.RAW, longer) == expected(CLIENT_4, SERVER_4, b"hello")


def fragment_4(packet: bytes, field: int) -> bytes:
    return packet[:6] + field.to_bytes(2) + packet[8:]


def fragment_6(packet: bytes, field: int) -> bytes:
    header = bytes([17, 0]) + field.to_bytes(2) + bytes(4)
    return packet[:4] + (len(packet) - 40 + 8).to_bytes(2) + bytes([44]) + packet[7:40] + header + packet[40:]


@pytest.mark.parametrize("first", [fragment_4(IPV4, 0x2000), fragment_6(IPV6, 0x0001)])
def test_a_first_fragment_is_marked_and_shows_what_it_has(first: bytes) -> None:
    length_at = len(first) - 9
    longer = first[:length_at] + (2_000).to_bytes(2) + first[length_at + 2 :]
    datagram = decode(LinkType.RAW, longer + b"padding")
    assert isinstance(datagram, Datagram)
    assert (datagram.first_fragment, datagram.payload, datagram.payload_bytes) == (True, b"hello", 1_992)


@pytest.mark.parametrize("later", [fragment_4(IPV4, 0x0005), fragment_6(IPV6, 0x0008)])
def test_a_later_fragment_holds_no_datagram(later: bytes) -> None:
    assert decode(LinkType.RAW, later) == NoDatagram("later_fragment")


def test_a_frame_cut_by_the_snap_length_says_how_long_the_payload_was() -> None:
    datagram = decode(LinkType.RAW, IPV4[:-2])
    assert datagram == Datagram(CLIENT_4, SERVER_4, b"hel", 5, first_fragment=False)


@pytest.mark.parametrize(
    ("link_type", "data", "reason"),
    [
        (147, IPV4, "link_type_unknown"),
        (LinkType.ETHERNET, bytes(12) + b"\x08\x06" + bytes(28), "not_ip"),
        (LinkType.NULL, b"\x07\x00\x00\x00" + IPV4, "not_ip"),
        (LinkType.RAW, IPV4[:9] + b"\x06" + IPV4[10:], "not_udp"),
        (LinkType.RAW, IPV6[:6] + b"\x3a" + IPV6[7:], "not_udp"),
        (LinkType.RAW, b"\x44" + IPV4[1:], "ip_header_damaged"),
        (LinkType.RAW, IPV4[:2] + b"\x00\x13" + IPV4[4:], "ip_header_damaged"),
        (LinkType.ETHERNET, bytes(12) + b"\x86\xdd" + IPV4 + bytes(20), "ip_header_damaged"),
        (LinkType.RAW, IPV4[:24] + b"\x00\x07" + IPV4[26:], "udp_length_wrong"),
        (LinkType.RAW, IPV4[:24] + b"\x00\x0e" + IPV4[26:], "udp_length_wrong"),
        (LinkType.RAW, IPV6[:44] + b"\x00\x0e" + IPV6[46:], "udp_length_wrong"),
        (LinkType.RAW, IPV4[:27], "cut_in_headers"),
        (LinkType.ETHERNET, b"", "cut_in_headers"),
    ],
)
def test_a_frame_without_a_datagram_says_why(link_type: int, data: bytes, reason: str) -> None:
    assert decode(link_type, data) == NoDatagram(reason)


HOP_BY_HOP = IPV6[:4] + (len(IPV6) - 24).to_bytes(2) + bytes([0]) + IPV6[7:40] + bytes([60, 0] + [0] * 6)
FRAGMENTED = IPV6[:4] + (len(IPV6) - 32).to_bytes(2) + bytes([44]) + IPV6[7:40] + bytes([17] + [0] * 7) + IPV6[40:]
DIGESTS = {
    LinkType.ETHERNET: "73abc75836bbfbb8",
    LinkType.LINUX_SLL: "00adb4b24d11647c",
    LinkType.LINUX_SLL2: "f1ff64357ecf0b6c",
    LinkType.NULL: "1c9d3b9b8a7912ac",
    LinkType.LOOP: "b01dcc45b6444316",
    LinkType.RAW: "a05c7e48d63cb260",
}
PACKETS = (
    IPV4,
    IPV6,
    HOP_BY_HOP + bytes([17, 0] + [0] * 6) + IPV6[40:],
    FRAGMENTED,
    bytes([0x46]) + IPV4[1:2] + (len(IPV4) + 4).to_bytes(2) + IPV4[4:20] + bytes(4) + IPV4[20:],
    IPV4[:6] + b"\x20\x00" + IPV4[8:24] + (2_000).to_bytes(2) + IPV4[26:],
    FRAGMENTED[:43] + b"\1" + FRAGMENTED[44:52] + (2_000).to_bytes(2) + FRAGMENTED[54:],
)
LINK_HEADERS = {
    LinkType.ETHERNET: ["00" * 12 + "0800", "00" * 12 + "86dd", "00" * 12 + "88a800058100000608" + "00"],
    LinkType.LINUX_SLL: ["00" * 14 + "0800", "00" * 14 + "86dd"],
    LinkType.LINUX_SLL2: ["0800" + "00" * 18, "86dd" + "00" * 18, "8100" + "00" * 20 + "86dd"],
    LinkType.NULL: ["02000000", "0000001e"],
    LinkType.LOOP: ["00000002", "00000018"],
    LinkType.RAW: [""],
}


def mutated(link_type: LinkType, count: int) -> list[tuple[int, bytes]]:
    """Return frames with a few bytes changed and the end cut or padded."""
    random = Random(link_type)
    frames: list[tuple[int, bytes]] = []
    for _ in range(count):
        data = bytearray(bytes.fromhex(random.choice(LINK_HEADERS[link_type])) + random.choice(PACKETS))
        for _ in range(random.randrange(4)):
            data[random.randrange(len(data))] = random.choice([0, 1, 17, 44, 60, random.randrange(256)])
        length = random.choice([len(data), random.randrange(len(data) + 8)])
        frames.append((link_type, bytes(data[:length].ljust(length, b"\0"))))
    return frames


@pytest.mark.parametrize("link_type", LINK_HEADERS)
def test_mutated_frames_are_read_as_by_a_decoder_of_single_frames(link_type: LinkType) -> None:
    """Digests of what such a decoder, written from the standards alone, made of these frames."""
    found = decoded(mutated(link_type, 3_000))
    assert blake2b(repr(found).encode(), digest_size=8).hexdigest() == DIGESTS[link_type]
    reasons = {one.reason for one in found if isinstance(one, NoDatagram)}
    assert {"not_udp", "ip_header_damaged", "udp_length_wrong", "cut_in_headers", "later_fragment"} <= reasons


def test_a_frame_is_read_alike_alone_and_among_others() -> None:
    frames = [frame for link_type in LINK_HEADERS for frame in mutated(link_type, 100)]
    Random(1).shuffle(frames)
    assert decoded(frames) == [decode(*frame) for frame in frames]


def test_the_callers_mistakes_are_named() -> None:
    with pytest.raises(BadAddress, match="different IP versions"):
        encode_ip(CLIENT_4, SERVER_6, b"")
    with pytest.raises(BadAddress, match="not a numeric IP address"):
        encode_ip(("localhost", 1), SERVER_4, b"")
    with pytest.raises(BadAddress, match="from 0 to 65535"):
        encode_ip(("10.0.0.1", 65_536), SERVER_4, b"")
    with pytest.raises(BadMessage, match="65508 bytes does not fit"):
        encode_ip(CLIENT_4, SERVER_4, bytes(65_508))
    assert len(encode_ip(CLIENT_4, SERVER_4, bytes(65_507))) == 65_535
