"""The way from one record to the next: only a record says where the next one is."""

from __future__ import annotations

import numpy as np

from fairway.capture.columns.compiled import compiled, inner
from fairway.capture.frames import RECORD_BYTES_MAX
from fairway.capture.pcap import RECORD_HEADER_BYTES
from fairway.capture.pcapng import (
    BLOCK_BYTES_MIN,
    ENHANCED_PACKET,
    INTERFACE,
    OLD_PACKET,
    SECTION_HEADER,
    SIMPLE_PACKET,
)
from fairway.core.columns import Bytes, Integers

PAGE_BYTES = 4_096
FRAME_BYTES_MAX = 65_535 + 100
"""Frames are rarely longer than an IP packet and the headers of a link."""
STEP_S_MAX = 30 * 86_400
"""Records that follow one another are rarely further apart."""


def pcap_offsets(buffer: Bytes, offset: int, stop: int, big: bool, captured_max: int) -> tuple[Integers, int]:
    """Follow the records of a pcap file that start before `stop`; return their offsets, and where the walk ended.

    It ends early in front of a record that is not possible, not held whole by the buffer, or unusual: its lengths or
    the header behind it need a closer look.
    """
    stop = min(stop, len(buffer) - RECORD_HEADER_BYTES + 1)
    offsets = np.empty(max(0, -(-(stop - offset) // RECORD_HEADER_BYTES)), dtype=np.int64)
    _fetch(buffer, offset, stop)
    count, end = _follow_pcap(buffer, offset, stop, big, captured_max, offsets)
    return offsets[:count], end


def _fetch(buffer: Bytes, offset: int, stop: int) -> None:
    """Have a mapped file's pages brought in one after the other: a walk that waits for each takes twice as long."""
    buffer[offset:stop:PAGE_BYTES].any()


@compiled
def _follow_pcap(
    buffer: Bytes, offset: int, stop: int, big: bool, captured_max: int, offsets: Integers
) -> tuple[int, int]:
    count, size = 0, len(buffer)
    while offset < stop:
        seconds = _number(buffer, offset, big)
        captured, wire_bytes = _number(buffer, offset + 8, big), _number(buffer, offset + 12, big)
        after = offset + RECORD_HEADER_BYTES + captured
        if captured > min(wire_bytes, captured_max, FRAME_BYTES_MAX) or wire_bytes > captured_max or after > size:
            break
        if wire_bytes == 0 and seconds == 0:
            break
        if after + RECORD_HEADER_BYTES <= size:
            if (
                abs(_number(buffer, after, big) - seconds) > STEP_S_MAX
                or _number(buffer, after + 8, big) > captured_max
            ):
                break
            # A length of which a bit was lost looks like that of a frame that was cut; but then others are cut alike.
            if captured < wire_bytes and captured != _number(buffer, after + 8, big):
                other = offset + RECORD_HEADER_BYTES + wire_bytes
                if other + RECORD_HEADER_BYTES <= size and _usual(buffer, other, seconds, big, captured_max):
                    break
        offsets[count] = offset
        count += 1
        offset = after
    return count, offset


@inner
def _usual(buffer: Bytes, offset: int, seconds: int, big: bool, captured_max: int) -> bool:
    """Return whether a header that may follow a record of that time stands at an offset."""
    captured, wire_bytes = _number(buffer, offset + 8, big), _number(buffer, offset + 12, big)
    near = abs(_number(buffer, offset, big) - seconds) <= STEP_S_MAX
    return near and captured <= wire_bytes <= captured_max and wire_bytes > 0


def pcapng_offsets(buffer: Bytes, offset: int, stop: int, big: bool) -> tuple[Integers, int]:
    """Follow the blocks of a pcapng file that start before `stop`; return those of packets, and where the walk ended.

    It ends early in front of a block that is not possible, or that changes what the packets after it mean.
    """
    stop = min(stop, len(buffer) - BLOCK_BYTES_MIN + 1)
    offsets = np.empty(max(0, -(-(stop - offset) // BLOCK_BYTES_MIN)), dtype=np.int64)
    _fetch(buffer, offset, stop)
    count, end = _follow_pcapng(buffer, offset, stop, big, offsets)
    return offsets[:count], end


@compiled
def _follow_pcapng(buffer: Bytes, offset: int, stop: int, big: bool, offsets: Integers) -> tuple[int, int]:
    count = 0
    while offset < stop:
        kind, length = _number(buffer, offset, big), _number(buffer, offset + 4, big)
        after = offset + length
        if kind in (SECTION_HEADER, INTERFACE):
            break
        if length < BLOCK_BYTES_MIN or length % 4 or length > RECORD_BYTES_MAX or after > len(buffer):
            break
        if _number(buffer, after - 4, big) != length:
            break
        if kind in (ENHANCED_PACKET, SIMPLE_PACKET, OLD_PACKET):
            offsets[count] = offset
            count += 1
        offset = after
    return count, offset


@inner
def _number(buffer: Bytes, offset: int, big: bool) -> int:
    one, two, three, four = buffer[offset], buffer[offset + 1], buffer[offset + 2], buffer[offset + 3]
    if big:
        one, two, three, four = four, three, two, one
    return int(four) << 24 | int(three) << 16 | int(two) << 8 | int(one)
