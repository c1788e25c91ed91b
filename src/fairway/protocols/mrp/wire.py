"""mrp packets as bytes: many connections on one socket, two layouts of data.

Every datagram opens with `4d 52 50` ("MRP") and a type; all integers are big-endian.

    type  kind       after the type                                                          bytes in all
    0     ignore     anything                                                                4 or more
    1     connect    ver u8, cl_conid u24                                                    8
    2     con_reply  stat u8 (1 accept, 2 reject), fill u8, cl_conid u24, sv_conid u24       12
    3     data       stamped:   dest_conid u24, from_conid u24, sequence u16, stamp u16, …   14 or more
                     piggyback: from_conid u16, dest_conid u16, sequence u16, from_seq u16, …  12 or more
    4     ack        dest_conid u24, from_conid u24, sequence u16, stamp u16                 14

Which layout a type 3 datagram has is known only to the connection that it belongs to. `Data` therefore keeps the bytes
and offers both readings; a reading that is too short for its header or has an id of 0 does not exist, and a datagram
without any reading is malformed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from fairway.core.errors import MalformedDatagram
from fairway.core.headers import Field, Header
from fairway.core.machine import Buffer

T = TypeVar("T")

MAGIC = b"MRP"
TYPE_IGNORE, TYPE_CONNECT, TYPE_CON_REPLY, TYPE_DATA, TYPE_ACK = range(5)
ACCEPT, REJECT = 1, 2
VER_STAMPED, VER_PIGGYBACK = 0x00, 0x01
CONID_MAX = 0xFFFFFF
PIGGYBACK_CONID_MAX = 0xFFFF
TURN = 1 << 16
"""How many sequences, or stamps, there are."""

KINDS = ("malformed", "ignore", "connect", "con_reply", "data", "ack")
"""A well-formed datagram of type t has kind t + 1."""
REASONS = ("", "too_short", "bad_magic", "unknown_type", "wrong_size", "bad_stat", "zero_conid")


def _conid(name: str, whose: str, size: int = 3) -> Field:
    return Field(name=name, size=size, meaning=f"connection id of the {whose}", not_zero=True)


HEAD = Header(Field(name="type", size=1, meaning="type", values=dict(enumerate(KINDS[1:]))), start=len(MAGIC))
HEAD_BYTES = HEAD.size
CONNECT = Header(
    Field(name="ver", size=1, meaning="version: 0 stamped layout, 1 piggyback", hexadecimal=True),
    _conid("cl_conid", "client"),
    start=HEAD_BYTES,
)
CON_REPLY = Header(
    Field(name="stat", size=1, meaning="status", values={ACCEPT: "accept", REJECT: "reject"}),
    Field(name="fill", size=1, meaning="fill, ignored"),
    _conid("cl_conid", "client"),
    _conid("sv_conid", "server"),
    start=HEAD_BYTES,
)
STAMPED = Header(
    _conid("dest_conid", "receiver"),
    _conid("from_conid", "sender"),
    Field(name="sequence", size=2, meaning="sequence number"),
    Field(name="stamp", size=2, meaning="sender's clock, milliseconds modulo 65,536"),
    start=HEAD_BYTES,
)
"""Of data in the stamped layout, and of an ack."""
PIGGYBACK = Header(
    _conid("from_conid", "sender", 2),
    _conid("dest_conid", "receiver", 2),
    Field(name="sequence", size=2, meaning="sequence number"),
    Field(name="from_seq", size=2, meaning="highest sequence received with none missing below"),
    start=HEAD_BYTES,
)
CONNECT_BYTES, CON_REPLY_BYTES = CONNECT.size, CON_REPLY.size
STAMPED_BYTES = ACK_BYTES = STAMPED.size
PIGGYBACK_BYTES = PIGGYBACK.size
STAMPED_HEAD_BYTES = STAMPED["sequence"].offset
PIGGYBACK_HEAD_BYTES = PIGGYBACK["sequence"].offset
"""What all data of one direction of a connection share: the type and both ids."""

_PAIR = struct.Struct(">HH")
_HEADS = tuple(MAGIC + bytes((kind,)) for kind in range(5))


@dataclass(frozen=True, kw_only=True)
class Ignore:
    """Anything; dropped."""

    body: bytes


@dataclass(frozen=True, kw_only=True)
class Connect:
    """A client asks for a connection. `ver` is major (high four bits) and minor."""

    ver: int
    cl_conid: int


@dataclass(frozen=True, kw_only=True)
class ConReply:
    """A server accepts (`stat` 1) or rejects (`stat` 2)."""

    stat: int
    cl_conid: int
    sv_conid: int
    fill: int = 0


@dataclass(frozen=True, kw_only=True)
class StampedData:
    """One message in the stamped layout."""

    dest_conid: int
    from_conid: int
    sequence: int
    stamp: int
    body: bytes


@dataclass(frozen=True, kw_only=True)
class PiggybackData:
    """One message, or with an empty body a bare acknowledgement, in the piggyback layout."""

    from_conid: int
    dest_conid: int
    sequence: int
    from_seq: int
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Data:
    """A type 3 datagram before its connection is known: `rest` is what follows the type."""

    rest: bytes

    def as_stamped(self) -> StampedData | None:
        """Read it in the stamped layout, or return None where that reading does not exist."""
        return self._read(STAMPED, StampedData)

    def as_piggyback(self) -> PiggybackData | None:
        """Read it in the piggyback layout, or return None where that reading does not exist."""
        return self._read(PIGGYBACK, PiggybackData)

    def _read(self, header: Header, reading: Callable[..., T]) -> T | None:
        data = _HEADS[TYPE_DATA] + self.rest
        if len(data) < header.size:
            return None
        values = header.values(data)
        if not values["dest_conid"] or not values["from_conid"]:
            return None
        return reading(**values, body=data[header.size :])


@dataclass(frozen=True, kw_only=True)
class Ack:
    """Acknowledges exactly one stamped packet, ids seen from the one who acknowledges."""

    dest_conid: int
    from_conid: int
    sequence: int
    stamp: int


Packet = Ignore | Connect | ConReply | Data | Ack
"""What `decode` returns."""
Encodable = Packet | StampedData | PiggybackData


def encode(packet: Encodable) -> bytes:
    """Return the one datagram that stands for the packet."""
    match packet:
        case StampedData():
            return _HEADS[TYPE_DATA] + STAMPED.encoded(packet) + packet.body
        case PiggybackData():
            return _HEADS[TYPE_DATA] + PIGGYBACK.encoded(packet) + packet.body
        case Ack():
            return _HEADS[TYPE_ACK] + STAMPED.encoded(packet)
        case Connect():
            return _HEADS[TYPE_CONNECT] + CONNECT.encoded(packet)
        case ConReply():
            return _HEADS[TYPE_CON_REPLY] + CON_REPLY.encoded(packet)
        case Data():
            return _HEADS[TYPE_DATA] + packet.rest
        case Ignore():
            return _HEADS[TYPE_IGNORE] + packet.body


def decode(data: Buffer) -> Packet:
    """Return the packet that the bytes stand for, or raise `MalformedDatagram`."""
    size = len(data)
    if size < HEAD_BYTES:
        raise MalformedDatagram("too_short", found=f"{size} bytes", expected="at least 4")
    if data[:3] != MAGIC:
        raise MalformedDatagram("bad_magic", found=bytes(data[:3]).hex(), expected=MAGIC.hex())
    kind = data[3]
    if kind == TYPE_DATA:
        return _decode_data(data)
    if kind == TYPE_ACK:
        _check_size("ack", data, STAMPED)
        return _checked(Ack(**STAMPED.values(data)), "dest_conid", "from_conid")
    if kind == TYPE_CONNECT:
        _check_size("connect", data, CONNECT)
        return _checked(Connect(**CONNECT.values(data)), "cl_conid")
    if kind == TYPE_CON_REPLY:
        return _decode_con_reply(data)
    if kind == TYPE_IGNORE:
        return Ignore(body=bytes(data[HEAD_BYTES:]))
    raise MalformedDatagram("unknown_type", found=f"type {kind}", expected="type 0 to 4")


def caller_id(data: Buffer) -> int | None:
    """Return the cl_conid of a call; None for anything else."""
    try:
        packet = decode(data)
    except MalformedDatagram:
        return None
    return packet.cl_conid if isinstance(packet, Connect) else None


def _decode_data(data: Buffer) -> Data:
    if len(data) < PIGGYBACK_BYTES:
        raise MalformedDatagram("too_short", found=f"data of {len(data)} bytes", expected="at least 12")
    packet = Data(rest=bytes(data[HEAD_BYTES:]))
    if packet.as_stamped() is None and packet.as_piggyback() is None:
        raise MalformedDatagram("zero_conid", found="a connection id of 0", expected="1 or more")
    return packet


def _decode_con_reply(data: Buffer) -> ConReply:
    _check_size("con reply", data, CON_REPLY)
    reply = ConReply(**CON_REPLY.values(data))
    if reply.stat not in (ACCEPT, REJECT):
        raise MalformedDatagram("bad_stat", found=f"stat {reply.stat}", expected="1 or 2")
    return _checked(reply, "cl_conid", "sv_conid" if reply.stat == ACCEPT else "cl_conid")


def _check_size(name: str, data: Buffer, header: Header) -> None:
    if len(data) != header.size:
        raise MalformedDatagram("wrong_size", found=f"{name} of {len(data)} bytes", expected=f"{header.size} bytes")


def _checked(packet: T, *conids: str) -> T:
    """Return the packet, none of whose connection ids of these names is 0."""
    if any(getattr(packet, name) == 0 for name in conids):
        raise MalformedDatagram("zero_conid", found="a connection id of 0", expected="1 or more")
    return packet


def pair_at(data: Buffer, offset: int) -> tuple[int, int]:
    """Read the four bytes after a head: sequence and stamp, or sequence and from_seq."""
    first, second = _PAIR.unpack_from(data, offset)
    return first, second


def ack_bytes(dest_conid: int, from_conid: int, sequence: int, stamp: int) -> bytes:
    return stamped_prefix(TYPE_ACK, dest_conid, from_conid) + pair(sequence, stamp)


def stamped_prefix(kind: int, dest_conid: int, from_conid: int) -> bytes:
    """Return the ten bytes that all stamped data (or acks) of one direction of a connection share."""
    return _HEADS[kind] + dest_conid.to_bytes(3, "big") + from_conid.to_bytes(3, "big")


def piggyback_prefix(from_conid: int, dest_conid: int) -> bytes:
    """Return the eight bytes that all piggyback data of one direction of a connection share."""
    return _HEADS[TYPE_DATA] + from_conid.to_bytes(2, "big") + dest_conid.to_bytes(2, "big")


def pair(first: int, second: int) -> bytes:
    """Return the four bytes that follow a prefix: a sequence and a stamp, or a sequence and a from_seq."""
    return _PAIR.pack(first, second)


def number(value: int) -> bytes:
    return value.to_bytes(2, "big")


def echoed(stamped: bytes) -> bytes:
    """Return sequence and stamp of stamped data as they go into its acknowledgement."""
    return stamped[STAMPED_HEAD_BYTES:STAMPED_BYTES]


def renumbered(data: Buffer, header_bytes: int, second: int) -> bytes:
    """Return data with another stamp or from_seq, which its header ends in."""
    return b"".join((data[: header_bytes - 2], second.to_bytes(2, "big"), data[header_bytes:]))


def body_of(datagram: bytes, header_bytes: int) -> bytes:
    return datagram[header_bytes:]
