"""A batch of a capture's records as Arrow columns: only those that are asked for are built.

A column of `DATAGRAMS` is a function of a `Batch`, which reads each protocol at most once. Texts that repeat (kinds,
reasons, addresses, names) are kept as dictionaries, which files take as they are; `plain` unfolds them for Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import cached_property, lru_cache
from ipaddress import IPv4Address, IPv6Address

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fairway.capture.columns.crcs import crcs
from fairway.capture.columns.datagrams import REASONS, Datagrams, Words, decode_frames
from fairway.capture.columns.records import NO_TIME, TROUBLES, Records
from fairway.core.columns import Columns, Integers
from fairway.core.tables import DATAGRAMS, PROTOCOLS
from fairway.lake.arrays import scrambled
from fairway.lake.schemas import arrow_schema
from fairway.protocols import columns as protocol_columns

Mask = NDArray[np.bool_]

SCHEMA = arrow_schema(DATAGRAMS)
HEADER_BYTES = {"udpc": 13, "mrp": 14, "rup": 42, "pydevts": 8}
"""How much of a datagram a protocol's decoder looks at."""
LOOK_AHEAD_BYTES = 64
"""Decoders copy whole headers; behind the last datagram there is something to copy."""
UDPC_ACK = 0x01
MRP_CONNECT, MRP_CON_REPLY, MRP_DATA, MRP_ACK = 2, 3, 4, 5
RUP_DATA = 1


