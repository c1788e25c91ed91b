"""Small captures made to mislead whoever looks for a record's boundary."""

from __future__ import annotations

import struct
from collections.abc import Callable

from fairway.capture.frames import LinkType
from fairway.capture.packets import encode_ip
from fairway.capture.pcap import ByteOrder, PcapWriter
from fairway.capture.pcapng import PcapngWriter

AT_NS = 1_700_000_000_123_456_789
CLIENT, SERVER = ("10.0.0.1", 1_000), ("10.0.0.2", 2_000)


def pcap(
    payloads: list[bytes], *, nanoseconds: bool = True, order: ByteOrder = "<", snap_bytes: int | None = None
) -> bytes:
    """A capture of raw packets with these payloads, a millisecond apart."""
    pieces: list[bytes] = []
    writer = PcapWriter(pieces.append, LinkType.RAW, nanoseconds=nanoseconds, order=order)
    for number, payload in enumerate(payloads):
        packet = encode_ip(CLIENT, SERVER, payload)
        captured = packet if snap_bytes is None else packet[:snap_bytes]
        writer.frame(AT_NS + number * 1_000_000, captured, wire_bytes=len(packet))
    data = b"".join(pieces)
    return data if snap_bytes is None else data[:16] + struct.pack(f"{order}I", snap_bytes) + data[20:]


def pcapng(payloads: list[bytes], points: tuple[str, ...] = ("client", "server")) -> bytes:
    """One section with these payloads, in turn at every point."""
    pieces: list[bytes] = []
    writer = PcapngWriter(pieces.append, points)
    for number, payload in enumerate(payloads):
        writer.frame(AT_NS + number * 1_000_000, encode_ip(CLIENT, SERVER, payload), number % len(points))
    return b"".join(pieces)


PLAIN = [bytes([number]) * (number * 7 % 40) for number in range(12)]
INSIDE = pcap(PLAIN[:5])
HEADER_LIKE = struct.pack("<4I", AT_NS // 10**9, 5, 30, 30)


def _damaged_length() -> bytes:
    data = bytearray(pcap(PLAIN))
    struct.pack_into("<I", data, 24 + 16 + 28 + 8, 0x7FFFFFFF)
    return bytes(data)


def _shorter_length() -> bytes:
    data = bytearray(pcap(PLAIN))
    struct.pack_into("<I", data, 24 + 16 + 28 + 8, 20)
    return bytes(data)


def _longer_length() -> bytes:
    data = bytearray(pcap(PLAIN))
    (captured,) = struct.unpack_from("<I", data, 24 + 16 + 28 + 8)
    struct.pack_into("<I", data, 24 + 16 + 28 + 8, captured + 60)
    return bytes(data)


def _longer_block() -> bytes:
    data = bytearray(pcapng(PLAIN))
    offset = data.index(struct.pack("<I", 6), 200)
    (length,) = struct.unpack_from("<I", data, offset + 4)
    struct.pack_into("<I", data, offset + 4, length + 4)
    return bytes(data)


def _damaged_block() -> bytes:
    data = bytearray(pcapng(PLAIN))
    offset = data.index(struct.pack("<I", 6), 200)
    struct.pack_into("<I", data, offset + 4, 0x01020304)
    return bytes(data)


def _old_packets() -> bytes:
    data = bytearray(pcapng(PLAIN))
    offset = 0
    while offset < len(data):
        kind, length, number = struct.unpack_from("<III", data, offset)
        if kind == 6:
            struct.pack_into("<IIHH", data, offset, 2, length, number, 0xFFFF)
        offset += length
    return bytes(data)


CAPTURES: dict[str, Callable[[], bytes]] = {
    "plain": lambda: pcap(PLAIN),
    "microseconds, other byte order": lambda: pcap(PLAIN, nanoseconds=False, order=">"),
    "a whole capture inside payloads": lambda: pcap([INSIDE, b"x", INSIDE[24:], INSIDE, INSIDE[24:] * 2]),
    "payloads like record headers": lambda: pcap(
        [HEADER_LIKE * 4, HEADER_LIKE + bytes(30), HEADER_LIKE, b"", HEADER_LIKE * 9]
    ),
    "payloads of zeros": lambda: pcap([bytes(90), bytes(3), bytes(70)]),
    "tiny snap length": lambda: pcap(PLAIN, snap_bytes=1),
    "huge snap length": lambda: pcap(PLAIN, snap_bytes=0xFFFFFFFF),
    "truncated tail": lambda: pcap(PLAIN)[:-11],
    "truncated header of the last record": lambda: pcap([*PLAIN, b""])[: -28 - 9],
    "a damaged length": _damaged_length,
    "old packet blocks": _old_packets,
    "a length that is too short": _shorter_length,
    "a length that is too long": _longer_length,
    "noise in the middle": lambda: pcap(PLAIN)[:200] + bytes(range(97)) + pcap(PLAIN)[24:],
    "only a header": lambda: pcap([]),
    "pcapng": lambda: pcapng(PLAIN),
    "pcapng, two sections": lambda: pcapng(PLAIN[:6]) + pcapng(PLAIN[6:], ("third", "fourth", "fifth")),
    "pcapng inside payloads": lambda: pcapng([pcapng(PLAIN[:3]), b"", pcapng(PLAIN[3:5])[40:], INSIDE]),
    "pcapng, truncated tail": lambda: pcapng(PLAIN)[:-10],
    "pcapng, a damaged block": _damaged_block,
    "pcapng, a block that is too long": _longer_block,
}
