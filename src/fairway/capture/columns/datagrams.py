"""From captured frames to the UDP datagrams inside, by columns; agrees with `datagrams.decode_frame` on every input.

A stage reads one header of all frames that got so far and moves their offsets on. Frames that end in a stage get its
reason and are read at offset 0 from then on; what is read there is ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
from fairway.capture.packets import PROTOCOL_UDP, UDP_HEADER_BYTES
from fairway.core.columns import Bytes, Integers

Mask = NDArray[np.bool_]
Words = NDArray[np.uint64]

REASONS = (
    "",
    "link_type_unknown",
    "cut_in_headers",
    "not_ip",
    "ip_header_damaged",
    "not_udp",
    "later_fragment",
    "udp_length_wrong",
)
_REASON = {name: number for number, name in enumerate(REASONS)}


@dataclass(frozen=True, slots=True)
class Datagrams:
    """The datagrams of many frames, row by row; only rows whose `reason` is 0 hold one."""

    reason: Bytes
    is_ipv6: Mask
    source_high: Words
    """The upper half of an IPv6 address; 0 of an IPv4 one."""
    source_low: Words
    destination_high: Words
    destination_low: Words
    source_port: Integers
    destination_port: Integers
    payload_offset: Integers
    payload_captured: Integers
    """How much of the payload the frame holds."""
    payload_bytes: Integers
    """The length that the UDP header announces."""
    first_fragment: Mask


class _Stage:
    """The frames that are still being read: where each is, and where its data ends."""

    def __init__(self, buffer: Bytes, offsets: Integers, captured: Integers) -> None:
        self.buffer = buffer
        self.offset = offsets.copy()
        self.end = offsets + captured
        self.reason = np.zeros(len(offsets), dtype=np.uint8)

    def need(self, rows: Integers | slice, count: int) -> None:
        """End the frames that hold fewer bytes from their offset on."""
        self.refuse(rows, self.offset[rows] + count > self.end[rows], "cut_in_headers")

    def refuse(self, rows: Integers | slice, bad: Mask, reason: str) -> None:
        """End the frames of `rows` that are bad, unless they ended before."""
        if bad.any():
            reasons = self.reason[rows]
            reasons[bad & (reasons == 0)] = _REASON[reason]
            self.reason[rows] = reasons

    def read(self, rows: Integers | slice, position: int, kind: str) -> NDArray[np.int64]:
        """Read a big-endian number of each frame; of those that ended something."""
        width = np.dtype(kind).itemsize
        last = len(self.buffer) - width
        if last < 0:
            return np.zeros(len(self.offset[rows]), dtype=np.int64)
        view = np.ndarray((last + 1,), dtype=kind, buffer=self.buffer, strides=(1,))
        return view[np.clip(self.offset[rows] + position, 0, last)].astype(np.int64)

    def words(self, rows: Integers | slice, position: int) -> Words:
        return self.read(rows, position, ">u8").view(np.uint64)


def decode_frames(buffer: Bytes, offsets: Integers, captured: Integers, link_types: Integers) -> Datagrams:
    """Find the UDP datagram in each frame, or the reason why there is none."""
    stage = _Stage(np.ascontiguousarray(buffer), offsets, captured)
    ether_type = _network(stage, link_types)
    _skip_vlans(stage, ether_type)
    stage.refuse(slice(None), (ether_type != ETHER_IPV4) & (ether_type != ETHER_IPV6), "not_ip")
    found = _Found(len(offsets))
    going = stage.reason == 0
    _ipv4(stage, _rows(going & (ether_type == ETHER_IPV4)), found)
    _ipv6(stage, _rows(going & (ether_type == ETHER_IPV6)), found)
    return _udp(stage, found)


def _rows(mask: Mask) -> Integers | slice:
    """Return the indices of a mask; all of them as a slice, which costs no copies."""
    return slice(None) if mask.all() else np.flatnonzero(mask)


_ETHER_TYPES = {LinkType.ETHERNET: (14, 12), LinkType.LINUX_SLL: (16, 14), LinkType.LINUX_SLL2: (20, 0)}
"""How long the headers are that name the ether type, and where."""


def _network(stage: _Stage, link_types: Integers) -> Integers:
    """Pass the link headers and return the ether types behind them."""
    ether_type = np.zeros(len(link_types), dtype=np.int64)
    if not len(link_types):
        return ether_type
    first = int(link_types[0])
    one = bool((link_types == first).all())
    for link_type in [first] if one else np.unique(link_types).tolist():
        rows: Integers | slice = slice(None) if one else np.flatnonzero(link_types == link_type)
        if link_type in _ETHER_TYPES:
            header_bytes, position = _ETHER_TYPES[LinkType(link_type)]
            stage.need(rows, header_bytes)
            ether_type[rows] = stage.read(rows, position, ">u2")
            stage.offset[rows] += header_bytes
        elif link_type in _LINKS:
            ether_type[rows] = _LINKS[LinkType(link_type)](stage, rows)
        else:
            stage.reason[rows] = _REASON["link_type_unknown"]
    return ether_type


def _raw(stage: _Stage, rows: Integers | slice) -> Integers:
    stage.need(rows, 1)
    version = stage.read(rows, 0, "u1") >> 4
    return np.where(version == 4, ETHER_IPV4, np.where(version == 6, ETHER_IPV6, 0))


def _null(stage: _Stage, rows: Integers | slice) -> Integers:
    """The family is in the byte order of the machine that captured; no family is above 255."""
    family = stage.read(rows, 0, "<u4")
    return _loopback(stage, rows, np.where(family < 0x10000, family, family >> 24))


def _loop(stage: _Stage, rows: Integers | slice) -> Integers:
    return _loopback(stage, rows, stage.read(rows, 0, ">u4"))


def _loopback(stage: _Stage, rows: Integers | slice, family: Integers) -> Integers:
    stage.need(rows, 4)
    stage.offset[rows] += 4
    ipv6 = np.where(np.isin(family, FAMILIES_IPV6), ETHER_IPV6, 0)
    return np.where(np.isin(family, FAMILIES_IPV4), ETHER_IPV4, ipv6)


_LINKS: dict[LinkType, Callable[[_Stage, Integers | slice], Integers]] = {
    LinkType.NULL: _null,
    LinkType.LOOP: _loop,
    **dict.fromkeys((LinkType.RAW, LinkType.IPV4, LinkType.IPV6), _raw),
}


def _skip_vlans(stage: _Stage, ether_type: Integers) -> None:
    for _ in range(VLAN_TAGS_MAX):
        rows = np.flatnonzero(_is_vlan(ether_type) & (stage.reason == 0))
        if not len(rows):
            return
        stage.need(rows, 4)
        ether_type[rows] = stage.read(rows, 2, ">u2")
        stage.offset[rows] += 4


def _is_vlan(ether_type: Integers) -> Mask:
    first, second, third = ETHER_VLANS
    tagged: Mask = (ether_type == first) | (ether_type == second) | (ether_type == third)
    return tagged


class _Found:
    """What the IP headers say; `announced` is how much of UDP they promise."""

    def __init__(self, count: int) -> None:
        self.is_ipv6 = np.zeros(count, dtype=np.bool_)
        self.source_high = np.zeros(count, dtype=np.uint64)
        self.source_low = np.zeros(count, dtype=np.uint64)
        self.destination_high = np.zeros(count, dtype=np.uint64)
        self.destination_low = np.zeros(count, dtype=np.uint64)
        self.announced = np.zeros(count, dtype=np.int64)
        self.first_fragment = np.zeros(count, dtype=np.bool_)


def _ipv4(stage: _Stage, rows: Integers | slice, found: _Found) -> None:
    if not isinstance(rows, slice) and not len(rows):
        return
    stage.need(rows, 20)
    version = stage.read(rows, 0, "u1")
    length = stage.read(rows, 2, ">u2")
    header_bytes = (version & 0x0F) * 4
    damaged = (version >> 4 != 4) | (header_bytes < 20) | (length < header_bytes)
    stage.refuse(rows, damaged, "ip_header_damaged")
    fragment = stage.read(rows, 6, ">u2")
    stage.refuse(rows, stage.read(rows, 9, "u1") != PROTOCOL_UDP, "not_udp")
    stage.refuse(rows, (fragment & 0x1FFF) != 0, "later_fragment")
    found.source_low[rows] = stage.read(rows, 12, ">u4")
    found.destination_low[rows] = stage.read(rows, 16, ">u4")
    found.announced[rows] = length - header_bytes
    found.first_fragment[rows] = (fragment & MORE_FRAGMENTS) != 0
    stage.end[rows] = np.minimum(stage.end[rows], stage.offset[rows] + length)
    stage.offset[rows] += header_bytes


def _ipv6(stage: _Stage, rows: Integers | slice, found: _Found) -> None:
    if not isinstance(rows, slice) and not len(rows):
        return
    stage.need(rows, 40)
    stage.refuse(rows, stage.read(rows, 0, "u1") >> 4 != 6, "ip_header_damaged")
    length = stage.read(rows, 4, ">u2")
    kind = stage.read(rows, 6, "u1")
    found.is_ipv6[rows] = True
    found.source_high[rows] = stage.words(rows, 8)
    found.source_low[rows] = stage.words(rows, 16)
    found.destination_high[rows] = stage.words(rows, 24)
    found.destination_low[rows] = stage.words(rows, 32)
    stage.offset[rows] += 40
    stage.end[rows] = np.minimum(stage.end[rows], stage.offset[rows] + length)
    start = stage.offset[rows].copy()
    _skip_extensions(stage, np.arange(len(stage.offset))[rows], kind, found)
    stage.refuse(rows, kind != PROTOCOL_UDP, "not_udp")
    found.announced[rows] = length - (stage.offset[rows] - start)


def _skip_extensions(stage: _Stage, rows: Integers, kind: Integers, found: _Found) -> None:
    """Pass up to so many extension headers, writing what follows them into `kind`."""
    for _ in range(EXTENSION_HEADERS_MAX):
        going = stage.reason[rows] == 0
        fragments = np.flatnonzero(going & (kind == FRAGMENT))
        others = np.flatnonzero(going & ((kind == HOP_BY_HOP) | (kind == ROUTING) | (kind == DESTINATION_OPTIONS)))
        if not len(fragments) and not len(others):
            return
        _skip_fragment_header(stage, rows[fragments], fragments, kind, found)
        at = rows[others]
        stage.need(at, 2)
        kind[others] = stage.read(at, 0, "u1")
        # A header longer than the packet leaves nothing behind it, as a slice past the end does.
        stage.offset[at] = np.minimum(stage.offset[at] + 8 * (stage.read(at, 1, "u1") + 1), stage.end[at])


def _skip_fragment_header(stage: _Stage, at: Integers, rows: Integers, kind: Integers, found: _Found) -> None:
    stage.need(at, 8)
    position = stage.read(at, 2, ">u2")
    kind[rows] = stage.read(at, 0, "u1")
    stage.refuse(at, position >> 3 != 0, "later_fragment")
    found.first_fragment[at] = position & 1 != 0
    stage.offset[at] += 8


def _udp(stage: _Stage, found: _Found) -> Datagrams:
    every = slice(None)
    stage.need(every, UDP_HEADER_BYTES)
    udp_bytes = stage.read(every, 4, ">u2")
    too_long = (udp_bytes > found.announced) & ~found.first_fragment
    stage.refuse(every, (udp_bytes < UDP_HEADER_BYTES) | too_long, "udp_length_wrong")
    good = stage.reason == 0
    held = np.minimum(udp_bytes, stage.end - stage.offset) - UDP_HEADER_BYTES
    return Datagrams(
        reason=stage.reason,
        is_ipv6=found.is_ipv6,
        source_high=found.source_high,
        source_low=found.source_low,
        destination_high=found.destination_high,
        destination_low=found.destination_low,
        source_port=stage.read(every, 0, ">u2"),
        destination_port=stage.read(every, 2, ">u2"),
        payload_offset=np.where(good, stage.offset + UDP_HEADER_BYTES, 0),
        payload_captured=np.where(good, held, 0),
        payload_bytes=np.where(good, udp_bytes - UDP_HEADER_BYTES, 0),
        first_fragment=found.first_fragment & good,
    )