class Batch:
    """Records of one file that lie together, and what is read from them on demand."""

    def __init__(self, data: memoryview, records: Records, frames: Integers, file_id: str, file: str) -> None:
        """`frames` are the numbers of the records, `data` the whole file."""
        self.records = records
        self.frames = frames
        self.file_id = file_id
        self.file = file
        self._data = data
        self._low = int(records.data_offset.min()) if len(records) else 0
        ends = records.data_offset + records.captured
        high = min(len(data), int(ends.max(initial=self._low)) + LOOK_AHEAD_BYTES)
        self.view = data[self._low : high]
        self.buffer = np.frombuffer(self.view, dtype=np.uint8)
        self._readings: dict[str, Columns] = {}
        self.piece = np.zeros(len(records), dtype=np.int64)
        """Which datagram of its record a row may be, from 1; 0 for the record as it is."""
        self.merged_as = np.full(len(records), -1, dtype=np.int64)
        """Whose datagrams a record may hold, as a place in `PROTOCOLS`; -1 if it holds one."""

    def __len__(self) -> int:
        return len(self.records)

    def where(self, kept: Mask) -> Batch:
        """Gives the batch of the rows that are kept."""
        if kept.all():
            return self
        columns = {field.name: getattr(self.records, field.name) for field in fields(Records)}
        columns = {name: value if name == "points" else value[kept] for name, value in columns.items()}
        batch = Batch(self._data, replace(self.records, **columns), self.frames[kept], self.file_id, self.file)
        batch.piece, batch.merged_as = self.piece[kept], self.merged_as[kept]
        return batch

    def taken(self, rows: Integers, nth: Integers, datagrams: Datagrams, less_bytes: Integers) -> Batch:
        """Gives the batch of these rows, some more than once: the n-th of a record, shorter by so many bytes."""
        columns = {field.name: getattr(self.records, field.name) for field in fields(Records)}
        columns = {name: value if name == "points" else value[rows] for name, value in columns.items()}
        columns["offset"] = columns["offset"] + nth
        columns["wire_bytes"] = columns["wire_bytes"] - less_bytes
        several = less_bytes > 0
        columns["captured"] = np.where(several, columns["wire_bytes"], columns["captured"])
        batch = Batch(self._data, replace(self.records, **columns), self.frames[rows], self.file_id, self.file)
        batch._low, batch.view, batch.buffer = self._low, self.view, self.buffer
        batch.piece, batch.merged_as = self.piece[rows], self.merged_as[rows]
        batch.__dict__["datagrams"] = datagrams
        return batch

    def ordered(self, rows: Integers) -> Batch:
        """Gives the batch with its rows in another order."""
        found = self.datagrams
        moved = {field.name: getattr(found, field.name)[rows] for field in fields(Datagrams)}
        none = np.zeros(len(rows), dtype=np.int64)
        return self.taken(rows, none, Datagrams(**moved), none)

    @cached_property
    def flow(self) -> Integers:
        """A hash of the two endpoints of each row, whatever the direction; it means nothing in rows without any."""
        found = self.datagrams
        one = scrambled(
            scrambled(found.source_high) ^ found.source_low ^ (found.source_port.astype(np.uint64) << np.uint64(40))
        )
        other = scrambled(
            scrambled(found.destination_high)
            ^ found.destination_low
            ^ (found.destination_port.astype(np.uint64) << np.uint64(40))
        )
        return scrambled(np.minimum(one, other) * np.uint64(3) + np.maximum(one, other)).view(np.int64)

    @cached_property
    def datagrams(self) -> Datagrams:
        """The UDP datagrams of the frames."""
        records = self.records
        return decode_frames(self.buffer, records.data_offset - self._low, records.captured, records.link_type)

    @cached_property
    def undecoded(self) -> NDArray[np.uint8]:
        """Why a row holds no datagram, as a place in `UNDECODED`."""
        reason = self.datagrams.reason
        trouble = self.records.trouble
        if not trouble.any():
            return reason
        return np.where(trouble, len(REASONS) + trouble - 1, reason).astype(np.uint8)

    @cached_property
    def no_datagram(self) -> Mask:
        """Tells which rows hold none."""
        mask: Mask = self.undecoded != 0
        return mask

    @cached_property
    def whole(self) -> Mask:
        """Tells which rows hold all of a datagram's payload."""
        found = self.datagrams
        mask: Mask = ~self.no_datagram & (found.payload_captured == found.payload_bytes)
        return mask

    def reading(self, protocol: str) -> Columns:
        """Reads all datagrams as those of one protocol."""
        if protocol not in self._readings:
            found = self.datagrams
            needed = np.minimum(found.payload_bytes, HEADER_BYTES[protocol])
            # Of a header that was cut nothing is read: half of one may look like a shorter datagram.
            lengths = np.where(found.payload_captured >= needed, found.payload_bytes, 0)
            decode: Callable[..., Columns] = protocol_columns(protocol).decode_columns
            self._readings[protocol] = decode(self.buffer, found.payload_offset, lengths)
        return self._readings[protocol]

    def malformed(self, protocol: str) -> Mask:
        """Tells which rows cannot be read as that protocol, those without a datagram among them."""
        mask: Mask = self.reading(protocol).kind == 0
        return mask


UNDECODED = (*REASONS, *TROUBLES[1:])


def arrow_batch(batch: Batch, names: Sequence[str], *, dictionaries: bool, payload: bool) -> pa.RecordBatch:
    """Builds the columns of these names; without `dictionaries` texts are unfolded, without `payload` it is null."""
    arrays = [column(batch, name) if payload or name != "payload" else _nothing(batch) for name in names]
    if not dictionaries:
        arrays = [plain(array) for array in arrays]
    schema = pa.schema(
        [SCHEMA.field(name).with_type(array.type) for name, array in zip(names, arrays, strict=True)],
    )
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def column(batch: Batch, name: str) -> pa.Array:
    """Builds one column of `DATAGRAMS`."""
    return _BUILDERS[name](batch)


def _nothing(batch: Batch) -> pa.Array:
    return pa.nulls(len(batch), pa.binary())


def plain(array: pa.Array) -> pa.Array:
    """Unfolds a dictionary."""
    return array.dictionary_decode() if isinstance(array, pa.DictionaryArray) else array


