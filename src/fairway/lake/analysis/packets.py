"""Every record with its session, its direction, its message, and whether it was sent before: the table `packets`.

An episode is computed by itself, in arrays. Columns of the record itself are passed on. Texts that repeat stay
dictionaries, which Parquet takes as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairway.capture.columns.records import NO_TIME
from fairway.core.columns import Integers
from fairway.core.tables import PACKETS, PROTOCOLS
from fairway.lake.analysis.acknowledgements import DIFFERENCES, Facts, facts, note_sent
from fairway.lake.analysis.conversations import Sessions, answers_of_calls, sessions_of
from fairway.lake.analysis.decoded import KIND, KINDS, MRP, RUP, Decoded
from fairway.lake.analysis.headers import Headers, headers_of
from fairway.lake.arrays import MISSING, Carried, Mask, masked, named, numbers
from fairway.lake.captures.recognition import DTLS, EVIDENCE, RECOGNISED, UNKNOWN
from fairway.lake.schemas import arrow_schema

LAYOUT = "layout"
"""Carried of sessions: which signs of mrp's layouts were seen."""


class Ordered(NamedTuple):
    """Records in the order of time."""

    decoded: Decoded
    sessions: Sessions
    piggyback: Mask
    """Which sessions have mrp's piggyback layout, as far as they have been seen."""
    headers: Headers


class Packets(NamedTuple):
    """What is known of records, for the table `packets`."""

    decoded: Decoded
    sessions: Sessions
    piggyback: Mask
    headers: Headers
    facts: Facts


def packets_of(decoded: Decoded) -> Packets:
    """Find sessions, messages and retransmissions among rows that are in the order of time within their flows."""
    as_recognised(decoded)
    ordered = in_order(decoded, answers_of_calls(decoded), Carried(keeps=False))
    sent = note_sent(ordered.headers, Carried(keeps=True))
    return Packets(*ordered, facts(ordered.headers, sent, Carried(keeps=False)))


def as_recognised(decoded: Decoded) -> Decoded:
    """Return rows read only as the protocols they were recognised as."""
    decoded.rows.keep([RECOGNISED[number] for number in np.unique(decoded.protocol).tolist()])
    return decoded


def in_order(decoded: Decoded, answers: Integers, carried: Carried) -> Ordered:
    """Find sessions and headers of records in the order of time; `answers` are what calls were answered with."""
    sessions = sessions_of(decoded, answers, carried)
    return Ordered(decoded, sessions, _piggyback(decoded, sessions, carried), headers_of(decoded, sessions))


def _piggyback(decoded: Decoded, sessions: Sessions, carried: Carried) -> Mask:
    """Return which sessions have mrp's piggyback layout."""
    stamped = (decoded.kind == KIND["data"]) & ~decoded.piggyback
    asked = (decoded.kind == KIND["connect"]) & (decoded.number("mrp_version") == 1)
    signs = carried.get(LAYOUT, sessions.words, 0)
    for bit, sign in enumerate((decoded.piggyback, asked, stamped)):
        seen = np.bincount(sessions.number, sign[sessions.rows], len(sessions.words)) > 0
        signs |= seen.astype(np.int64) << bit
    carried.put(LAYOUT, sessions.words, signs)
    found: Mask = (signs & 0b001 > 0) | (signs & 0b110 == 0b010)
    return found


SCHEMA = arrow_schema(PACKETS)
_LAYOUTS = ("stamped", "piggyback")


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
        decoded = packets.decoded
        return _of_protocol(packets, PROTOCOLS.index(owner), name, decoded.number(name), decoded.rows.missing(name))
    return packets.decoded.rows.array(name)


def _of_protocol(packets: Packets, owner: int, name: str, values: NDArray[np.int64], null: Mask) -> pa.Array:
    """Return a header field, null in rows of other protocols."""
    return numbers(values, null | (packets.decoded.protocol != owner), SCHEMA.field(name).type)


def _by_layout(name: str, packets: Packets) -> pa.Array:
    """Return a field that both of mrp's layouts have."""
    decoded = packets.decoded
    of_other = decoded.rows.missing(f"piggyback_{name.removeprefix('mrp_')}")
    null = np.where(decoded.piggyback, of_other, decoded.rows.missing(name))
    return _of_protocol(packets, MRP, name, decoded.mrp[name], null)


