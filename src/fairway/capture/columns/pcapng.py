"""A walk over the blocks of a pcapng file, by columns and from any byte.

A block is believed if its length is possible and stands at both ends. A reader that starts in the middle knows neither
the section's byte order nor its interfaces: the order is found with the chain of blocks, and the interfaces come from
whoever has read what lies before (`fairway.capture.columns.ranges`).
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace

import numpy as np

from fairway.capture.columns.chains import chain_at, first_chain, windows
from fairway.capture.columns.records import (
    BATCH_BYTES,
    CONTRADICTION,
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
from fairway.capture.columns.walks import pcapng_offsets
from fairway.capture.frames import NS_PER_S, RECORD_BYTES_MAX, Interface
from fairway.capture.pcapng import (
    BLOCK_BYTES_MIN,
    BYTE_ORDER_MAGIC,
    ENHANCED_PACKET,
    INTERFACE,
    OLD_PACKET,
    SECTION_HEADER,
    SIMPLE_PACKET,
    read_interface,
)
from fairway.core.columns import Integers
from fairway.core.errors import DamagedCapture

KNOWN_BLOCKS = (*range(1, 11), 0x0BAD, 0x40000BAD, SECTION_HEADER)
"""The kinds that a chain is searched among; a walk passes over blocks of any kind."""
ORDERS: tuple[ByteOrder, ByteOrder] = ("<", ">")
ENHANCED_WORDS = 7
NO_LINK = -1
"""The link type of an interface whose block cannot be read."""
SIMPLE_WORDS = 3


@dataclass(frozen=True, slots=True)
class PcapngForm:
    """How to walk over a pcapng file; `order` is that of its first section."""

    order: ByteOrder

    @property
    def start(self) -> Position:
        """Where the first section header is."""
        return Position(0, self.order)

    def guess(self, data: memoryview, offset: int, stop: int) -> Position:
        """Return the first position from `offset` on, before `stop`, where a chain of plausible blocks begins."""
        return _search(data, offset, stop, self.order) or Position(stop, self.order)

    def walk(self, data: memoryview, position: Position, stop: int) -> Generator[Run | Gap, None, Position]:
        """Return the runs and gaps that start before `stop`, and return the position where the last one ends."""
        while position.offset < stop:
            run, after = _run(data, position, min(stop, position.offset + BATCH_BYTES))
            if len(run.offsets):
                yield run
            if after.offset == position.offset:
                gap, after = _gap(data, position)
                yield gap
            position = after
        return position

    def records(self, data: memoryview, run: Run) -> Records:
        offsets = run.offsets
        kind, length = heads(data, run.position.order, offsets, 2).T
        # A row that is not filled contradicts itself.
        found = Records(
            offset=offsets,
            data_offset=offsets + 8,
            captured=np.zeros_like(offsets),
            wire_bytes=length.copy(),
            at_ns=np.full_like(offsets, NO_TIME),
            link_type=np.zeros_like(offsets),
            point=np.zeros_like(offsets),
            points=tuple(interface.name or "" for interface in run.position.interfaces) or ("",),
            damage=np.full(len(offsets), CONTRADICTION, dtype=np.uint8),
        )
        enhanced = np.flatnonzero((kind == ENHANCED_PACKET) | (kind == OLD_PACKET))
        # The smallest block holds no fixed part; what is read past it is not believed.
        _read_enhanced(data, run, enhanced[length[enhanced] >= BLOCK_BYTES_MIN + 20], length, found)
        simple = np.flatnonzero(kind == SIMPLE_PACKET)
        _read_simple(data, run, simple[length[simple] >= BLOCK_BYTES_MIN + 4], length, found)
        return found


def pcapng_form(head: bytes) -> PcapngForm:
    """Read the byte order from a file's first 12 bytes."""
    order = section_order(memoryview(head), 0)
    if order is None:
        raise DamagedCapture("the capture does not start with a whole pcapng section header")
    return PcapngForm(order)


def section_order(data: memoryview, offset: int) -> ByteOrder | None:
    """Return the byte order of the section header at an offset, None if there is none."""
    if bytes(data[offset : offset + 4]) != SECTION_HEADER.to_bytes(4):
        return None
    magic = bytes(data[offset + 8 : offset + 12])
    return next((order for order in ORDERS if magic == struct.pack(f"{order}I", BYTE_ORDER_MAGIC)), None)


