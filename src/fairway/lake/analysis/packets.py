"""Every record with its session, its direction, its message, and whether it was sent before: the table `packets`.

    decoded.py           what each record says, read as the protocol of its flow
    conversations.py     which records are one session
    retransmissions.py   numbers, messages, and what repeats what
    acknowledgements.py  what answers what, and which numbers are left out

An episode is computed by itself, in arrays. Columns of the record itself are passed on. Texts that repeat stay
dictionaries, which Parquet takes as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairway.core.columns import Integers
from fairway.core.tables import PACKETS, PROTOCOLS
from fairway.lake.analysis.acknowledgements import DIFFERENCES, Facts, Links, facts, links
from fairway.lake.analysis.conversations import Sessions, answers_of_calls, sessions_of
from fairway.lake.analysis.decoded import KIND, KINDS, MRP, PYDEVTS, RUP, UDPC, Decoded
from fairway.lake.analysis.retransmissions import (
    TURNS,
    Message,
    Numbers,
    Retransmissions,
    messages_of,
    retransmissions,
    widened,
)
from fairway.lake.arrays import MISSING, Mask, Rows, Words, masked, mixed, named
from fairway.lake.captures.recognition import DTLS, EVIDENCE, SPOKEN, UNKNOWN, PortMap
from fairway.lake.schemas import arrow_schema

_TURN = np.array([TURNS[name] for name in PROTOCOLS])
_ID_BYTES = 32


class Packets(NamedTuple):
    """What is known of records, for the tables behind `packets`."""

    decoded: Decoded
    sessions: Sessions
    numbers: Numbers
    message: Message
    retransmissions: Retransmissions
    facts: Facts
    links: Links


def packets_of(rows: Rows, port_map: PortMap) -> Packets:
    """Find sessions, messages and retransmissions among rows that are in the order of time within their flows."""
    decoded = Decoded(rows, port_map)
    rows.keep([SPOKEN[number] for number in np.unique(decoded.protocol).tolist()])
    sessions = sessions_of(decoded, answers_of_calls(decoded.by_episode, decoded.point, decoded.forward))
    numbers = _numbers(decoded, sessions)
    message = messages_of(decoded, sessions, numbers, _rup_words(rows))
    repeated = retransmissions(decoded, sessions, numbers, message)
    known = facts(decoded, sessions, numbers, message, repeated)
    found = links(decoded, sessions, numbers, message)
    return Packets(decoded, sessions, numbers, message, repeated, known, found)


def _numbers(decoded: Decoded, sessions: Sessions) -> Numbers:
    """Return the numbers that the records of sessions say, of their own counter and of the other side's."""
    rows = sessions.rows
    protocol, kind = decoded.protocol[rows], decoded.kind[rows]
    udpc, mrp, pydevts = protocol == UDPC, protocol == MRP, protocol == PYDEVTS
    data, ack = kind == KIND["data"], kind == KIND["ack"]
    sequence, id_ = decoded.mrp_sequence[rows], decoded.number("pydevts_id")[rows]
    own = np.select([udpc, mrp, pydevts], [decoded.number("udpc_index")[rows], sequence, id_], 0)
    has_own = udpc | (mrp & data) | (pydevts & ((kind == KIND["packet"]) | (kind == KIND["close"])))
    acknowledged = decoded.number("udpc_ack")[rows]
    covered = np.where(ack, sequence, decoded.number("mrp_from_sequence")[rows])
    other = np.select([udpc, mrp, pydevts], [acknowledged, covered, id_], 0)
    piggyback = decoded.piggyback[rows]
    has_other = (udpc & (acknowledged != 0)) | (mrp & (ack | piggyback)) | (pydevts & ack)
    return widened(own, has_own, other, has_other, decoded.forward[rows], _TURN[protocol], sessions.starts)


def _rup_words(rows: Rows) -> Words:
    """Return a word for each rup id."""
    ids = rows.array("rup_id")
    words = np.zeros(len(rows), dtype=np.uint64)
    known = ids.is_valid().to_numpy(zero_copy_only=False)
    if known.any():
        texts = ids.drop_null().cast(pa.binary()).cast(pa.binary(_ID_BYTES))
        octets = np.frombuffer(texts.buffers()[1], dtype=np.uint64, count=4 * len(texts), offset=texts.offset)
        words[known] = mixed(*octets.reshape(-1, 4).T.copy())
    return words


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
        decoded = packets.decoded
        return _of_protocol(packets, PROTOCOLS.index(owner), name, decoded.number(name), decoded.rows.missing(name))
    return packets.decoded.rows.array(name)


def _of_protocol(packets: Packets, owner: int, name: str, values: NDArray[np.int64], null: Mask) -> pa.Array:
    """Return a header field, null in rows of other protocols."""
    null = null | (packets.decoded.protocol != owner)
    kind = SCHEMA.field(name).type
    return masked(values.astype(np.int32) if kind == pa.int32() else values, null, kind)


def _by_layout(name: str) -> Callable[[Packets], pa.Array]:
    """Return the builder of a field that both of mrp's layouts have."""

    def build(packets: Packets) -> pa.Array:
        decoded = packets.decoded
        of_other = decoded.rows.missing(f"piggyback_{name.removeprefix('mrp_')}")
        null = np.where(decoded.piggyback, of_other, decoded.rows.missing(name))
        return _of_protocol(packets, MRP, name, getattr(decoded, name), null)

    return build


