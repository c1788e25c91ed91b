"""A walk over the records of a pcap file, by columns and from any byte.

A usual record is taken at once: no more captured than was on the wire and than any capture tool keeps, all of it inside
the file, and behind it a header of about the same time. Any other is judged by all that its bytes and those behind it
say: a length that the IP packet inside bears out is right; one is wrong if another, a bit away, leads to a chain of
records, or if a chain begins inside the record that disproves the one behind it. A wrong length is reported as damage,
up to the next record. The judgement looks only ahead: a walk that starts at a record sees what one from the front sees.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fairway.capture.columns.chains import (
    CONFIRMED,
    Chain,
    Link,
    chain_at,
    first_chain,
    windows,
)
from fairway.capture.columns.records import (
    BATCH_BYTES,
    CUT_OFF,
    DAMAGED,
    NO_TIME,
    ByteOrder,
    Gap,
    Position,
    Records,
    Run,
    heads,
    numbers,
)
from fairway.capture.columns.walks import FRAME_BYTES_MAX, STEP_S_MAX, pcap_offsets
from fairway.capture.frames import (
    ETHER_IPV4,
    ETHER_IPV6,
    ETHER_VLANS,
    NS_PER_S,
    RECORD_BYTES_MAX,
    VLAN_TAGS_MAX,
    LinkType,
)
from fairway.capture.pcap import FRACTION_NS, HEADER_BYTES, LINK_TYPE_MASK, RECORD_HEADER_BYTES
from fairway.core.columns import Integers
from fairway.core.errors import DamagedCapture

CAPTURED_BYTES_MIN = 262_144
"""What is believed even if a file announces a smaller snap length: tools write it wrongly, or 0."""
STEP_S_USUAL = 60
"""Records of a chain that are no further apart speak for it."""
ETHERNET_BYTES = 14
ETHERNET_PADDED = range(60, 65)
"""Sizes of frames that were filled up, with and without a check sequence."""
ETHER_TYPE_MIN = 0x0600
"""A value below this where a type belongs is a length."""
IP_OFFSETS: dict[int, int] = {
    LinkType.NULL: 4,
    LinkType.ETHERNET: ETHERNET_BYTES,
    LinkType.RAW: 0,
    LinkType.LOOP: 4,
    LinkType.LINUX_SLL: 16,
    LinkType.IPV4: 0,
    LinkType.IPV6: 0,
    LinkType.LINUX_SLL2: 20,
}
"""Where an IP packet begins in a frame."""


class _Head(NamedTuple):
    seconds: int
    fraction: int
    captured: int
    wire_bytes: int


@dataclass(frozen=True, slots=True)
class PcapForm:
    """A pcap file's header, and how to walk over what follows."""

    order: ByteOrder
    fraction_ns: int
    snap_bytes: int
    link_type: int

    @property
    def start(self) -> Position:
        """Where the first record is."""
        return Position(HEADER_BYTES, self.order)

    @property
    def captured_max(self) -> int:
        """The longest record that is believed."""
        return min(max(self.snap_bytes, CAPTURED_BYTES_MIN), RECORD_BYTES_MAX)

    def guess(self, data: memoryview, offset: int, stop: int) -> Position:
        """Return the first position from `offset` on, before `stop`, where a chain of plausible records begins."""
        found = self._search(data, max(offset, HEADER_BYTES), stop)
        return Position(stop if found is None else found, self.order)

    def walk(self, data: memoryview, position: Position, stop: int) -> Generator[Run | Gap, None, Position]:
        """Return the runs and gaps that start before `stop`, and return the position where the last one ends."""
        offset = position.offset
        while offset < stop:
            offsets, offset, gap = self._run(data, offset, min(stop, offset + BATCH_BYTES))
            if len(offsets):
                yield Run(Position(int(offsets[0]), self.order), offsets)
            if gap is not None:
                yield gap
                offset += gap.skipped_bytes
        return Position(offset, self.order)

    def records(self, data: memoryview, run: Run) -> Records:
        offsets = run.offsets
        head = heads(data, self.order, offsets, 4)
        fraction_ns = head[:, 1] * self.fraction_ns
        rows = len(offsets)
        return Records(
            offset=offsets,
            data_offset=offsets + RECORD_HEADER_BYTES,
            captured=head[:, 2],
            wire_bytes=head[:, 3],
            at_ns=np.where(fraction_ns < NS_PER_S, head[:, 0] * NS_PER_S + fraction_ns, NO_TIME),
            link_type=np.full(rows, self.link_type, dtype=np.int64),
            point=np.zeros(rows, dtype=np.int64),
            points=("",),
            damage=np.zeros(rows, dtype=np.uint8),
        )

    def _run(self, data: memoryview, offset: int, stop: int) -> tuple[Integers, int, Gap | None]:
        """Follow the records from an offset on; return theirs, where they end, and what is to be left out there."""
        buffer = np.frombuffer(data, dtype=np.uint8)
        found: list[Integers] = []
        gap = None
        while gap is None:
            offsets, offset = pcap_offsets(buffer, offset, stop, self.order == ">", self.captured_max)
            found.append(offsets)
            if offset >= stop:
                break
            judged = self._judged(data, offset)
            if isinstance(judged, Gap):
                gap = judged
            else:
                found.append(np.array([offset], dtype=np.int64))
                offset = judged
        return np.concatenate(found), offset, gap

    def _judged(self, data: memoryview, offset: int) -> int | Gap:
        """Look closely at an unusual record: return where it ends, or what is to be left out instead."""
        size, start = len(data), offset + RECORD_HEADER_BYTES
        if start > size:
            return Gap(offset, size - offset, CUT_OFF)
        head = self._head(data, offset)
        after = start + head.captured
        possible = head.captured <= self.captured_max and after <= size and bool(head.seconds or head.wire_bytes)
        if possible and self._borne_out(data, start, head.captured, head.wire_bytes):
            return after
        usual = head.captured <= head.wire_bytes <= self.captured_max
        here = self._behind(data, after, tolerant=usual) if possible else None
        others = self._otherwise(data, start, head)
        if here is not None:
            right = self._disproof(data, start, head, here, others)
            return after if right is None else _damage(offset, right)
        if others:
            return _damage(offset, others[0][1].start)
        found = self._search(data, offset + 1, after if possible else size)
        if found is not None:
            return _damage(offset, found)
        if possible:
            return after
        cut = self._link(data)(offset) is not None
        return Gap(offset, size - offset, CUT_OFF if cut else DAMAGED)

    def _behind(self, data: memoryview, offset: int, *, tolerant: bool) -> Chain | None:
        """Return the chain behind a record; a tolerant one has any times, and one wrong bit in its first length."""
        size, start = len(data), offset + RECORD_HEADER_BYTES
        if offset == size:
            return Chain({}, size, believed=True)
        found = chain_at(offset, self._link(data, any_time=tolerant), size)
        if found.several or start > size or not tolerant:
            return found if found.several else None
        head = self._head(data, offset)
        others = [other for _, other in self._otherwise(data, start, head)]
        behind = start + head.captured
        if self._plausible(data, start, head._replace(wire_bytes=head.captured)) and (
            behind + RECORD_HEADER_BYTES <= size and abs(self._head(data, behind).seconds - head.seconds) <= STEP_S_MAX
        ):
            others.insert(0, chain_at(behind, self._link(data), size))
        other = next((other for other in others if other.several), None)
        return other and Chain({offset: 0, **other.evidence}, other.end, other.believed)

    def _otherwise(self, data: memoryview, start: int, head: _Head) -> list[tuple[int, Chain]]:
        """Return lengths that one wrong bit may have changed and the chains that they lead to, the nearest first."""
        link, size = self._link(data), len(data)
        if head.captured == head.wire_bytes <= self.captured_max:
            return []
        lengths = sorted({head.wire_bytes, *(head.captured ^ 1 << bit for bit in range(32))})
        found = [
            (length, chain_at(start + length, link, size))
            for length in lengths
            if length != head.captured and length <= self.captured_max and start + length < size
        ]
        believed = [(length, other) for length, other in found if other.believed]
        return believed or [(length, other) for length, other in found if other.several]

    def _disproof(
        self, data: memoryview, start: int, head: _Head, here: Chain, others: Sequence[tuple[int, Chain]]
    ) -> int | None:
        """Return where reading goes on if the chain behind a record is disproved by another."""
        for length, other in others:
            apart = other.start not in here.evidence and other.start < here.end
            if (apart and self._borne_out(data, start, length, head.wire_bytes)) or other.disproves(here):
                return other.start
        if head.captured > FRAME_BYTES_MAX:
            found = self._search(data, start, start + head.captured)
            if found is not None and chain_at(found, self._link(data), len(data)).disproves(here):
                return found
        return None

    def _search(self, data: memoryview, offset: int, stop: int) -> int | None:
        return first_chain(self._candidates(data, offset, stop), self._link(data), len(data))

    def _candidates(self, data: memoryview, offset: int, stop: int) -> Iterator[int]:
        last = len(data) - RECORD_HEADER_BYTES + 1
        for low, high in windows(offset, min(stop, last)):
            wire_bytes = numbers(data, self.order, low + 12, high + 12)
            indices = np.flatnonzero((wire_bytes <= self.captured_max) & (wire_bytes > 0))
            captured = numbers(data, self.order, low + 8, high + 8)[indices]
            yield from (indices[captured <= wire_bytes[indices]] + low).tolist()

    def _head(self, data: memoryview, offset: int) -> _Head:
        return _Head._make(struct.unpack_from(f"{self.order}4I", data, offset))

    def _plausible(self, data: memoryview, start: int, head: _Head) -> bool:
        if not head.captured <= head.wire_bytes <= self.captured_max or not (head.seconds or head.wire_bytes):
            return False
        return plausible_frame(data, start, head.captured, head.wire_bytes, self.link_type)

    def _link(self, data: memoryview, *, any_time: bool = False) -> Link:
        size = len(data)

        def link(offset: int) -> tuple[int, int] | None:
            start = offset + RECORD_HEADER_BYTES
            if start > size:
                return size + 1, 0
            head = self._head(data, offset)
            if not self._plausible(data, start, head):
                return None
            after, step_s = start + head.captured, 0
            if after + RECORD_HEADER_BYTES <= size:
                step_s = abs(self._head(data, after).seconds - head.seconds)
            elif after != size:
                after = size + 1
            # Whatever its time is, a record of nothing proves nothing.
            if step_s > STEP_S_MAX and not (any_time and head.captured):
                return None
            signs = (
                head.captured == head.wire_bytes,
                step_s <= STEP_S_USUAL,
                head.fraction * self.fraction_ns < NS_PER_S,
            )
            return after, sum(signs) + CONFIRMED * self._borne_out(data, start, head.captured, head.wire_bytes)

        return link

    def _borne_out(self, data: memoryview, start: int, captured: int, wire_bytes: int) -> bool:
        """Return whether the IP packet in a frame is as long as the record says."""
        ip_at = IP_OFFSETS.get(self.link_type)
        if ip_at is None or start + captured > len(data):
            return False
        if self.link_type == LinkType.ETHERNET:
            ip_at += _vlans_bytes(data, start, captured)
        if captured < ip_at + 20:
            return False
        version = data[start + ip_at] >> 4
        if version not in (4, 6):
            return False
        field = start + ip_at + (2 if version == 4 else 4)
        length = ip_at + (0 if version == 4 else 40) + (data[field] << 8 | data[field + 1])
        if captured == self.snap_bytes:
            return length in (captured, wire_bytes)
        padded = self.link_type == LinkType.ETHERNET and captured in ETHERNET_PADDED and length <= captured
        return length == captured or padded


