"""The bytes of pydevts: eight bytes of header, then the body of a packet.

    offset  size  field
    0       1     type        0 packet, 1 ack, 3 close
    1       1     success     0 good, 1 the CRC failed
    2       2     message_id
    4       4     crc         CRC-32 of the packet's body (0 of an empty one); ack and close repeat the packet's
    8       ...   body        of a packet, up to 65,499 bytes; ack and close have none

All integers are big-endian. Read as one number of 64 bits, the header of a good packet is its *key*: message_id
above crc, 48 bits, by which both sides know a message of a peer. Machines handle keys, and many at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct, pack, unpack
from typing import NamedTuple
from zlib import crc32

from fairway.core.errors import MalformedDatagram
from fairway.core.headers import Field, Header
from fairway.core.machine import UDP_PAYLOAD_BYTES_MAX, Buffer

TYPE_PACKET, TYPE_ACK, TYPE_CLOSE = 0, 1, 3
KINDS = ("malformed", "packet", "ack", "close")
REASONS = ("", "too_short", "unknown_type", "bad_success", "wrong_size", "too_long")
KIND_OF_TYPE = {TYPE_PACKET: "packet", TYPE_ACK: "ack", TYPE_CLOSE: "close"}

HEADER = Header(
    Field(name="type", size=1, meaning="type", values=KIND_OF_TYPE),
    Field(name="success", size=1, meaning="success", values={0: "good", 1: "the CRC failed"}),
    Field(name="message_id", size=2, meaning="id of the message"),
    Field(name="crc", size=4, meaning="CRC-32 of the packet's body", hexadecimal=True),
)
HEADER_BYTES = HEADER.size
BODY_BYTES_MAX = UDP_PAYLOAD_BYTES_MAX - HEADER_BYTES

TYPE_SHIFT, _SUCCESS_SHIFT = HEADER.shift("type"), HEADER.shift("success")
KEY_MASK = (1 << _SUCCESS_SHIFT) - 1
CRC_MASK = (1 << HEADER.shift("message_id")) - 1
FAILED = 1 << _SUCCESS_SHIFT
"""The success field with 1 in it, in a header read as one number."""
ACK = TYPE_ACK << TYPE_SHIFT
CLOSE = TYPE_CLOSE << TYPE_SHIFT

_HEADER = HEADER.struct()
_NUMBER = Struct(">Q")
_HIGH = bytes(number >> 8 for number in range(1 << 16)) * 2
_LOW = bytes(number & 0xFF for number in range(1 << 16)) * 2
"""Both bytes of the ids in the order in which they follow one another, twice, so that a run may cross the wrap."""


@dataclass(frozen=True, kw_only=True)
class Packet:
    """A message. `crc` is what the datagram says; whether the body agrees is the receiver's question."""

    success: int
    message_id: int
    crc: int
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Ack:
    """A message arrived whole (success 0) or damaged (success 1)."""

    success: int
    message_id: int
    crc: int


@dataclass(frozen=True, kw_only=True)
class Close:
    """The acknowledgement arrived; it need not be repeated. `success` has no meaning here and is kept."""

    success: int
    message_id: int
    crc: int


AnyPacket = Packet | Ack | Close


class PacketRun(NamedTuple):
    """Good packets of equal size with consecutive ids, their CRC checked."""

    keys: tuple[int, ...]
    bodies: list[bytes]


def encode(packet: AnyPacket) -> bytes:
    if isinstance(packet, Packet):
        return _HEADER.pack(TYPE_PACKET, packet.success, packet.message_id, packet.crc) + packet.body
    kind = TYPE_ACK if isinstance(packet, Ack) else TYPE_CLOSE
    return _HEADER.pack(kind, packet.success, packet.message_id, packet.crc)


def decode(data: Buffer) -> AnyPacket:
    """Return the packet of a datagram, or raise `MalformedDatagram`."""
    header(data)
    kind, success, message_id, crc = _HEADER.unpack_from(data)
    if kind == TYPE_PACKET:
        return Packet(success=success, message_id=message_id, crc=crc, body=body(data))
    control = Ack if kind == TYPE_ACK else Close
    return control(success=success, message_id=message_id, crc=crc)


