"""The columns of the table `packets`, from what is known of the records of episodes.

Columns of the record itself are passed on. Texts that repeat stay dictionaries, which Parquet takes as they are.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairway.core.columns import Integers
from fairway.core.tables import PACKETS, PROTOCOLS
from fairway.lake.analysis.links import DIFFERENCES
from fairway.lake.analysis.packets import Packets
from fairway.lake.analysis.spoken import KIND, KINDS, MRP, RUP
from fairway.lake.arrays import MISSING, Mask, masked, named
from fairway.lake.captures.recognition import DTLS, EVIDENCE, SPOKEN, UNKNOWN
from fairway.lake.schemas import arrow_schema

SCHEMA = arrow_schema(PACKETS)
_LAYOUTS = ("stamped", "piggyback")
_BODY_ROWS = 1 << 16
"""So many bodies are cut at a time: what that takes is several times their size."""


KEPT = ("episode", "head", "payload_crc", "open")
"""Columns that say nothing of a conversation: `enrich` brings them."""
_NAMES = [name for name in PACKETS.names if name not in KEPT]


def table_of(packets: Packets) -> pa.Table:
    """Return the table `packets`, without the columns that are kept."""
    return pa.Table.from_arrays([_column(packets, name) for name in _NAMES], names=_NAMES)


def _column(packets: Packets, name: str) -> pa.Array:
    if name in _BUILDERS:
        return _BUILDERS[name](packets)
    owner = name.partition("_")[0]
    if owner in PROTOCOLS:
        spoken = packets.spoken
        return _of_protocol(packets, PROTOCOLS.index(owner), name, spoken.number(name), spoken.rows.missing(name))
    return packets.spoken.rows.array(name)


def _of_protocol(packets: Packets, owner: int, name: str, values: NDArray[np.int64], null: Mask) -> pa.Array:
    """Return a header field, null in rows of other protocols."""
    null = null | (packets.spoken.protocol != owner)
    kind = SCHEMA.field(name).type
    return masked(values.astype(np.int32) if kind == pa.int32() else values, null, kind)


def _by_layout(name: str) -> Callable[[Packets], pa.Array]:
    """Return the builder of a field that both of mrp's layouts have."""

    def build(packets: Packets) -> pa.Array:
        spoken = packets.spoken
        of_other = spoken.rows.missing(f"piggyback_{name.removeprefix('mrp_')}")
        null = np.where(spoken.piggyback, of_other, spoken.rows.missing(name))
        return _of_protocol(packets, MRP, name, getattr(spoken, name), null)

    return build


def _mrp_stamp(packets: Packets) -> pa.Array:
    null = packets.spoken.rows.missing("mrp_stamp") | packets.spoken.piggyback
    return _of_protocol(packets, MRP, "mrp_stamp", packets.spoken.number("mrp_stamp"), null)


def _mrp_from_sequence(packets: Packets) -> pa.Array:
    null = ~packets.spoken.piggyback
    return _of_protocol(packets, MRP, "mrp_from_sequence", packets.spoken.number("mrp_from_sequence"), null)


def _mrp_layout(packets: Packets) -> pa.Array:
    spoken = packets.spoken
    has_one = (spoken.protocol == MRP) & np.isin(spoken.kind, (KIND["data"], KIND["ack"]))
    piggyback = spoken.piggyback.copy()
    sessions = packets.sessions
    # An ack has one reading only; the connection that it names may have the other layout all the same.
    stamped = (spoken.kind == KIND["data"]) & ~piggyback
    asked = (spoken.kind == KIND["connect"]) & (spoken.number("mrp_version") == 1)
    some = [
        np.bincount(sessions.number, of[sessions.rows], len(sessions.keys)) > 0 for of in (piggyback, asked, stamped)
    ]
    of_piggyback = some[0] | (some[1] & ~some[2])
    piggyback[sessions.rows] |= of_piggyback[sessions.number] & has_one[sessions.rows] & ~stamped[sessions.rows]
    return named(np.where(has_one, piggyback.astype(np.int16), MISSING), _LAYOUTS)


