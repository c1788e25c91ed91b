"""A batch of a capture's records as Arrow columns of `RECORDS`: only those that are asked for are built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import cached_property, partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fairway.capture.columns.crcs import crcs
from fairway.capture.columns.datagrams import REASONS, Datagrams, decode_frames
from fairway.capture.columns.pieces import joined
from fairway.capture.columns.records import DAMAGES, NO_TIME, Records
from fairway.core.columns import Bytes, Integers
from fairway.core.tables import RECORDS
from fairway.lake.arrays import MISSING, Mask, mixed, numbers, scrambled
from fairway.lake.schemas import arrow_schema

SCHEMA = arrow_schema(RECORDS)
HEAD_BYTES = 64
"""So much of a datagram is kept: more than any protocol's header, and what stands behind it for whoever looks."""
_ALL = 1 << 31
LOOK_AHEAD_BYTES = 64
"""Decoders of frames copy whole headers; behind the last record there is something to copy."""
UNDECODED = (*REASONS, *DAMAGES[1:])
"""Why a record holds no whole UDP datagram; the first is none."""


class Batch:
    """Records of one file that lie together, and what is read from them on demand."""

    def __init__(self, data: memoryview, records: Records, frames: Integers, file_id: int) -> None:
        """`frames` are the numbers of the records, `data` the whole file."""
        self.records = records
        self.frames = frames
        self.file_id = file_id
        self._data = data
        self._low = int(records.data_offset.min()) if len(records) else 0
        ends = records.data_offset + records.captured
        high = min(len(data), int(ends.max(initial=self._low)) + LOOK_AHEAD_BYTES)
        self.view = data[self._low : high]
        self.buffer = np.frombuffer(self.view, dtype=np.uint8)
        self.piece = np.zeros(len(records), dtype=np.int64)
        """Which datagram of its record a row may be, from 1; 0 for the record as it is."""
        self.merged_as = np.full(len(records), MISSING, dtype=np.int64)
        """Whose datagrams a record may hold, as an index in `PROTOCOLS`; -1 if it holds one."""
        self.gaps = np.zeros(len(records), dtype=np.int64)
        """How many damaged stretches of the file lie before a row."""

    def __len__(self) -> int:
        return len(self.records)

    def taken(self, rows: Integers, nth: Integers, datagrams: Datagrams, less_bytes: Integers) -> Batch:
        """Return the batch of these rows, some more than once: the n-th of a record, shorter by so many bytes."""
        columns = {field.name: getattr(self.records, field.name) for field in fields(Records)}
        columns = {name: value if name == "points" else value[rows] for name, value in columns.items()}
        columns["offset"] = columns["offset"] + nth
        columns["wire_bytes"] = columns["wire_bytes"] - less_bytes
        several = less_bytes > 0
        columns["captured"] = np.where(several, columns["wire_bytes"], columns["captured"])
        batch = Batch(self._data, replace(self.records, **columns), self.frames[rows], self.file_id)
        batch._low, batch.view, batch.buffer = self._low, self.view, self.buffer
        batch.piece, batch.merged_as, batch.gaps = self.piece[rows], self.merged_as[rows], self.gaps[rows]
        batch.__dict__["datagrams"] = datagrams
        return batch

    @cached_property
    def flow(self) -> Integers:
        """A hash of the two endpoints of each row, whatever the direction; of rows without any, of their offset."""
        found = self.datagrams
        one = scrambled(
            scrambled(found.source_high) ^ found.source_low ^ (found.source_port.astype(np.uint64) << np.uint64(40))
        )
        other = scrambled(
            scrambled(found.destination_high)
            ^ found.destination_low
            ^ (found.destination_port.astype(np.uint64) << np.uint64(40))
        )
        flow = scrambled(np.minimum(one, other) * np.uint64(3) + np.maximum(one, other)).view(np.int64)
        if self.no_datagram.any():  # spread, lest all of them go to one task
            position = mixed(np.full(len(self), self.file_id), self.records.offset >> np.int64(20)).view(np.int64)
            flow = np.where(self.no_datagram, position, flow)
        return flow

    @cached_property
    def datagrams(self) -> Datagrams:
        """The UDP datagrams of the frames."""
        records = self.records
        return decode_frames(self.buffer, records.data_offset - self._low, records.captured, records.link_type)

    @cached_property
    def undecoded(self) -> NDArray[np.uint8]:
        """Why a row holds no datagram, as an index in `UNDECODED`."""
        reason = self.datagrams.reason
        damage = self.records.damage
        if not damage.any():
            return reason
        return np.where(damage, len(REASONS) + damage - 1, reason).astype(np.uint8)

    @cached_property
    def no_datagram(self) -> Mask:
        """Which rows hold none."""
        mask: Mask = self.undecoded != 0
        return mask

    @cached_property
    def whole(self) -> Mask:
        """Which rows hold all of a datagram's payload."""
        found = self.datagrams
        mask: Mask = ~self.no_datagram & (found.payload_captured == found.payload_bytes)
        return mask


