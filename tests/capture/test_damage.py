"""One wrong bit in a record's header costs a few records around it, and makes up none."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from random import Random

import pytest

from fairway.capture.columns.chains import CHAIN_BYTES
from fairway.capture.columns.ranges import HEAD_BYTES, cuts, form_of, walked
from fairway.capture.columns.records import NO_TIME
from fairway.capture.frames import LinkType
from fairway.capture.packets import encode_ip
from fairway.capture.pcap import ByteOrder, PcapWriter
from tests.capture.adversaries import AT_NS, CLIENT, SERVER, pcap, pcapng
from tests.capture.test_ranges import Row, rows, whole

MAC = bytes.fromhex("525400123456")
SMALL_MAC = bytes.fromhex("a5b800000001")
"""Its first four bytes, read as a length, are one that a frame may have."""
RECORDS_LOST_MAX = 2
FLIPS = 100


def ethernet(payload: bytes, mac: bytes = MAC) -> bytes:
    return mac + bytes.fromhex("5254006543210800") + encode_ip(CLIENT, SERVER, payload)


def written(
    frames: Sequence[bytes],
    *,
    link_type: int = LinkType.ETHERNET,
    nanoseconds: bool = False,
    order: ByteOrder = "<",
    snap_bytes: int = 1 << 18,
    step_ns: int = 1_000_000,
) -> bytes:
    """A pcap of these frames, each cut to `snap_bytes`."""
    pieces: list[bytes] = []
    writer = PcapWriter(pieces.append, link_type, nanoseconds=nanoseconds, order=order)
    for number, frame in enumerate(frames):
        writer.frame(AT_NS + number * step_ns, frame[:snap_bytes], wire_bytes=len(frame))
    return b"".join(pieces)


def payloads(seed: int, count: int, size_max: int = 300) -> list[bytes]:
    random = Random(seed)
    return [random.randbytes(random.randrange(size_max)) for _ in range(count)]


INSIDE = pcap([bytes(60)] * 30)[24:]
INSIDE_NG = pcapng([bytes(60)] * 30)
HEADER_LIKE = struct.pack("<4I", AT_NS // 10**9, 5, 60, 60)

TRUTHS: dict[str, Callable[[], bytes]] = {
    "ethernet, equal sizes": lambda: written([ethernet(b"message %03d" % n) for n in range(400)]),
    "ethernet, a MAC that reads as a length": lambda: written([ethernet(b"x" * 40, SMALL_MAC)] * 400),
    "ethernet, a MAC that reads as a length, not IP": lambda: written(
        [SMALL_MAC + bytes(6) + b"\x88\xb5" + bytes(50)] * 300
    ),
    "ethernet, any sizes, big endian": lambda: written([ethernet(p) for p in payloads(1, 300)], order=">"),
    "ethernet, rare frames": lambda: written([ethernet(p) for p in payloads(2, 300)], step_ns=7 * 10**12),
    "ethernet, cut to 60 bytes": lambda: written([ethernet(p) for p in payloads(3, 300, 1_400)], snap_bytes=60),
    "raw, nanoseconds": lambda: pcap(payloads(4, 300)),
    "raw, zeros": lambda: pcap([bytes(n * 7 % 200) for n in range(300)]),
    "raw, small numbers": lambda: pcap([struct.pack("<I", 16 + n % 3) * 40 for n in range(300)]),
    "raw, text": lambda: pcap([b"GET / HTTP/1.1\r\nHost: example\r\n" * (n % 9) for n in range(300)]),
    "raw, payloads like record headers": lambda: pcap([HEADER_LIKE * (n % 11) + bytes(n % 60) for n in range(300)]),
    "raw, captures inside payloads": lambda: pcap(
        [INSIDE + b"behind it" if n % 9 == 0 else bytes(80) for n in range(200)]
    ),
    "a link type that nobody reads": lambda: written(payloads(5, 300), link_type=147),
    "pcapng": lambda: pcapng(payloads(6, 300)),
    "pcapng, zeros": lambda: pcapng([bytes(n * 7 % 200) for n in range(300)]),
    "pcapng, captures inside payloads": lambda: pcapng([INSIDE_NG if n % 9 == 0 else bytes(80) for n in range(200)]),
}


def header_bytes(data: bytes) -> int:
    return 28 if data[:4] == b"\n\r\r\n" else 16


@pytest.mark.parametrize("name", TRUTHS)
def test_one_flipped_bit_in_a_header_loses_few_records_and_makes_up_none(name: str) -> None:
    data = TRUTHS[name]()
    truth = whole(data)
    assert not any(row[7] for row in truth)
    random = Random(name)
    for _ in range(FLIPS):
        victim, bit = random.randrange(len(truth)), random.randrange(8 * header_bytes(data))
        damaged = bytearray(data)
        damaged[truth[victim][1] + bit // 8] ^= 1 << bit % 8
        where = f"record {victim}, bit {bit}"
        check(truth, whole(bytes(damaged)), victim, where)


def check(truth: list[Row], found: list[Row], victim: int, where: str) -> None:
    """All records that are not beside the victim are there as they were, and nothing else is."""
    kept = {row[1]: row[1:] for row in found if not row[7]}
    true = {row[1]: row[1:] for row in truth}
    assert kept.keys() <= true.keys(), where
    lost = [number for number, row in enumerate(truth) if kept.get(row[1]) != row[1:] and number != victim]
    assert len(lost) < RECORDS_LOST_MAX, (where, lost)
    assert all(abs(number - victim) <= RECORDS_LOST_MAX for number in lost), (where, lost)


def test_the_record_whose_length_is_too_large_by_one_bit_is_the_only_one_lost() -> None:
    """Four bytes late the fraction, the lengths and a MAC address read as a header, again and again."""
    data = bytearray(TRUTHS["ethernet, equal sizes"]())
    truth = whole(bytes(data))
    data[truth[100][1] + 8] ^= 1 << 5
    found = whole(bytes(data))
    assert [row[1:] for row in found if not row[7]] == [row[1:] for row in truth if row[0] != 101]
    assert [(row[1], row[4], row[7]) for row in found if row[7]] == [
        (truth[100][1], truth[101][1] - truth[100][1], "damaged")
    ]


def _with_false_header(swallowed: int, offset: int = 12) -> tuple[bytes, list[Row], int]:
    """A record whose length ends `offset` bytes into it, at a header that reaches to a later record's."""
    frames = [encode_ip(CLIENT, SERVER, bytes([n % 251]) * 400) for n in range(900)]
    sizes = 16 + len(frames[0])
    reach = swallowed * sizes - offset - 32
    false = struct.pack("<4I", AT_NS // 10**9, 77, reach, reach)
    frames[7] = frames[7][:offset] + false + frames[7][offset + 16 :]
    data = written(frames, link_type=LinkType.RAW, nanoseconds=True)
    return data, whole(data), 24 + 7 * sizes


@pytest.mark.parametrize("swallowed", [1, 30, 300, 880])
@pytest.mark.parametrize("damage", [struct.pack("<I", 12), b"\xff\xff\xff\xff"])
def test_a_false_header_inside_a_damaged_record_swallows_nothing(swallowed: int, damage: bytes) -> None:
    data, truth, record = _with_false_header(swallowed)
    assert swallowed < 300 or swallowed * 444 > CHAIN_BYTES
    damaged = bytearray(data)
    damaged[record + 8 : record + 12] = damage
    check(truth, whole(bytes(damaged)), 7, "")


def test_a_stretch_of_noise_is_left_out_whichever_false_headers_it_holds() -> None:
    """The way into the false chain is open: nothing but the chain behind it proves it wrong."""
    data, truth, record = _with_false_header(300)
    damaged = bytearray(data)
    damaged[record : record + 28] = Random(5).randbytes(28)
    check(truth, whole(bytes(damaged)), 7, "")


def test_many_damages_leave_the_records_between_them() -> None:
    data = bytearray(TRUTHS["ethernet, any sizes, big endian"]())
    truth = whole(bytes(data))
    victims = range(5, 300, 10)
    for victim in victims:
        data[truth[victim][1] + 10] ^= 0x10
    found = whole(bytes(data))
    assert [row[1:] for row in found if not row[7]] == [row[1:] for row in truth if row[0] - 1 not in victims]
    edges = cuts(0, len(data), 1_000)
    assert rows(bytes(data), walked(form_of(bytes(data[:HEAD_BYTES])), memoryview(bytes(data)), edges)) == found


def test_a_length_that_the_frame_bears_out_is_believed_whatever_the_header_says_of_the_wire() -> None:
    data = bytearray(TRUTHS["ethernet, equal sizes"]())
    truth = whole(bytes(data))
    struct.pack_into("<I", data, truth[100][1] + 12, 3)
    assert [row[1] for row in whole(bytes(data))] == [row[1] for row in truth]


def test_sound_records_of_unusual_sizes_and_times_are_all_there() -> None:
    """Longer than any datagram, cut at other offsets than the rest, and a clock that was set while capturing."""
    random = Random(9)
    pieces: list[bytes] = []
    writer = PcapWriter(pieces.append, LinkType.RAW)
    for number in range(400):
        frame = encode_ip(CLIENT, SERVER, random.randbytes(random.randrange(900)))
        size = random.choice([len(frame), len(frame), 30, 40, 200_000])
        at_ns = (AT_NS if number > 200 else 0) + number * 1_000
        writer.frame(
            at_ns, (frame + bytes(size))[:size] if size > len(frame) else frame[:size], wire_bytes=max(size, len(frame))
        )
    found = whole(b"".join(pieces))
    assert len(found) == 400
    assert not any(row[7] for row in found)


def test_a_fraction_above_a_second_is_a_record_without_a_time() -> None:
    """Some tools write nanoseconds into a file of microseconds; nothing else of such a record is in doubt."""
    data = bytearray(written([ethernet(b"x" * 40)] * 30))
    truth = whole(bytes(data))
    for row in truth[10:20]:
        struct.pack_into("<I", data, row[1] + 4, 1_000_000)
    found = whole(bytes(data))
    assert [row[5] for row in found] == [NO_TIME if 10 <= number < 20 else row[5] for number, row in enumerate(truth)]
    assert [(*row[:5], *row[6:]) for row in found] == [(*row[:5], *row[6:]) for row in truth]