def _run(data: memoryview, position: Position, stop: int) -> tuple[Run, Position]:
    """Take packets up to `stop`, to damage, or to a block that changes what the packets after it mean."""
    buffer = np.frombuffer(data, dtype=np.uint8)
    offsets, end = pcapng_offsets(buffer, position.offset, stop, position.order == ">")
    run, after = Run(position, offsets), replace(position, offset=end)
    if len(offsets) or not position.offset <= end < min(stop, len(data) - BLOCK_BYTES_MIN + 1):
        return run, after
    kind, length = struct.unpack_from(f"{position.order}II", data, end)
    if kind == SECTION_HEADER:
        return run, _section(data, after)
    if kind == INTERFACE and end + length <= len(data) and _after(data, end, position.order) == end + length:
        return run, _with_interface(data, after, end + length)
    return run, after


def _section(data: memoryview, position: Position) -> Position:
    """Return the position after a section header; the same position if it is damaged."""
    order = section_order(data, position.offset)
    if order is None:
        return position
    after = _after(data, position.offset, order)
    return position if after is None or after > len(data) else Position(after, order, sections=position.sections + 1)


def _with_interface(data: memoryview, position: Position, after: int) -> Position:
    """Return where an interface block ends. One that cannot be read still counts: later ones keep their numbers."""
    try:
        interface = read_interface(bytes(data[position.offset + 8 : after - 4]), position.order)
    except (struct.error, IndexError):
        interface = Interface(NO_LINK, 0, None, 1, 0)
    return replace(position, offset=after, interfaces=(*position.interfaces, interface))


def _after(data: memoryview, offset: int, order: ByteOrder) -> int | None:
    """Return where the block at an offset ends, None if it is not plausible; past the end if it is cut off."""
    size = len(data)
    if offset + 8 > size:
        return size + 1
    kind, length = struct.unpack_from(f"{order}II", data, offset)
    if length < BLOCK_BYTES_MIN or length % 4 or length > RECORD_BYTES_MAX or kind not in KNOWN_BLOCKS:
        return None
    after: int = offset + length
    if after > size:
        return size + 1
    return after if struct.unpack_from(f"{order}I", data, after - 4)[0] == length else None


def _gap(data: memoryview, position: Position) -> tuple[Gap, Position]:
    """Return what is to be left out where there is no block, and where reading goes on."""
    size = len(data)
    found = _next_block(data, position) or _search(data, position.offset + 1, size, position.order)
    if found is not None:
        # Another byte order is another section, whose header and interfaces are lost.
        after = replace(position, offset=found.offset)
        if found.order != position.order:
            after = replace(found, sections=position.sections + 1)
        return Gap(position.offset, found.offset - position.offset, DAMAGED), after
    cut = _after(data, position.offset, position.order) == size + 1
    damage = CUT_OFF if cut else DAMAGED
    return Gap(position.offset, size - position.offset, damage), replace(position, offset=size)


def _next_block(data: memoryview, position: Position) -> Position | None:
    """Find the block behind one of whose two lengths one bit is wrong."""
    if position.offset + BLOCK_BYTES_MIN > len(data):
        return None
    (length,) = struct.unpack_from(f"{position.order}I", data, position.offset + 4)
    for likely in (*(length ^ 1 << bit for bit in range(32)), length):
        after = position.offset + likely
        if likely % 4 or not BLOCK_BYTES_MIN <= likely <= RECORD_BYTES_MAX or after >= len(data):
            continue
        (again,) = struct.unpack_from(f"{position.order}I", data, after - 4)
        found = chain_at(after, _Links(data, position.order), len(data))
        if found.believed if likely == length else likely == again and found.several:
            return replace(position, offset=after)
    return None


def _search(data: memoryview, offset: int, stop: int, preferred: ByteOrder) -> Position | None:
    """Find the first chain of blocks; where both byte orders have one at the same offset, the preferred one."""
    orders = (preferred, *(other for other in ORDERS if other != preferred))
    for low, high in windows(offset, min(stop, len(data) - BLOCK_BYTES_MIN + 1)):
        found = [position for order in orders if (position := _chain(data, low, high, order)) is not None]
        if found:
            return min(found, key=lambda position: position.offset)
    return None