def header(data: Buffer) -> int:
    """Return the header of a well-formed datagram as one number, or raise `MalformedDatagram`."""
    length = len(data)
    if length < HEADER_BYTES:
        raise MalformedDatagram("too_short", found=f"{length} bytes", expected=f"at least {HEADER_BYTES}")
    number: int = _NUMBER.unpack_from(data)[0]
    kind, success = number >> TYPE_SHIFT, (number >> _SUCCESS_SHIFT) & 0xFF
    if kind not in KIND_OF_TYPE:
        raise MalformedDatagram("unknown_type", found=f"type {kind}", expected="0, 1 or 3")
    if success > 1:
        raise MalformedDatagram("bad_success", found=f"success {success}", expected="0 or 1")
    if kind != TYPE_PACKET and length != HEADER_BYTES:
        found = f"{KIND_OF_TYPE[kind]} of {length} bytes"
        raise MalformedDatagram("wrong_size", found=found, expected=f"{HEADER_BYTES} bytes")
    if length > UDP_PAYLOAD_BYTES_MAX:
        raise MalformedDatagram("too_long", found=f"{length} bytes", expected=f"at most {UDP_PAYLOAD_BYTES_MAX}")
    return number


def body(data: Buffer) -> bytes:
    return bytes(data[HEADER_BYTES:])


def key(message_id: int, crc: int) -> int:
    """Return the number by which a message of a peer is known."""
    return message_id << 32 | crc


def datagram(number: int, payload: bytes = b"") -> bytes:
    return _NUMBER.pack(number) + payload


def with_failure(data: Buffer) -> bytes:
    """Return a packet's datagram with success 1: the answer to a failed CRC."""
    again = bytearray(data)
    again[1] = 1
    return bytes(again)


def controls(keys: Sequence[int], kind: int) -> bytes:
    """Return the acks (or closes) of many messages as one super-buffer."""
    together = bytearray(pack(f">{len(keys)}Q", *keys))
    together[0::HEADER_BYTES] = bytes((kind,)) * len(keys)
    return bytes(together)


def packets(keys: Sequence[int], bodies: Sequence[bytes]) -> bytes:
    if len(keys) == 1:
        return _NUMBER.pack(keys[0]) + bodies[0]
    heads = pack(f">{len(keys)}Q", *keys)
    pieces = [b""] * (2 * len(keys))
    pieces[0::2] = [heads[start : start + HEADER_BYTES] for start in range(0, len(heads), HEADER_BYTES)]
    pieces[1::2] = bodies
    return b"".join(pieces)


def control_keys(data: Buffer, kind: int) -> tuple[int, ...] | None:
    """Return the keys of a super-buffer of good acks (or closes); None if it holds anything else."""
    count, rest = divmod(len(data), HEADER_BYTES)
    together = bytearray(data)
    if rest or together[0::HEADER_BYTES].count(kind) != count or together[1::HEADER_BYTES].count(0) != count:
        return None
    together[0::HEADER_BYTES] = bytes(count)
    return unpack(f">{count}Q", together)


def packet_run(data: bytes, segment_bytes: int) -> PacketRun | None:
    """Return the packets of a super-buffer if all are good and have consecutive ids; None otherwise.

    Header bytes are gathered by columns; only the CRC reads each body.
    """
    count, rest = divmod(len(data), segment_bytes)
    if rest or data[0::segment_bytes].count(TYPE_PACKET) != count or data[1::segment_bytes].count(0) != count:
        return None
    first = data[2] << 8 | data[3]
    high, low = data[2::segment_bytes], data[3::segment_bytes]
    if high != _HIGH[first : first + count] or low != _LOW[first : first + count]:
        return None
    heads = bytearray(HEADER_BYTES * count)
    for offset in range(2, HEADER_BYTES):
        heads[offset::HEADER_BYTES] = data[offset::segment_bytes]
    keys = unpack(f">{count}Q", heads)
    size = segment_bytes - HEADER_BYTES
    bodies = [data[start : start + size] for start in range(HEADER_BYTES, len(data), segment_bytes)]
    if [number & CRC_MASK for number in keys] != list(map(crc32, bodies)):
        return None
    return PacketRun(keys, bodies)