def _mrp_stamp(packets: Packets) -> pa.Array:
    null = packets.decoded.rows.missing("mrp_stamp") | packets.decoded.piggyback
    return _of_protocol(packets, MRP, "mrp_stamp", packets.decoded.number("mrp_stamp"), null)


def _mrp_layout(packets: Packets) -> pa.Array:
    decoded = packets.decoded
    has_one = (decoded.protocol == MRP) & np.isin(decoded.kind, (KIND["data"], KIND["ack"]))
    piggyback = decoded.piggyback.copy()
    sessions = packets.sessions
    # An ack has one reading only; the connection that it names may have the other layout all the same.
    stamped = (decoded.kind == KIND["data"]) & ~piggyback
    asked = (decoded.kind == KIND["connect"]) & (decoded.number("mrp_version") == 1)
    some = [
        np.bincount(sessions.number, of[sessions.rows], len(sessions.keys)) > 0 for of in (piggyback, asked, stamped)
    ]
    of_piggyback = some[0] | (some[1] & ~some[2])
    piggyback[sessions.rows] |= of_piggyback[sessions.number] & has_one[sessions.rows] & ~stamped[sessions.rows]
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
        places, texts = decoded.rows.texts(column)
        names += [text for text in texts if text not in names]
        codes = np.array([names.index(text) for text in texts] + [MISSING])[places]
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


def _position(packets: Packets) -> pa.Array:
    starts = packets.sessions.starts
    return _in_sessions(packets, np.arange(1, len(starts) + 1) - starts, None, pa.int64())


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


def _acknowledged_sent_ns(packets: Packets) -> pa.Array:
    sent_ns = packets.facts.acknowledged_sent_ns
    return _in_sessions(packets, sent_ns, sent_ns == MISSING, pa.int64())


def _retransmission(packets: Packets) -> pa.Array:
    retransmissions = packets.retransmissions
    return _in_sessions(packets, retransmissions.earlier.astype(np.int32), ~retransmissions.countable, pa.int32())


def _of_places(packets: Packets, places: Integers, values: NDArray[np.generic], kind: pa.DataType) -> pa.Array:
    """Return a column of the records of sessions that holds what other records of them say."""
    return _in_sessions(packets, values[packets.sessions.rows[places]], places == MISSING, kind)


def _differs(packets: Packets) -> pa.Array:
    return pa.DictionaryArray.from_arrays(
        _in_sessions(packets, packets.links.differs.astype(np.int32), packets.links.differs == MISSING, pa.int32()),
        pa.array(DIFFERENCES),
    )


def _acknowledges_kind(packets: Packets) -> pa.Array:
    kinds = packets.decoded.kind.astype(np.int32)
    codes = _of_places(packets, packets.links.acknowledged, kinds, pa.int32())
    return pa.DictionaryArray.from_arrays(codes, pa.array(KINDS))


def _body(packets: Packets) -> pa.Array:
    """Return the payload behind the header."""
    payload = packets.decoded.rows.array("payload")
    if payload.null_count == len(payload):
        return pa.nulls(len(payload), pa.binary())
    has_body, header = packets.decoded.has_body, packets.decoded.header_bytes
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
    "protocol": lambda packets: named(packets.decoded.protocol, SPOKEN),
    "evidence": lambda packets: named(packets.decoded.recognised.evidence, EVIDENCE),
    "kind": lambda packets: named(packets.decoded.kind, KINDS),
    "reason": _reason,
    "session": _session,
    "from_caller": lambda packets: _in_sessions(packets, packets.sessions.from_caller, None, pa.bool_()),
    "position": _position,
    "message": lambda packets: _identity(packets, packets.message.number, packets.message.exists),
    "retransmission": _retransmission,
    "acknowledges": lambda packets: _identity(packets, packets.facts.acknowledged, packets.facts.acknowledges),
    "acknowledged_sent_ns": _acknowledged_sent_ns,
    "gap": lambda packets: _in_sessions(packets, packets.facts.gap, ~packets.facts.numbered, pa.int64()),
    "duplicate": lambda packets: _in_sessions(
        packets, packets.retransmissions.duplicate, ~packets.retransmissions.countable, pa.bool_()
    ),
    "first_at_ns": lambda packets: _of_places(packets, packets.links.first, packets.decoded.at_ns, pa.int64()),
    "differs": _differs,
    "acknowledges_kind": _acknowledges_kind,
    "acknowledges_at_ns": lambda packets: _of_places(
        packets, packets.links.acknowledged, packets.decoded.at_ns, pa.int64()
    ),
    "echoes_at_ns": lambda packets: _of_places(packets, packets.links.echoed, packets.decoded.at_ns, pa.int64()),
    "body_bytes": lambda packets: masked(
        packets.decoded.body_bytes.astype(np.int32), ~packets.decoded.has_body, pa.int32()
    ),
    "body_crc": lambda packets: masked(*packets.decoded.body_crc, pa.int64()),
    "body": _body,
    "mrp_destination": _by_layout("mrp_destination"),
    "mrp_origin": _by_layout("mrp_origin"),
    "mrp_sequence": _by_layout("mrp_sequence"),
    "mrp_stamp": _mrp_stamp,
    "mrp_from_sequence": lambda packets: _of_protocol(
        packets, MRP, "mrp_from_sequence", packets.decoded.number("mrp_from_sequence"), ~packets.decoded.piggyback
    ),
    "mrp_layout": _mrp_layout,
    "rup_id": _rup_id,
}
