"""Records read as each of the four protocols: the columns of `DATAGRAMS`, each built when it is asked for.

What the source has read of a datagram is its head, its sizes and the CRC of its payload. That is all that the decoders
look at, and enough for the CRC of a body behind any header: no byte of a capture is read twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from ipaddress import ip_address
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairway.capture.columns.crcs import crcs, crcs_of_rest
from fairway.core.columns import Bytes, Columns, Integers
from fairway.core.tables import DATAGRAMS, PROTOCOLS
from fairway.lake.arrays import Mask, Rows, masked, named, numbers
from fairway.lake.captures.files import Capture
from fairway.lake.captures.rows import UNDECODED
from fairway.lake.schemas import arrow_schema
from fairway.protocols import columns as protocol_columns

SCHEMA = arrow_schema(DATAGRAMS)
HEADER_BYTES = {"udpc": 13, "mrp": 14, "rup": 42, "pydevts": 8}
"""How much of a datagram a protocol's decoder reads."""
LOOK_AHEAD_BYTES = 64
"""Decoders copy whole headers; behind the last datagram there is something to copy."""
UDPC_ACK = 0x01
MRP_CONNECT, MRP_CON_REPLY, MRP_DATA, MRP_ACK = 2, 3, 4, 5
RUP_DATA = 1
PIGGYBACK_BYTES = 12
DTLS_HEADER_BYTES = 13


class Readings(Rows):
    """Rows of `RECORDS` as rows of `DATAGRAMS`."""

    def __init__(self, records: pa.Table, captures: Mapping[int, Capture]) -> None:
        """`captures` are the files by their numbers."""
        super().__init__(records)
        self.records = Rows(records)
        self._captures = captures
        self._built: dict[str, pa.Array] = {}
        self._readings: dict[str, Columns] = {}
        self._other_prefixes: tuple[str, ...] = ()

    def array(self, name: str) -> pa.Array:
        """Return a column, which is built once."""
        if name.startswith(self._other_prefixes):
            name = str(kind := SCHEMA.field(name).type)
            self._built.setdefault(name, pa.nulls(len(self), kind))
        elif name not in self._built:
            self._built[name] = _BUILDERS[name](self) if name in _BUILDERS else self.records.array(name)
        return self._built[name]

    def keep(self, protocols: Collection[str]) -> None:
        """Forget what the datagrams would say in other protocols than these: all of that is null from now on."""
        prefixes = {name: (f"{name}_", "piggyback_") if name == "mrp" else (f"{name}_",) for name in PROTOCOLS}
        self._other_prefixes = tuple(prefix for name in PROTOCOLS if name not in protocols for prefix in prefixes[name])
        self._readings = {name: found for name, found in self._readings.items() if name in protocols}
        for held in (self._built, self._numbers, self._missing):
            for name in [name for name in held if name.startswith(self._other_prefixes)]:
                del held[name]

    @cached_property
    def no_datagram(self) -> Mask:
        """Which rows hold none."""
        mask: Mask = self.records.numbers("undecoded") != 0
        return mask

    @cached_property
    def whole(self) -> Mask:
        """Which rows have a datagram that the capture holds to its end."""
        return ~self.records.missing("payload_crc")

    @cached_property
    def _heads(self) -> tuple[Bytes, Integers, Integers]:
        """The heads one after the other, where each begins, and how long it is."""
        heads = self.records.array("head")
        _, ends, data = heads.buffers()
        offsets = np.frombuffer(ends, dtype=np.int32)[heads.offset : heads.offset + len(heads) + 1].astype(np.int64)
        held = (
            np.frombuffer(data, dtype=np.uint8)[offsets[0] : offsets[-1]] if data is not None else np.zeros(0, np.uint8)
        )
        buffer = np.concatenate((held, np.zeros(LOOK_AHEAD_BYTES, dtype=np.uint8)))
        return buffer, offsets[:-1] - offsets[0], np.diff(offsets)

    def reading(self, protocol: str) -> Columns:
        """Read all datagrams as those of one protocol."""
        if protocol not in self._readings:
            buffer, starts, held = self._heads
            whole = self.records.numbers("payload_bytes")
            # Of a header that was cut nothing is read: half of one may look like a shorter datagram.
            lengths = np.where(held >= np.minimum(whole, HEADER_BYTES[protocol]), whole, 0)
            decode: Callable[..., Columns] = protocol_columns(protocol).decode_columns
            self._readings[protocol] = decode(buffer, starts, lengths)
        return self._readings[protocol]

    def octets(self, offset: int) -> Integers:
        """Return the byte of each datagram at this offset of its head; one that is shorter has another's, or 0."""
        buffer, starts, _ = self._heads
        return buffer[starts + offset].astype(np.int64)

    def crcs_behind(self, header: Integers, body_bytes: Integers, wanted: Mask) -> pa.Array:
        """Return the CRC-32 of what stands behind headers of that length; that of an empty body is 0."""
        buffer, starts, _ = self._heads
        rows = np.flatnonzero(wanted & (body_bytes > 0))
        found = np.zeros(len(self), dtype=np.int64)
        beginning = crcs(buffer, starts[rows], starts[rows] + header[rows])
        found[rows] = crcs_of_rest(self.records.numbers("payload_crc")[rows], beginning, body_bytes[rows])
        return masked(found, ~wanted, pa.int64())

    def of_capture(self, name: str) -> pa.Array:
        """Return what the tables say of each row's file."""
        values, indices = self._values(name)
        return named(indices, values)

    def payload(self) -> pa.Array:
        """Return the payloads of files of which they were kept."""
        values, indices = self._values("payload")
        heads = self.records.array("head")
        return pc.if_else(pa.array(np.array(values, dtype=bool)[indices]), heads, pa.scalar(None, heads.type))

    def _values(self, name: str) -> tuple[list[Any], Integers]:
        numbers, indices = np.unique(self.records.numbers("file_id"), return_inverse=True)
        return [getattr(self._captures[number], name) for number in numbers.tolist()], indices