def _rup_id(packets: Packets) -> pa.Array:
    ids = packets.spoken.rows.array("rup_id")
    mine = packets.spoken.protocol == RUP
    return ids if mine.all() else pc.if_else(pa.array(mine), ids, pa.scalar(None, ids.type))


def _reason(packets: Packets) -> pa.Array:
    """Return why a record could not be decoded: the frame's, its protocol's, or that of flows without one."""
    spoken = packets.spoken
    names = ["protocol_unknown", "encrypted"]
    reason = np.select([spoken.protocol == UNKNOWN, spoken.protocol == DTLS], [0, 1], MISSING)
    asked = [(f"{name}_reason", spoken.protocol == number) for number, name in enumerate(PROTOCOLS)]
    for column, mine in (*asked, ("undecoded", np.ones(len(spoken.rows), dtype=bool))):
        places, texts = spoken.rows.texts(column)
        names += [text for text in texts if text not in names]
        codes = np.array([names.index(text) for text in texts] + [MISSING])[places]
        reason = np.where(mine & (codes != MISSING), codes, reason)
    return named(reason, names)


def _in_sessions(packets: Packets, values: NDArray[np.generic], null: Mask | None, kind: pa.DataType) -> pa.Array:
    """Return a column that the records of sessions have, and no others."""
    rows, size = packets.sessions.rows, len(packets.spoken.rows)
    column, missing = np.zeros(size, dtype=values.dtype), np.ones(size, dtype=bool)
    column[rows], missing[rows] = values, False if null is None else null
    return masked(column, missing, kind)


def _session(packets: Packets) -> pa.Array:
    codes = _in_sessions(packets, packets.sessions.number.astype(np.int32), None, pa.int32())
    return pa.DictionaryArray.from_arrays(codes, packets.sessions.keys)


def _position(packets: Packets) -> pa.Array:
    starts = packets.sessions.starts
    return _in_sessions(packets, np.arange(1, len(starts) + 1) - starts, None, pa.int64())


def _message(packets: Packets) -> pa.Array:
    return _identity(packets, packets.message.number, packets.message.exists)


def _acknowledges(packets: Packets) -> pa.Array:
    return _identity(packets, packets.facts.acknowledged, packets.facts.acknowledges)


def _identity(packets: Packets, number: NDArray[np.int64], exists: Mask) -> pa.Array:
    """Return the identity of a message for each record: of rup its id, of the others its number."""
    rows = packets.sessions.rows
    of_rup = packets.spoken.protocol == RUP
    numbers = _in_sessions(packets, number, ~exists, pa.int64())
    if not of_rup.any():
        return numbers.cast(pa.string())
    named_by_id = np.zeros(len(of_rup), dtype=bool)
    named_by_id[rows] = exists & of_rup[rows]
    ids = pc.if_else(pa.array(named_by_id), packets.spoken.rows.array("rup_id"), pa.scalar(None, pa.string()))
    others = pc.if_else(pa.array(of_rup), pa.scalar(None, pa.int64()), numbers)
    return pc.coalesce(ids, others.cast(pa.string()))


def _acknowledged_sent_ns(packets: Packets) -> pa.Array:
    sent_ns = packets.facts.acknowledged_sent_ns
    return _in_sessions(packets, sent_ns, sent_ns == MISSING, pa.int64())


def _retransmission(packets: Packets) -> pa.Array:
    copies = packets.copies
    return _in_sessions(packets, copies.earlier.astype(np.int32), ~copies.countable, pa.int32())


def _body_bytes(packets: Packets) -> pa.Array:
    return masked(packets.spoken.body_bytes.astype(np.int32), ~packets.spoken.has_body, pa.int32())


def _body_crc(packets: Packets) -> pa.Array:
    return masked(*packets.spoken.body_crc, pa.int64())


def _of_places(packets: Packets, places: Integers, values: NDArray[np.generic], kind: pa.DataType) -> pa.Array:
    """Return a column of the records of sessions that holds what other records of them say."""
    return _in_sessions(packets, values[packets.sessions.rows[places]], places == MISSING, kind)


def _differs(packets: Packets) -> pa.Array:
    return pa.DictionaryArray.from_arrays(
        _in_sessions(packets, packets.links.differs.astype(np.int32), packets.links.differs == MISSING, pa.int32()),
        pa.array(DIFFERENCES),
    )