def _chain(data: memoryview, low: int, high: int, start_order: ByteOrder) -> Position | None:
    link = _Links(data, start_order)
    at = first_chain(link.each(_candidates(data, low, high, start_order)), link, len(data))
    return None if at is None else Position(at, section_order(data, at) or start_order)


class _Links:
    """The links of a chain of blocks, in the byte order of the section that it has come to."""

    def __init__(self, data: memoryview, order: ByteOrder) -> None:
        self._data = data
        self._start_order = self._order = order

    def each(self, candidates: Iterator[int]) -> Iterator[int]:
        """Go through candidates: a chain before may have gone on into a section of the other order."""
        for candidate in candidates:
            self._order = self._start_order
            yield candidate

    def __call__(self, offset: int) -> tuple[int, int] | None:
        self._order = section_order(self._data, offset) or self._order
        after = _after(self._data, offset, self._order)
        return None if after is None else (after, 1)


def _candidates(data: memoryview, low: int, high: int, order: ByteOrder) -> Iterator[int]:
    length = numbers(data, order, low + 4, high + 4)
    indices = np.flatnonzero((length >= BLOCK_BYTES_MIN) & (length <= RECORD_BYTES_MAX) & (length % 4 == 0))
    kind = numbers(data, order, low, high)[indices]
    yield from (indices[np.isin(kind, KNOWN_BLOCKS)] + low).tolist()


def _read_enhanced(data: memoryview, run: Run, rows: Integers, block_bytes: Integers, columns: Records) -> None:
    interfaces = run.position.interfaces
    if not len(rows) or not interfaces:
        return
    head = heads(data, run.position.order, columns.offset[rows], ENHANCED_WORDS)
    kind, _, number, high, low, captured, wire_bytes = head.T
    # Of an old packet the other half of the number counts drops.
    number = np.where(kind == OLD_PACKET, number & 0xFFFF if run.position.order == "<" else number >> 16, number)
    good = (number < len(interfaces)) & (20 + captured <= block_bytes[rows] - BLOCK_BYTES_MIN)
    links = np.array([interface.link_type for interface in interfaces], dtype=np.int64)
    good[good] = links[number[good]] >= 0
    rows, number = rows[good], number[good]
    columns.data_offset[rows] = columns.offset[rows] + 28
    columns.captured[rows] = captured[good]
    columns.wire_bytes[rows] = wire_bytes[good]
    columns.link_type[rows] = links[number]
    columns.point[rows] = number
    columns.damage[rows] = 0
    for index, interface in enumerate(interfaces):
        of_it = number == index
        if of_it.any():
            columns.at_ns[rows[of_it]] = _times(interface, high[good][of_it], low[good][of_it])


def _times(interface: Interface, high: Integers, low: Integers) -> Integers:
    """Return times in nanoseconds; by whole numbers of Python's where 64 bits may not hold what is on the way."""
    per_tick = NS_PER_S // interface.ticks_per_s
    if NS_PER_S % interface.ticks_per_s == 0 and interface.offset_s == 0 and (not len(high) or high.max() < 1 << 30):
        ticks = (high << 32) | low
        if int(ticks.max()) * per_tick < 1 << 63:
            times: Integers = ticks * per_tick
            return times
    exact = [interface.at_ns(first << 32 | second) for first, second in zip(high.tolist(), low.tolist(), strict=True)]
    return np.array([at if -(1 << 63) < at < 1 << 63 else NO_TIME for at in exact], dtype=np.int64)


def _read_simple(data: memoryview, run: Run, rows: Integers, block_bytes: Integers, columns: Records) -> None:
    """A simple packet has no time and belongs to the first interface."""
    interfaces = run.position.interfaces
    if not len(rows) or not interfaces or interfaces[0].link_type < 0:
        return
    wire_bytes = heads(data, run.position.order, columns.offset[rows], SIMPLE_WORDS)[:, 2]
    captured = np.minimum(wire_bytes, interfaces[0].snap_bytes)
    good = 4 + captured <= block_bytes[rows] - BLOCK_BYTES_MIN
    rows = rows[good]
    columns.data_offset[rows] = columns.offset[rows] + 12
    columns.captured[rows] = captured[good]
    columns.wire_bytes[rows] = wire_bytes[good]
    columns.link_type[rows] = interfaces[0].link_type
    columns.damage[rows] = 0