def _mrp_stamp(packets: Packets) -> pa.Array:
    null = packets.decoded.rows.missing("mrp_stamp") | packets.decoded.piggyback
    return _of_protocol(packets, MRP, "mrp_stamp", packets.decoded.number("mrp_stamp"), null)


def _mrp_layout(packets: Packets) -> pa.Array:
    decoded, sessions = packets.decoded, packets.sessions
    has_one = (decoded.protocol == MRP) & np.isin(decoded.kind, (KIND["data"], KIND["ack"]))
    piggyback = decoded.piggyback.copy()
    # An ack has one reading only; the connection that it names may have the other layout all the same.
    acks = sessions.rows[decoded.kind[sessions.rows] == KIND["ack"]]
    of_session = np.zeros(len(piggyback), dtype=bool)
    of_session[sessions.rows] = packets.piggyback[sessions.number]
    piggyback[acks] |= of_session[acks] & has_one[acks]
    return named(np.where(has_one, piggyback.astype(np.int16), MISSING), _LAYOUTS)


def _rup_id(packets: Packets) -> pa.Array:
    ids = packets.decoded.rows.array("rup_id")
    mine = packets.decoded.protocol == RUP
    return ids if mine.all() else pc.if_else(pa.array(mine), ids, pa.scalar(None, ids.type))


def _reason(packets: Packets) -> pa.Array:
    """Return why a record could not be decoded: the frame's, its protocol's, or that of flows without one."""
    decoded = packets.decoded
    names = ["protocol_unknown", "encrypted"]
    reason = np.select([decoded.protocol == UNKNOWN, decoded.protocol == DTLS], [0, 1], MISSING)
    asked = [(f"{name}_reason", decoded.protocol == number) for number, name in enumerate(PROTOCOLS)]
    for column, mine in (*asked, ("undecoded", np.ones(len(decoded.rows), dtype=bool))):
        indices, texts = decoded.rows.texts(column)
        names += [text for text in texts if text not in names]
        codes = np.array([names.index(text) for text in texts] + [MISSING])[indices]
        reason = np.where(mine & (codes != MISSING), codes, reason)
    return named(reason, names)


def _in_sessions(packets: Packets, values: NDArray[np.generic], null: Mask | None, kind: pa.DataType) -> pa.Array:
    """Return a column that the records of sessions have, and no others."""
    rows, size = packets.sessions.rows, len(packets.decoded.rows)
    column, missing = np.zeros(size, dtype=values.dtype), np.ones(size, dtype=bool)
    column[rows], missing[rows] = values, False if null is None else null
    return masked(column, missing, kind)


def _session(packets: Packets) -> pa.Array:
    codes = _in_sessions(packets, packets.sessions.number.astype(np.int32), None, pa.int32())
    return pa.DictionaryArray.from_arrays(codes, packets.sessions.keys)


def _identity(packets: Packets, number: NDArray[np.int64], exists: Mask) -> pa.Array:
    """Return the identity of a message for each record: of rup its id, of the others its number."""
    rows = packets.sessions.rows
    of_rup = packets.decoded.protocol == RUP
    numbers = _in_sessions(packets, number, ~exists, pa.int64())
    if not of_rup.any():
        return numbers.cast(pa.string())
    named_by_id = np.zeros(len(of_rup), dtype=bool)
    named_by_id[rows] = exists & of_rup[rows]
    ids = pc.if_else(pa.array(named_by_id), packets.decoded.rows.array("rup_id"), pa.scalar(None, pa.string()))
    others = pc.if_else(pa.array(of_rup), pa.scalar(None, pa.int64()), numbers)
    return pc.coalesce(ids, others.cast(pa.string()))


def _when(packets: Packets, at_ns: Integers) -> pa.Array:
    """Return a column of times that the records of sessions may have."""
    return _in_sessions(packets, at_ns, at_ns == NO_TIME, pa.int64())