def _acknowledges_kind(packets: Packets) -> pa.Array:
    kinds = packets.spoken.kind.astype(np.int32)
    codes = _of_places(packets, packets.links.acknowledged, kinds, pa.int32())
    return pa.DictionaryArray.from_arrays(codes, pa.array(KINDS))


def _body(packets: Packets) -> pa.Array:
    """Return the payload behind the header."""
    payload = packets.spoken.rows.array("payload")
    if payload.null_count == len(payload):
        return pa.nulls(len(payload), pa.binary())
    has_body, header = packets.spoken.has_body, packets.spoken.header_bytes
    pieces = [
        _behind(
            payload.slice(start, _BODY_ROWS), header[start : start + _BODY_ROWS], has_body[start : start + _BODY_ROWS]
        )
        for start in range(0, len(payload), _BODY_ROWS)
    ]
    return pa.concat_arrays(pieces)


def _behind(payload: pa.Array, header: NDArray[np.int64], wanted: Mask) -> pa.Array:
    """Return what is left of binary values without so many bytes at their beginning; null where it is not wanted."""
    valid = payload.is_valid().to_numpy(zero_copy_only=False) & wanted
    _, places, data = payload.buffers()
    ends = np.frombuffer(places, dtype=np.int32)[payload.offset : payload.offset + len(payload) + 1].astype(np.int64)
    held = np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[-1]] if data is not None else np.zeros(0, np.uint8)
    ends -= ends[0]
    cut = np.where(valid, np.minimum(header, np.diff(ends)), np.diff(ends))
    left_out = np.zeros(len(held) + 1, dtype=np.int32)
    np.add.at(left_out, ends[:-1], 1)
    np.add.at(left_out, ends[:-1] + cut, -1)
    kept = held[np.cumsum(left_out[:-1]) == 0]
    sizes = np.zeros(len(payload) + 1, dtype=np.int32)
    np.cumsum(np.diff(ends) - cut, out=sizes[1:])
    mask = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.BinaryArray.from_buffers(pa.binary(), len(payload), [mask, pa.py_buffer(sizes), pa.py_buffer(kept)])


_BUILDERS: dict[str, Callable[[Packets], pa.Array]] = {
    "protocol": lambda packets: named(packets.spoken.protocol, SPOKEN),
    "evidence": lambda packets: named(packets.spoken.recognised.evidence, EVIDENCE),
    "kind": lambda packets: named(packets.spoken.kind, KINDS),
    "reason": _reason,
    "session": _session,
    "from_caller": lambda packets: _in_sessions(packets, packets.sessions.from_caller, None, pa.bool_()),
    "position": _position,
    "message": _message,
    "retransmission": _retransmission,
    "acknowledges": _acknowledges,
    "acknowledged_sent_ns": _acknowledged_sent_ns,
    "gap": lambda packets: _in_sessions(packets, packets.facts.gap, ~packets.facts.numbered, pa.int64()),
    "duplicate": lambda packets: _in_sessions(packets, packets.copies.duplicate, ~packets.copies.countable, pa.bool_()),
    "first_at_ns": lambda packets: _of_places(packets, packets.links.first, packets.spoken.at_ns, pa.int64()),
    "differs": _differs,
    "acknowledges_kind": _acknowledges_kind,
    "acknowledges_at_ns": lambda packets: _of_places(
        packets, packets.links.acknowledged, packets.spoken.at_ns, pa.int64()
    ),
    "echoes_at_ns": lambda packets: _of_places(packets, packets.links.echoed, packets.spoken.at_ns, pa.int64()),
    "body_bytes": _body_bytes,
    "body_crc": _body_crc,
    "body": _body,
    "mrp_destination": _by_layout("mrp_destination"),
    "mrp_origin": _by_layout("mrp_origin"),
    "mrp_sequence": _by_layout("mrp_sequence"),
    "mrp_stamp": _mrp_stamp,
    "mrp_from_sequence": _mrp_from_sequence,
    "mrp_layout": _mrp_layout,
    "rup_id": _rup_id,
}