def _names(codes: NDArray[np.generic], names: Sequence[str], null: Mask) -> pa.Array:
    return named(np.where(null, -1, codes.astype(np.int64)), names)


def _at(rows: Readings) -> pa.Array:
    at_ns = rows.records.numbers("at_ns")
    return masked(at_ns // 1_000, rows.records.missing("at_ns"), pa.int64()).view(SCHEMA.field("at").type)


def _address(name: str, rows: Readings) -> pa.Array:
    folded = rows.records.array(name).dictionary_encode()
    texts = pa.array([_text(packed) for packed in folded.dictionary.to_pylist()], type=pa.string())
    return pa.DictionaryArray.from_arrays(folded.indices, texts)


@lru_cache(maxsize=1 << 16)
def _text(packed: bytes) -> str:
    return str(ip_address(packed))


def _kind(protocol: str, rows: Readings) -> pa.Array:
    reading = rows.reading(protocol)
    return _names(reading.kind, reading.kinds, rows.no_datagram)


def _reason(protocol: str, rows: Readings) -> pa.Array:
    reading = rows.reading(protocol)
    return _names(reading.reason, reading.reasons, rows.no_datagram | (reading.reason == 0))


def _body_crc(protocol: str, rows: Readings) -> pa.Array:
    reading = rows.reading(protocol)
    header = rows.records.numbers("payload_bytes") - reading.body_bytes
    return rows.crcs_behind(header, reading.body_bytes, (reading.kind != 0) & rows.whole)


def _piggyback_crc(rows: Readings) -> pa.Array:
    fields = rows.reading("mrp").fields
    body_bytes, wanted = fields["piggyback_body_bytes"].astype(np.int64), (fields["piggyback"] != 0) & rows.whole
    return rows.crcs_behind(np.full(len(rows), PIGGYBACK_BYTES), body_bytes, wanted)


def _field(column: str, name: str, has: str, rows: Readings) -> pa.Array:
    """Return a header field, null in rows that do not have it."""
    owner = column.partition("_")[0]
    reading = rows.reading(owner if owner in PROTOCOLS else "mrp")
    return numbers(reading.fields[name], ~_HAS[has](reading), SCHEMA.field(column).type)


def _dtls(rows: Readings) -> pa.Array:
    """Return where a datagram begins with a record of a known type and version that ends within it."""
    kind, major, minor, *length = (rows.octets(offset) for offset in (0, 1, 2, 11, 12))
    record = (kind >= 20) & (kind <= 23) & (major == 254) & ((minor == 253) | (minor == 255))
    end = DTLS_HEADER_BYTES + (length[0] << 8) + length[1]
    return pa.array(record & (end <= rows.records.numbers("payload_bytes")) & ~rows.no_datagram)


def _idle_ack(rows: Readings) -> pa.Array:
    reading = rows.reading("udpc")
    return pa.array((reading.fields["ack_index"] != 0) & ~_HAS["ack"](reading), mask=reading.kind == 0)


def _layout(name: str, rows: Readings) -> pa.Array:
    reading = rows.reading("mrp")
    return pa.array(reading.fields[name] != 0, mask=reading.kind != MRP_DATA)


def _rup_id(rows: Readings) -> pa.Array:
    """Return ids as text: 32 bytes each, and none where there is no id."""
    reading = rows.reading("rup")
    good = reading.kind != 0
    ends = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum(good * np.int32(32), out=ends[1:])
    texts = reading.fields["id"][good].tobytes()
    valid = np.packbits(good, bitorder="little").tobytes()
    buffers = [pa.py_buffer(valid), pa.py_buffer(ends.tobytes()), pa.py_buffer(texts)]
    return pa.StringArray.from_buffers(len(rows), buffers[1], buffers[2], buffers[0])


_HAS: dict[str, Callable[[Columns], Mask]] = {
    "good": lambda reading: reading.kind != 0,
    "connect": lambda reading: reading.kind == MRP_CONNECT,
    "con_reply": lambda reading: reading.kind == MRP_CON_REPLY,
    "call": lambda reading: np.isin(reading.kind, (MRP_CONNECT, MRP_CON_REPLY)),
    "stamped": lambda reading: (reading.fields["stamped"] != 0) | (reading.kind == MRP_ACK),
    "piggyback": lambda reading: reading.fields["piggyback"] != 0,
    "ack": lambda reading: (reading.fields["flag"].astype(np.int64) & UDPC_ACK) != 0,
    "data": lambda reading: reading.kind == RUP_DATA,
}
"""Which datagrams have a field."""
_FIELDS = {
    "udpc_index": ("index", "good"),
    "udpc_session": ("session_id", "good"),
    "udpc_ack": ("ack_index", "ack"),
    "udpc_flag": ("flag", "good"),
    "mrp_version": ("ver", "connect"),
    "mrp_status": ("stat", "con_reply"),
    "mrp_client": ("cl_conid", "call"),
    "mrp_server": ("sv_conid", "con_reply"),
    "mrp_destination": ("dest_conid", "stamped"),
    "mrp_origin": ("from_conid", "stamped"),
    "mrp_sequence": ("sequence", "stamped"),
    "mrp_stamp": ("stamp", "stamped"),
    "mrp_from_sequence": ("from_seq", "piggyback"),
    "piggyback_destination": ("piggyback_dest_conid", "piggyback"),
    "piggyback_origin": ("piggyback_from_conid", "piggyback"),
    "piggyback_sequence": ("piggyback_sequence", "piggyback"),
    "rup_position": ("position", "good"),
    "rup_total": ("total", "data"),
    "rup_start": ("start", "data"),
    "pydevts_id": ("message_id", "good"),
    "pydevts_success": ("success", "good"),
    "pydevts_crc": ("crc", "good"),
}
"""By column: what the decoder calls it, and which datagrams have it."""

_BUILDERS: dict[str, Callable[[Readings], pa.Array]] = {
    **{name: partial(Readings.of_capture, name=name) for name in ("file_id", "file")},
    "point": lambda rows: rows.records.array("point").dictionary_encode(),
    "at": _at,
    **{name: partial(_address, name) for name in ("source", "destination")},
    "flow": lambda rows: masked(rows.records.numbers("flow"), rows.no_datagram, pa.int64()),
    "payload": Readings.payload,
    "undecoded": lambda rows: _names(rows.records.numbers("undecoded"), UNDECODED, ~rows.no_datagram),
    **{f"{protocol}_kind": partial(_kind, protocol) for protocol in PROTOCOLS},
    **{f"{protocol}_reason": partial(_reason, protocol) for protocol in PROTOCOLS},
    **{f"{protocol}_body_crc": partial(_body_crc, protocol) for protocol in PROTOCOLS},
    **{name: partial(_field, name, field, has) for name, (field, has) in _FIELDS.items()},
    **{f"mrp_{name}": partial(_layout, name) for name in ("stamped", "piggyback")},
    "piggyback_body_crc": _piggyback_crc,
    "udpc_idle_ack": _idle_ack,
    "dtls": _dtls,
    "rup_id": _rup_id,
}
"""The columns that are not as the source has read them."""