def _numbers(values: NDArray[np.generic], null: Mask | None, kind: pa.DataType) -> pa.Array:
    width = np.int32 if kind == pa.int32() else np.int64
    return pa.array(values.astype(width, copy=False), type=kind, mask=null if null is not None and null.any() else None)


def _names(codes: NDArray[np.generic], names: Sequence[str], null: Mask | None) -> pa.Array:
    """Gives names by their numbers, as a dictionary."""
    indices = pa.array(codes.astype(np.int32), mask=null if null is not None and null.any() else None)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, type=pa.string()), safe=False)


def _constant(batch: Batch, text: str) -> pa.Array:
    return _names(np.zeros(len(batch), dtype=np.int32), (text,), None)


def _at(batch: Batch) -> pa.Array:
    at_ns = batch.records.at_ns
    return pa.array(at_ns // 1_000, mask=at_ns == NO_TIME).cast(SCHEMA.field("at").type)


def _at_ns(batch: Batch) -> pa.Array:
    at_ns = batch.records.at_ns
    return _numbers(at_ns, at_ns == NO_TIME, pa.int64())


def _truncated(batch: Batch) -> pa.Array:
    records = batch.records
    cut = (records.captured < records.wire_bytes) & (records.trouble == 0)
    return pa.array(cut | batch.datagrams.first_fragment)


def _source(batch: Batch) -> pa.Array:
    found = batch.datagrams
    return _addresses(found.source_high, found.source_low, found.is_ipv6, batch.no_datagram)


def _destination(batch: Batch) -> pa.Array:
    found = batch.datagrams
    return _addresses(found.destination_high, found.destination_low, found.is_ipv6, batch.no_datagram)


def _addresses(high: Words, low: Words, is_ipv6: Mask, null: Mask) -> pa.Array:
    """Writes each address once; a capture holds few."""
    if not is_ipv6.any():
        encoded = pa.array(low.astype(np.uint32), mask=null if null.any() else None).dictionary_encode()
        texts = [_ipv4(number) for number in encoded.dictionary.to_pylist()]
    else:
        keys = np.zeros(len(low), dtype=[("version", "u1"), ("high", ">u8"), ("low", ">u8")])
        keys["version"], keys["high"], keys["low"] = is_ipv6, high, low
        whole = pa.FixedSizeBinaryArray.from_buffers(pa.binary(17), len(keys), [None, pa.py_buffer(keys.tobytes())])
        encoded = whole.dictionary_encode()
        texts = [_text(key) for key in encoded.dictionary.to_pylist()]
        if null.any():
            indices = pa.array(encoded.indices.to_numpy(), mask=null)
            return pa.DictionaryArray.from_arrays(indices, pa.array(texts, type=pa.string()))
    return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(texts, type=pa.string()))


@lru_cache(maxsize=1 << 16)
def _ipv4(number: int) -> str:
    return str(IPv4Address(number))


@lru_cache(maxsize=1 << 16)
def _text(key: bytes) -> str:
    return str(IPv6Address(key[1:])) if key[0] else str(IPv4Address(key[13:]))


def _payload(batch: Batch) -> pa.Array:
    found = batch.datagrams
    pieces = _slices(batch, found.payload_offset, found.payload_captured)
    return pa.array(pieces, type=pa.binary(), mask=batch.no_datagram)


def _slices(batch: Batch, offsets: Integers, lengths: Integers) -> list[bytes]:
    view = batch.view
    return [bytes(view[start:end]) for start, end in zip(offsets.tolist(), (offsets + lengths).tolist(), strict=True)]


def _kind(protocol: str) -> Callable[[Batch], pa.Array]:
    def build(batch: Batch) -> pa.Array:
        reading = batch.reading(protocol)
        return _names(reading.kind, reading.kinds, batch.no_datagram)

    return build


def _reason(protocol: str) -> Callable[[Batch], pa.Array]:
    def build(batch: Batch) -> pa.Array:
        reading = batch.reading(protocol)
        return _names(reading.reason, reading.reasons, batch.no_datagram | (reading.reason == 0))

    return build