def arrow_batch(batch: Batch, names: Sequence[str], *, payload: bool = False) -> pa.RecordBatch:
    """Build the columns of these names; with `payload` a head is all of the payload."""
    arrays = [_head(batch, _ALL) if payload and name == "head" else _BUILDERS[name](batch) for name in names]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([SCHEMA.field(name) for name in names]))


def _point(batch: Batch) -> pa.Array:
    return pa.array(batch.records.points, type=pa.string()).take(pa.array(batch.records.point))


def _truncated(batch: Batch) -> pa.Array:
    records = batch.records
    cut = (records.captured < records.wire_bytes) & (records.damage == 0)
    return pa.array(cut | batch.datagrams.first_fragment)


def _address(end: str, batch: Batch) -> pa.Array:
    found = batch.datagrams
    packed = np.zeros(len(batch), dtype=[("high", ">u8"), ("low", ">u8")])
    packed["high"], packed["low"] = getattr(found, f"{end}_high"), getattr(found, f"{end}_low")
    lengths = np.where(found.is_ipv6, 16, 4)
    starts = 16 * np.arange(len(batch)) + 16 - lengths
    return _pieces(packed.view(np.uint8), starts, lengths, batch.no_datagram)


def _head(batch: Batch, bytes_max: int = HEAD_BYTES) -> pa.Array:
    found = batch.datagrams
    return _pieces(batch.buffer, found.payload_offset, np.minimum(found.payload_captured, bytes_max), batch.no_datagram)


def _payload_crc(batch: Batch) -> pa.Array:
    found, rows = batch.datagrams, np.flatnonzero(batch.whole)
    values = np.zeros(len(batch), dtype=np.int64)
    starts = found.payload_offset[rows]
    values[rows] = crcs(batch.buffer, starts, starts + found.payload_bytes[rows])
    return numbers(values, ~batch.whole, pa.int64())


def _pieces(buffer: Bytes, starts: Integers, lengths: Integers, null: Mask) -> pa.Array:
    """Return pieces of a buffer as binary values."""
    ends, held = joined(buffer, starts, np.where(null, 0, lengths))
    valid = pa.py_buffer(np.packbits(~null, bitorder="little")) if null.any() else None
    return pa.BinaryArray.from_buffers(pa.binary(), len(starts), [valid, pa.py_buffer(ends), pa.py_buffer(held)])


_BUILDERS: dict[str, Callable[[Batch], pa.Array]] = {
    "file_id": lambda batch: pa.array(np.full(len(batch), batch.file_id)),
    "offset": lambda batch: numbers(batch.records.offset, None, pa.int64()),
    "frame": lambda batch: numbers(batch.frames, None, pa.int64()),
    "piece": lambda batch: numbers(batch.piece, None, pa.int32()),
    "merged_as": lambda batch: numbers(batch.merged_as, batch.merged_as == MISSING, pa.int32()),
    "damages_before": lambda batch: numbers(batch.gaps, None, pa.int64()),
    "point": _point,
    "at_ns": lambda batch: numbers(batch.records.at_ns, batch.records.at_ns == NO_TIME, pa.int64()),
    "flow": lambda batch: numbers(batch.flow, None, pa.int64()),
    "source": partial(_address, "source"),
    "source_port": lambda batch: numbers(batch.datagrams.source_port, batch.no_datagram, pa.int32()),
    "destination": partial(_address, "destination"),
    "destination_port": lambda batch: numbers(batch.datagrams.destination_port, batch.no_datagram, pa.int32()),
    "frame_bytes": lambda batch: numbers(batch.records.wire_bytes, None, pa.int64()),
    "payload_bytes": lambda batch: numbers(batch.datagrams.payload_bytes, batch.no_datagram, pa.int32()),
    "truncated": _truncated,
    "undecoded": lambda batch: numbers(batch.undecoded, None, pa.int32()),
    "head": _head,
    "payload_crc": _payload_crc,
}
assert tuple(_BUILDERS) == RECORDS.names
