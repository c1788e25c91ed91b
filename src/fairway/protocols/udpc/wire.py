"""The bytes of udpc: thirteen bytes of header, then the body.

offset  size  field
0       4     index       number of the packet, from 1; 0 never stands here
4       4     session_id  never 0
8       4     ack_index   number of the packet that is answered; ignored (and kept) without ACK
12      1     flag        one of the combinations below
13      ...   body        empty in control packets (marked *)

flag               kind
0                  plain               a message that is sent once
IMP                important           repeated until its acknowledgement comes
REQ, REQ+ASY       request             repeated until its response comes
ACK                response            the answer to request ack_index; empty, it ends a handshake
ACK+REQ (+ASY)     answering_request   the answer to a request that asks something itself
IMP+ACK            important_ack *     the acknowledgement of important packet ack_index
SYN                syn *               a call; session_id is the caller's provisional one
SYN+ACK            syn_ack *           the answer to it; session_id is the one that counts from here on
FIN                fin *               the end of the session
HBT                heartbeat *         a keepalive that asks for an answer
HBT+ACK            heartbeat_ack *     that answer
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from fairway.core.errors import MalformedDatagram
from fairway.core.headers import Field, Header
from fairway.core.machine import Buffer

ACK = 0x01
REQ = 0x02
ASY = 0x04
SYN = 0x08
IMP = 0x10
FIN = 0x20
HBT = 0x40

FLAG_NAMES = {ACK: "ACK", REQ: "REQ", ASY: "ASY", SYN: "SYN", IMP: "IMP", FIN: "FIN", HBT: "HBT"}

HEADER = Header(
    Field(name="index", size=4, meaning="number of the packet", not_zero=True),
    Field(name="session_id", size=4, meaning="sessionID", hexadecimal=True, not_zero=True),
    Field(name="ack_index", size=4, meaning="number of the packet that is answered"),
    Field(name="flag", size=1, meaning="flags", hexadecimal=True, bits=FLAG_NAMES),
)
HEADER_BYTES = HEADER.size

REASONS = ("", "too_short", "bad_flag", "control_with_body", "zero_index", "zero_session")

KIND_OF_FLAG = {
    0: "plain",
    IMP: "important",
    REQ: "request",
    REQ | ASY: "request",
    ACK: "response",
    ACK | REQ: "answering_request",
    ACK | REQ | ASY: "answering_request",
    IMP | ACK: "important_ack",
    SYN: "syn",
    SYN | ACK: "syn_ack",
    FIN: "fin",
    HBT: "heartbeat",
    HBT | ACK: "heartbeat_ack",
}
"""Every combination that is accepted on the wire."""
INDEX_MASK = (1 << 32) - 1
KINDS = ("malformed", *dict.fromkeys(KIND_OF_FLAG.values()))

CONTROL_FLAGS = (IMP | ACK, SYN, SYN | ACK, FIN, HBT, HBT | ACK)
"""Combinations whose datagram is a bare header."""

_HEADER = HEADER.struct()
_LEGAL = tuple(flag in KIND_OF_FLAG for flag in range(256))
_CONTROL = tuple(flag in CONTROL_FLAGS for flag in range(256))
_NAMES = (*FLAG_NAMES.items(), (0x80, "0x80"))
_SAME_IN_STRETCH = (HEADER["flag"].offset, *reversed(range(HEADER["session_id"].offset, HEADER["session_id"].end)))
_INDEX_AT, _ACK_INDEX_AT = HEADER["index"].offset, HEADER["ack_index"].offset


@dataclass(frozen=True, kw_only=True)
class Control:
    """A packet that is a bare header; `ack_index` is kept, and means nothing, where the flag has no ACK."""

    index: int
    session_id: int
    ack_index: int = 0
    flag: int

    @property
    def kind(self) -> str:
        return KIND_OF_FLAG[self.flag]


@dataclass(frozen=True, kw_only=True)
class Message(Control):
    """A packet that carries a body beside its header."""

    body: bytes


def encode(packet: Control) -> bytes:
    body = packet.body if isinstance(packet, Message) else b""
    return datagram(packet.index, packet.session_id, packet.ack_index, packet.flag, body)


def decode(data: Buffer) -> Control:
    """Return the packet of a datagram, a `Message` if it carries a body, or raise `MalformedDatagram`."""
    index, session_id, ack_index, flag, body = fields(data)
    if _CONTROL[flag]:
        return Control(index=index, session_id=session_id, ack_index=ack_index, flag=flag)
    return Message(index=index, session_id=session_id, ack_index=ack_index, flag=flag, body=body)


def caller_id(data: Buffer) -> int | None:
    """Return the provisional sessionID of a call; None for anything else."""
    try:
        _, session_id, _, flag, _ = fields(data)
    except MalformedDatagram:
        return None
    return session_id if flag == SYN else None


def fields(data: Buffer) -> tuple[int, int, int, int, bytes]:
    """Return index, session_id, ack_index, flag and body of a well-formed datagram, or raise `MalformedDatagram`."""
    length = len(data)
    if length < HEADER_BYTES:
        raise MalformedDatagram("too_short", found=f"{length} bytes", expected=f"at least {HEADER_BYTES}")
    index, session_id, ack_index, flag = _HEADER.unpack_from(data)
    if _LEGAL[flag] and index and session_id and (length == HEADER_BYTES or not _CONTROL[flag]):
        return index, session_id, ack_index, flag, bytes(data[HEADER_BYTES:])
    raise _malformed(index, flag, length)


def _malformed(index: int, flag: int, length: int) -> MalformedDatagram:
    if not _LEGAL[flag]:
        return MalformedDatagram("bad_flag", found=flag_name(flag), expected="a combination that the wire accepts")
    if _CONTROL[flag] and length != HEADER_BYTES:
        found = f"{flag_name(flag)} of {length} bytes"
        return MalformedDatagram("control_with_body", found=found, expected=f"{HEADER_BYTES} bytes")
    if index == 0:
        return MalformedDatagram("zero_index", found="index 0", expected="an index from 1 on")
    return MalformedDatagram("zero_session", found="sessionID 0", expected="a sessionID from 1 on")


def datagram(index: int, session_id: int, ack_index: int, flag: int, payload: Buffer = b"") -> bytes:
    """Return the datagram with these fields; the fast way for machines, which know that they fit."""
    return _HEADER.pack(index, session_id, ack_index, flag) + payload


def flag_name(flag: int) -> str:
    """Name a combination of flags, as in `ACK+REQ`."""
    return "+".join(name for bit, name in _NAMES if flag & bit) or "none"


class Stretch(NamedTuple):
    """Neighbouring datagrams of a super-buffer: one session, one flag, consecutive indices; consecutive
    acknowledged indices too when they are acknowledgements. `start` and `end` count datagrams."""

    start: int
    end: int
    first_index: int
    session_id: int
    first_ack_index: int
    flag: int


def one_stretch(data: bytes, segment_bytes: int) -> Stretch | None:
    """Return whether the full segments of a super-buffer are one stretch, for the price of a few slices.

    A no may be wrong where an index carries far; `columns.stretches` then knows better. Segments must hold a header.
    """
    count = len(data) // segment_bytes
    end = count * segment_bytes
    index, session_id, ack_index, flag = _HEADER.unpack_from(data)
    for offset in _SAME_IN_STRETCH:
        if data[offset:end:segment_bytes] != _SINGLE_BYTES[data[offset]] * count:
            return None
    if not _counts_up(data, _INDEX_AT, end, segment_bytes, count):
        return None
    if flag == IMP | ACK and not _counts_up(data, _ACK_INDEX_AT, end, segment_bytes, count):
        return None
    return Stretch(0, count, index, session_id, ack_index, flag)


_SINGLE_BYTES = tuple(bytes([value]) for value in range(256))
_COUNTING = bytes(range(256)) * 9
"""Low bytes of consecutive numbers, for up to 2,048 of them from any start."""


def _counts_up(data: bytes, offset: int, end: int, segment_bytes: int, count: int) -> bool:
    """Return whether the four bytes at `offset` count up by one from segment to segment, with at most one carry."""
    high, middle, third, low = data[offset : offset + 4]
    carry = min(count, 256 - low)
    if count > carry + 256 or (count > carry and third == 255):
        return False
    thirds = _SINGLE_BYTES[third] * carry + (_SINGLE_BYTES[third + 1] * (count - carry) if count > carry else b"")
    return (
        data[offset + 3 : end : segment_bytes] == _COUNTING[low : low + count]
        and data[offset + 2 : end : segment_bytes] == thirds
        and data[offset + 1 : end : segment_bytes] == _SINGLE_BYTES[middle] * count
        and data[offset:end:segment_bytes] == _SINGLE_BYTES[high] * count
    )


def bodies(data: bytes, segment_bytes: int) -> tuple[bytes, ...]:
    return _bodies(segment_bytes - HEADER_BYTES, len(data) // segment_bytes).unpack(data)


@lru_cache(maxsize=512)
def _bodies(body_bytes: int, count: int) -> Struct:
    """A format that cuts all bodies in one call: twice as fast as one slice each."""
    return Struct(f"{HEADER_BYTES}x{body_bytes}s" * count)