def _body_crc(protocol: str) -> Callable[[Batch], pa.Array]:
    def build(batch: Batch) -> pa.Array:
        reading = batch.reading(protocol)
        return _crcs(batch, reading.body_offset, reading.body_bytes, ~batch.malformed(protocol) & batch.whole)

    return build


def _piggyback_crc(batch: Batch) -> pa.Array:
    reading = batch.reading("mrp")
    offset = batch.datagrams.payload_offset + 12
    wanted = (reading.fields["piggyback"] != 0) & batch.whole
    return _crcs(batch, offset, reading.fields["piggyback_body_bytes"].astype(np.int64), wanted)


def _crcs(batch: Batch, offsets: Integers, lengths: Integers, wanted: Mask) -> pa.Array:
    """Gives the CRC-32 of bodies; that of an empty one is 0."""
    values = np.zeros(len(batch), dtype=np.int64)
    rows = np.flatnonzero(wanted & (lengths > 0))
    starts = offsets[rows]
    values[rows] = crcs(batch.buffer, starts, starts + lengths[rows])
    return _numbers(values, ~wanted, pa.int64())


def _field(
    protocol: str, name: str, column_name: str, has: Callable[[Batch, Columns], Mask]
) -> Callable[[Batch], pa.Array]:
    """Gives the builder of a header field, null in rows that do not have it."""
    kind = SCHEMA.field(column_name).type

    def build(batch: Batch) -> pa.Array:
        reading = batch.reading(protocol)
        return _numbers(reading.fields[name], ~has(batch, reading), kind)

    return build


def _good(_: Batch, reading: Columns) -> Mask:
    mask: Mask = reading.kind != 0
    return mask


def _of_kind(*kinds: int) -> Callable[[Batch, Columns], Mask]:
    def has(_: Batch, reading: Columns) -> Mask:
        mask: Mask = np.isin(reading.kind, kinds) if len(kinds) > 1 else reading.kind == kinds[0]
        return mask

    return has


def _stamped_or_ack(_: Batch, reading: Columns) -> Mask:
    mask: Mask = (reading.fields["stamped"] != 0) | (reading.kind == MRP_ACK)
    return mask


def _as_piggyback(_: Batch, reading: Columns) -> Mask:
    mask: Mask = reading.fields["piggyback"] != 0
    return mask


def _with_ack(_: Batch, reading: Columns) -> Mask:
    mask: Mask = (reading.fields["flag"].astype(np.int64) & UDPC_ACK) != 0
    return mask


def _idle_ack(batch: Batch) -> pa.Array:
    reading = batch.reading("udpc")
    return pa.array((reading.fields["ack_index"] != 0) & ~_with_ack(batch, reading), mask=reading.kind == 0)


def _layout(name: str) -> Callable[[Batch], pa.Array]:
    def build(batch: Batch) -> pa.Array:
        reading = batch.reading("mrp")
        return pa.array(reading.fields[name] != 0, mask=reading.kind != MRP_DATA)

    return build


def _rup_id(batch: Batch) -> pa.Array:
    """Gives ids as text: 32 bytes each, and none where there is no id."""
    reading = batch.reading("rup")
    good = reading.kind != 0
    ends = np.zeros(len(batch) + 1, dtype=np.int32)
    np.cumsum(good * np.int32(32), out=ends[1:])
    texts = reading.fields["id"][good].tobytes()
    valid = np.packbits(good, bitorder="little").tobytes()
    buffers = [pa.py_buffer(valid), pa.py_buffer(ends.tobytes()), pa.py_buffer(texts)]
    return pa.StringArray.from_buffers(len(batch), buffers[1], buffers[2], buffers[0])


