"""A walk over the records of a pcap file, by columns and from any byte.

A record is believed if its header is possible: no more captured than was on the wire and than any capture tool keeps, a
fraction below a second, and all of it inside the file. Where that fails the file is damaged: what lies before the next
chain of plausible records is left out and reported.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

import numpy as np

from fairway.capture.columns.chains import first_chain, windows
from fairway.capture.columns.records import (
    BATCH_BYTES,
    CUT_OFF,
    DAMAGED,
    TROUBLES,
    ByteOrder,
    Gap,
    Place,
    Records,
    Run,
    heads,
    numbers,
)
from fairway.capture.columns.walks import pcap_offsets
from fairway.capture.frames import NS_PER_S, LinkType
from fairway.capture.pcap import FRACTION_NS, HEADER_BYTES, LINK_TYPE_MASK, RECORD_HEADER_BYTES
from fairway.capture.source import RECORD_BYTES_MAX
from fairway.core.columns import Integers
from fairway.core.errors import DamagedCapture

CAPTURED_BYTES_MIN = 262_144
"""What is believed even if a file announces a smaller snap length: tools write it wrongly, or 0."""
STEP_S_MAX = 30 * 86_400
"""Records that follow one another are rarely further apart: asked of a chain only."""


@dataclass(frozen=True, slots=True)
class PcapForm:
    """A pcap file's header, and how to walk over what follows."""

    order: ByteOrder
    fraction_ns: int
    snap_bytes: int
    link_type: int

    @property
    def start(self) -> Place:
        """Where the first record is."""
        return Place(HEADER_BYTES, self.order)

    @property
    def captured_max(self) -> int:
        """The longest record that is believed."""
        return min(max(self.snap_bytes, CAPTURED_BYTES_MIN), RECORD_BYTES_MAX)

    def guess(self, data: memoryview, offset: int, stop: int) -> Place:
        """Gives the first place from `offset` on, before `stop`, where a chain of plausible records begins."""
        found = first_chain(self._candidates(data, max(offset, HEADER_BYTES), stop), self._link(data), len(data))
        return Place(stop if found is None else found, self.order)

    def walk(self, data: memoryview, place: Place, stop: int) -> Generator[Run | Gap, None, Place]:
        """Gives the runs and gaps that start before `stop`, and returns the place where the last one ends."""
        offset = place.offset
        while offset < stop:
            offsets, offset = self._run(data, offset, min(stop, offset + BATCH_BYTES))
            if len(offsets):
                yield Run(Place(int(offsets[0]), self.order), offsets)
            elif offset < stop:
                gap = self._gap(data, offset)
                yield gap
                offset += gap.skipped_bytes
        return Place(offset, self.order)

    def records(self, data: memoryview, run: Run) -> Records:
        """Reads the headers of a run."""
        offsets = run.offsets
        head = heads(data, self.order, offsets, 4)
        rows = len(offsets)
        return Records(
            offset=offsets,
            data_offset=offsets + RECORD_HEADER_BYTES,
            captured=head[:, 2],
            wire_bytes=head[:, 3],
            at_ns=head[:, 0] * NS_PER_S + head[:, 1] * self.fraction_ns,
            link_type=np.full(rows, self.link_type, dtype=np.int64),
            point=np.zeros(rows, dtype=np.int64),
            points=("",),
            trouble=np.zeros(rows, dtype=np.uint8),
            counted=np.ones(rows, dtype=np.bool_),
        )

    def _run(self, data: memoryview, offset: int, stop: int) -> tuple[Integers, int]:
        """Follows the records from an offset on, as far as their headers are possible."""
        buffer = np.frombuffer(data, dtype=np.uint8)
        return pcap_offsets(buffer, offset, stop, self.order == ">", self.captured_max, self.fraction_ns)

    def _gap(self, data: memoryview, offset: int) -> Gap:
        """Gives what is to be left out from an offset on where there is no record."""
        size = len(data)
        after = first_chain(self._candidates(data, offset + 1, size), self._link(data), size)
        if after is not None:
            return Gap(offset, after - offset, TROUBLES.index(DAMAGED))
        whole_head = offset + RECORD_HEADER_BYTES <= size
        cut = not whole_head or self._link(data)(offset) is not None
        return Gap(offset, size - offset, TROUBLES.index(CUT_OFF if cut else DAMAGED))

    def _candidates(self, data: memoryview, offset: int, stop: int) -> Iterator[int]:
        """Gives the offsets at which a header is possible."""
        last = len(data) - RECORD_HEADER_BYTES + 1
        for low, high in windows(offset, min(stop, last)):
            captured = numbers(data, self.order, low + 8, high + 8)
            places = np.flatnonzero(captured <= self.captured_max)
            wire_bytes = numbers(data, self.order, low + 12, high + 12)[places]
            places = places[captured[places] <= wire_bytes]
            fraction = numbers(data, self.order, low + 4, high + 4)[places].astype(np.int64)
            places = places[fraction * self.fraction_ns < NS_PER_S]
            yield from (places + low).tolist()

    def _link(self, data: memoryview) -> Callable[[int], int | None]:
        size, captured_max = len(data), self.captured_max
        head = struct.Struct(f"{self.order}4I")
        fraction_max = NS_PER_S // self.fraction_ns

        def link(offset: int) -> int | None:
            seconds, fraction, captured, wire_bytes = head.unpack_from(data, offset)
            if captured > min(wire_bytes, captured_max) or fraction >= fraction_max or not (seconds or wire_bytes):
                return None
            after: int = offset + RECORD_HEADER_BYTES + captured
            if after + RECORD_HEADER_BYTES <= size:
                if abs(int(head.unpack_from(data, after)[0]) - seconds) > STEP_S_MAX:
                    return None
            elif after != size:
                after = size + 1
            if not plausible_frame(data, offset + RECORD_HEADER_BYTES, captured, self.link_type):
                return None
            return after

        return link


def plausible_frame(data: memoryview, offset: int, captured: int, link_type: int) -> bool:
    """Tells whether what a record holds may be a frame of that link type; of a cut one as far as it goes."""
    if link_type in (LinkType.RAW, LinkType.IPV4, LinkType.IPV6):
        return captured == 0 or offset >= len(data) or data[offset] >> 4 in (4, 6)
    if link_type == LinkType.ETHERNET and captured > 14 and offset + 14 < len(data):
        if data[offset + 12] == 0x08 and data[offset + 13] == 0x00:
            return data[offset + 14] >> 4 == 4
        if data[offset + 12] == 0x86 and data[offset + 13] == 0xDD:
            return data[offset + 14] >> 4 == 6
    return True


def pcap_form(head: bytes) -> PcapForm:
    """Reads a pcap file's header from its first 24 bytes."""
    if len(head) < HEADER_BYTES:
        raise DamagedCapture(f"the capture ends after {len(head)} bytes, in the middle of its header")
    orders: tuple[ByteOrder, ByteOrder] = ("<", ">")
    for order in orders:
        magic, snap_bytes, link_type = struct.unpack(f"{order}I12xII", head[:HEADER_BYTES])
        if magic in FRACTION_NS:
            return PcapForm(order, FRACTION_NS[magic], snap_bytes, link_type & LINK_TYPE_MASK)
    raise DamagedCapture(f"the capture starts with {head[:4].hex()}, which is the magic of no pcap file")