def _code(packets: Packets, codes: Integers, names: Sequence[str]) -> pa.Array:
    """Return a column of names that the records of sessions may have."""
    indices = _in_sessions(packets, codes.astype(np.int32), codes == MISSING, pa.int32())
    return pa.DictionaryArray.from_arrays(indices, pa.array(names))


def _body(packets: Packets) -> pa.Array:
    """Return the payload behind the header."""
    payload = packets.decoded.rows.array("payload")
    if payload.null_count == len(payload):
        return pa.nulls(len(payload), pa.binary())
    header = packets.decoded.header_bytes
    valid = payload.is_valid().to_numpy(zero_copy_only=False) & packets.decoded.has_body
    _, offsets, data = payload.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[payload.offset : payload.offset + len(payload) + 1].astype(np.int64)
    held = np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[-1]] if data is not None else np.zeros(0, np.uint8)
    ends -= ends[0]
    cut = np.where(valid, np.minimum(header, np.diff(ends)), np.diff(ends))
    # One byte for each of theirs: sums that go round on the way are 0 or 1 in the end.
    left_out = np.zeros(len(held) + 1, dtype=np.int8)
    np.add.at(left_out, ends[:-1], 1)
    np.add.at(left_out, ends[:-1] + cut, -1)
    kept = held[np.cumsum(left_out[:-1], dtype=np.int8) == 0]
    sizes = np.zeros(len(payload) + 1, dtype=np.int32)
    np.cumsum(np.diff(ends) - cut, out=sizes[1:])
    mask = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.BinaryArray.from_buffers(pa.binary(), len(payload), [mask, pa.py_buffer(sizes), pa.py_buffer(kept)])


_BUILDERS: dict[str, Callable[[Packets], pa.Array]] = {
    "protocol": lambda packets: named(packets.decoded.protocol, RECOGNISED),
    "evidence": lambda packets: named(packets.decoded.recognised.evidence, EVIDENCE),
    "kind": lambda packets: named(packets.decoded.kind, KINDS),
    "reason": _reason,
    "session": _session,
    "from_caller": lambda packets: _in_sessions(packets, packets.sessions.from_caller, None, pa.bool_()),
    "position": lambda packets: _in_sessions(packets, packets.sessions.position, None, pa.int64()),
    "message": lambda packets: _identity(packets, packets.headers.number, packets.headers.exists),
    "retransmission": lambda packets: _in_sessions(
        packets, packets.facts.earlier.astype(np.int32), ~packets.headers.countable, pa.int32()
    ),
    "acknowledges": lambda packets: _identity(packets, packets.headers.acknowledged, packets.facts.acknowledges),
    "acknowledged_sent_ns": lambda packets: _when(packets, packets.facts.acknowledged_sent_ns),
    "gap": lambda packets: _in_sessions(packets, packets.facts.gap, ~packets.headers.numbered, pa.int64()),
    "duplicate": lambda packets: _in_sessions(packets, packets.facts.duplicate, ~packets.headers.countable, pa.bool_()),
    "first_at_ns": lambda packets: _when(packets, packets.facts.first_at_ns),
    "differs": lambda packets: _code(packets, packets.facts.differs, DIFFERENCES),
    "acknowledges_kind": lambda packets: _code(packets, packets.facts.acknowledged_kind, KINDS),
    "acknowledges_at_ns": lambda packets: _when(packets, packets.facts.acknowledged_at_ns),
    "echoes_at_ns": lambda packets: _when(packets, packets.facts.echoed_at_ns),
    "body_bytes": lambda packets: masked(
        packets.decoded.body_bytes.astype(np.int32), ~packets.decoded.has_body, pa.int32()
    ),
    "body_crc": lambda packets: masked(*packets.decoded.body_crc, pa.int64()),
    "body": _body,
    **{name: partial(_by_layout, name) for name in ("mrp_destination", "mrp_origin", "mrp_sequence")},
    "mrp_stamp": _mrp_stamp,
    "mrp_from_sequence": lambda packets: _of_protocol(
        packets, MRP, "mrp_from_sequence", packets.decoded.number("mrp_from_sequence"), ~packets.decoded.piggyback
    ),
    "mrp_layout": _mrp_layout,
    "rup_id": _rup_id,
}