_MRP_FIELDS = {
    "mrp_version": ("ver", _of_kind(MRP_CONNECT)),
    "mrp_status": ("stat", _of_kind(MRP_CON_REPLY)),
    "mrp_client": ("cl_conid", _of_kind(MRP_CONNECT, MRP_CON_REPLY)),
    "mrp_server": ("sv_conid", _of_kind(MRP_CON_REPLY)),
    "mrp_destination": ("dest_conid", _stamped_or_ack),
    "mrp_origin": ("from_conid", _stamped_or_ack),
    "mrp_sequence": ("sequence", _stamped_or_ack),
    "mrp_stamp": ("stamp", _stamped_or_ack),
    "mrp_from_sequence": ("from_seq", _as_piggyback),
    "piggyback_destination": ("piggyback_dest_conid", _as_piggyback),
    "piggyback_origin": ("piggyback_from_conid", _as_piggyback),
    "piggyback_sequence": ("piggyback_sequence", _as_piggyback),
}

_BUILDERS: dict[str, Callable[[Batch], pa.Array]] = {
    "file_id": lambda batch: _constant(batch, batch.file_id),
    "file": lambda batch: _constant(batch, batch.file),
    "offset": lambda batch: _numbers(batch.records.offset, None, pa.int64()),
    "piece": lambda batch: _numbers(batch.piece, None, pa.int32()),
    "merged_as": lambda batch: _names(batch.merged_as, PROTOCOLS, batch.merged_as < 0),
    "frame": lambda batch: _numbers(batch.frames, None, pa.int64()),
    "point": lambda batch: _names(batch.records.point, batch.records.points, None),
    "at": _at,
    "at_ns": _at_ns,
    "source": _source,
    "source_port": lambda batch: _numbers(batch.datagrams.source_port, batch.no_datagram, pa.int32()),
    "destination": _destination,
    "destination_port": lambda batch: _numbers(batch.datagrams.destination_port, batch.no_datagram, pa.int32()),
    "frame_bytes": lambda batch: _numbers(batch.records.wire_bytes, None, pa.int64()),
    "payload_bytes": lambda batch: _numbers(batch.datagrams.payload_bytes, batch.no_datagram, pa.int32()),
    "truncated": _truncated,
    "flow": lambda batch: _numbers(batch.flow, batch.no_datagram, pa.int64()),
    "undecoded": lambda batch: _names(batch.undecoded, UNDECODED, ~batch.no_datagram),
    **{f"{protocol}_kind": _kind(protocol) for protocol in PROTOCOLS},
    **{f"{protocol}_reason": _reason(protocol) for protocol in PROTOCOLS},
    **{f"{protocol}_body_crc": _body_crc(protocol) for protocol in PROTOCOLS},
    "piggyback_body_crc": _piggyback_crc,
    "mrp_stamped": _layout("stamped"),
    "mrp_piggyback": _layout("piggyback"),
    "udpc_index": _field("udpc", "index", "udpc_index", _good),
    "udpc_session": _field("udpc", "session_id", "udpc_session", _good),
    "udpc_ack": _field("udpc", "ack_index", "udpc_ack", _with_ack),
    "udpc_idle_ack": _idle_ack,
    "udpc_flag": _field("udpc", "flag", "udpc_flag", _good),
    **{name: _field("mrp", field, name, has) for name, (field, has) in _MRP_FIELDS.items()},
    "rup_id": _rup_id,
    "rup_position": _field("rup", "position", "rup_position", _good),
    "rup_total": _field("rup", "total", "rup_total", _of_kind(RUP_DATA)),
    "rup_start": _field("rup", "start", "rup_start", _of_kind(RUP_DATA)),
    "pydevts_id": _field("pydevts", "message_id", "pydevts_id", _good),
    "pydevts_success": _field("pydevts", "success", "pydevts_success", _good),
    "pydevts_crc": _field("pydevts", "crc", "pydevts_crc", _good),
    "payload": _payload,
}
assert tuple(sorted(_BUILDERS)) == tuple(sorted(DATAGRAMS.names))