def _damage(offset: int, after: int) -> Gap:
    return Gap(offset, after - offset, DAMAGED)


def _vlans_bytes(data: memoryview, start: int, captured: int) -> int:
    tags = 0
    while (
        tags < VLAN_TAGS_MAX
        and ETHERNET_BYTES + 4 * tags < captured
        and _ether_type(data, start + 4 * tags) in ETHER_VLANS
    ):
        tags += 1
    return 4 * tags


def _ether_type(data: memoryview, start: int) -> int:
    return data[start + 12] << 8 | data[start + 13]


def plausible_frame(data: memoryview, start: int, captured: int, wire_bytes: int, link_type: int) -> bool:
    """Return whether what a record holds may be a frame of that link type; of a cut one as far as it goes."""
    if link_type in (LinkType.RAW, LinkType.IPV4, LinkType.IPV6):
        return captured == 0 or start >= len(data) or data[start] >> 4 in (4, 6)
    if link_type == LinkType.ETHERNET and captured > ETHERNET_BYTES and start + ETHERNET_BYTES < len(data):
        ether_type = _ether_type(data, start)
        if ether_type in (ETHER_IPV4, ETHER_IPV6):
            return data[start + ETHERNET_BYTES] >> 4 == (4 if ether_type == ETHER_IPV4 else 6)
        return ether_type >= ETHER_TYPE_MIN or ether_type <= wire_bytes - ETHERNET_BYTES
    return True


def pcap_form(head: bytes) -> PcapForm:
    """Read a pcap file's header from its first 24 bytes."""
    if len(head) < HEADER_BYTES:
        raise DamagedCapture(f"the capture ends after {len(head)} bytes, in the middle of its header")
    orders: tuple[ByteOrder, ByteOrder] = ("<", ">")
    for order in orders:
        magic, snap_bytes, link_type = struct.unpack(f"{order}I12xII", head[:HEADER_BYTES])
        if magic in FRACTION_NS:
            return PcapForm(order, FRACTION_NS[magic], snap_bytes, link_type & LINK_TYPE_MASK)
    raise DamagedCapture(f"the capture starts with {head[:4].hex()}, which is the magic of no pcap file")
