"""The bytes of rup: three packets, told apart by their first letter.

    data                              request                           confirm
    offset  size  field               offset  size  field               offset  size  field
    0       1     64 ("d")            0       1     72 ("r")            0       1     63 ("c")
    1       1     start, 0 or 1       1       32    id                  1       32    id
    2       32    id                  33      1     00                  33      1     00
    34      4     from                34      4     from                34      4     confirmed-to
    38      4     total               38            end                 38            end
    42      ...   body

An id is 32 lower-case hexadecimal digits. A number is a *uint*: four digits in base 255, least significant first; a
digit of 255 is malformed. `position` is what the wire calls from (data, request) or confirmed-to (confirm).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from fairway.core.errors import MalformedDatagram
from fairway.core.headers import Field, Header
from fairway.core.machine import Buffer

BASE = 255
UINT_MAX = BASE**4 - 1
ID_DIGITS = 32

_ID = Field(name="id", size=ID_DIGITS, meaning="id of the message", type="digits")
_POSITION = Field(name="position", size=4, meaning="where the body begins in the message", type="uint255")
DATA_HEADER = Header(
    Field(name="start", size=1, meaning="start", values={0: "later part", 1: "first part"}),
    _ID,
    _POSITION,
    Field(name="total", size=4, meaning="size of the message", type="uint255"),
    start=1,
)
_SEPARATOR = Field(name="separator", size=1, meaning="separator, 0", values={0: "zero"})
REQUEST_HEADER = Header(_ID, _SEPARATOR, replace(_POSITION, meaning="where the missing part begins"), start=1)
CONFIRM_HEADER = Header(_ID, _SEPARATOR, replace(_POSITION, meaning="everything below has arrived"), start=1)
"""What follows the first letter."""
DATA_HEADER_BYTES, CONTROL_BYTES = DATA_HEADER.size, CONFIRM_HEADER.size
POSITION_AT, TOTAL_AT = DATA_HEADER["position"].offset, DATA_HEADER["total"].offset
DATA_ID, CONTROL_ID = DATA_HEADER.span("id"), CONFIRM_HEADER.span("id")
SEPARATOR_AT = CONFIRM_HEADER["separator"].offset

KINDS = ("malformed", "data", "request", "confirm")
REASONS = ("", "too_short", "bad_type", "too_long", "bad_start", "bad_id", "bad_separator", "bad_digit")

DATA, REQUEST, CONFIRM = 1, 2, 3
"""The kinds, as positions in `KINDS`."""

LETTER_OF_KIND = {DATA: ord("d"), REQUEST: ord("r"), CONFIRM: ord("c")}
_KIND_OF_LETTER = {letter: kind for kind, letter in LETTER_OF_KIND.items()}

_DATA_FORM = re.compile(rb"d[\x00\x01][0-9a-f]{32}[^\xff]{8}")
_CONTROL_FORM = re.compile(rb"[rc][0-9a-f]{32}\x00[^\xff]{4}")
_CONTROLS_FORM = re.compile(rb"(?:[rc][0-9a-f]{32}\x00[^\xff]{4})*")
_ID_FORM = re.compile(rb"[0-9a-f]{32}")
_DATA_FIELDS = Struct("<xB32s8B")
_CONTROL_FIELDS = Struct("<B32sx4B")
_DATA_PREFIX = Struct("<BB32s")
_DIGITS = Struct("<4B")


@dataclass(frozen=True, kw_only=True)
class Data:
    """A part of a message: the body's bytes from `position` on. `start` marks the part at position 0."""

    start: bool
    id: str
    position: int
    total: int
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Request:
    """The receiver asks for the part at `position`."""

    id: str
    position: int


@dataclass(frozen=True, kw_only=True)
class Confirm:
    """The receiver has everything below `position`."""

    id: str
    position: int


Packet = Data | Request | Confirm


class Headed(NamedTuple):
    """The header fields of any packet; `start` and `total` are 0 in a request or confirm."""

    kind: int
    start: int
    identity: bytes
    position: int
    total: int


@lru_cache(maxsize=1_024)
def uint(value: int) -> bytes:
    """Return a number as four digits in base 255, least significant first; small messages ask for the same few."""
    rest, first = divmod(value, BASE)
    rest, second = divmod(rest, BASE)
    fourth, third = divmod(rest, BASE)
    return _DIGITS.pack(first, second, third, fourth)


def encode(packet: Packet) -> bytes:
    identity = packet.id.encode("ascii")
    if isinstance(packet, Data):
        prefix = _DATA_PREFIX.pack(LETTER_OF_KIND[DATA], packet.start, identity)
        return prefix + uint(packet.position) + uint(packet.total) + packet.body
    return control(REQUEST if isinstance(packet, Request) else CONFIRM, identity, packet.position)


def decode(data: Buffer) -> Packet:
    """Return the packet of a datagram, or raise `MalformedDatagram`."""
    kind, start, identity, position, total = header(data)
    name = identity.decode("ascii")
    if kind == DATA:
        return Data(start=start == 1, id=name, position=position, total=total, body=body(data))
    if kind == REQUEST:
        return Request(id=name, position=position)
    return Confirm(id=name, position=position)


def header(data: Buffer) -> Headed:
    """Return the header of a well-formed datagram, or raise `MalformedDatagram`."""
    if _DATA_FORM.match(data):
        start, identity, a, b, c, d, e, f, g, h = _DATA_FIELDS.unpack_from(data)
        position = a + 255 * (b + 255 * (c + 255 * d))
        return Headed(DATA, start, identity, position, e + 255 * (f + 255 * (g + 255 * h)))
    if len(data) == CONTROL_BYTES and _CONTROL_FORM.match(data):
        letter, identity, a, b, c, d = _CONTROL_FIELDS.unpack_from(data)
        return Headed(_KIND_OF_LETTER[letter], 0, identity, a + 255 * (b + 255 * (c + 255 * d)), 0)
    raise _malformed(bytes(data[: DATA_HEADER_BYTES + 1]), len(data))


def controls(data: Buffer) -> list[tuple[int, bytes, int]] | None:
    """Return kind, id and position of requests and confirms that stand one after another; None if any is malformed."""
    if len(data) % CONTROL_BYTES or not _CONTROLS_FORM.fullmatch(data):
        return None
    return [
        (_KIND_OF_LETTER[letter], identity, a + 255 * (b + 255 * (c + 255 * d)))
        for letter, identity, a, b, c, d in _CONTROL_FIELDS.iter_unpack(data)
    ]


def _malformed(front: bytes, length: int) -> MalformedDatagram:
    """Return which rule a datagram that fits no form breaks first."""
    if length == 0:
        return MalformedDatagram("too_short", found="0 bytes", expected=f"at least {CONTROL_BYTES}")
    if front[0] not in LETTER_OF_KIND.values():
        return MalformedDatagram("bad_type", found=f"type {front[0]:02x}", expected="64, 72 or 63")
    is_data = front[0] == LETTER_OF_KIND[DATA]
    least = DATA_HEADER_BYTES if is_data else CONTROL_BYTES
    if length < least:
        return MalformedDatagram("too_short", found=f"{length} bytes", expected=f"at least {least}")
    if not is_data and length > least:
        return MalformedDatagram("too_long", found=f"{length} bytes", expected=f"exactly {least}")
    if is_data and front[1] > 1:
        return MalformedDatagram("bad_start", found=f"start {front[1]}", expected="0 or 1")
    id_at = DATA_ID.start if is_data else CONTROL_ID.start
    if not _ID_FORM.match(front, id_at):
        found = repr(front[id_at : id_at + ID_DIGITS])
        return MalformedDatagram("bad_id", found=found, expected="32 lower-case hexadecimal digits")
    if not is_data and front[SEPARATOR_AT]:
        return MalformedDatagram("bad_separator", found=f"{front[SEPARATOR_AT]:02x} after the id", expected="00")
    return MalformedDatagram("bad_digit", found="a digit of 255", expected="digits from 0 to 254")


def body(data: Buffer) -> bytes:
    return bytes(data[DATA_HEADER_BYTES:])


def part_identity(data: memoryview, start: int) -> bytes:
    """Return the id of a datagram that begins at `start`, if it is a part: nothing is checked."""
    return data[start + DATA_ID.start : start + DATA_ID.stop].tobytes()


def part_position(data: memoryview, start: int) -> int:
    """Return the position of a datagram that begins at `start`, if it is a part: nothing is checked."""
    a, b, c, d = data[start + POSITION_AT : start + TOTAL_AT]
    return a + 255 * (b + 255 * (c + 255 * d))


def part(identity: bytes, position: int, total: int, payload: Buffer) -> bytes:
    """Return the datagram of one part; the fast way for machines, which know that the fields fit."""
    prefix = _DATA_PREFIX.pack(100, position == 0, identity)
    return b"".join((prefix, uint(position), uint(total), payload))


def control(kind: int, identity: bytes, position: int) -> bytes:
    """Return the datagram of a request or confirm; the fast way for machines, which know that the fields fit."""
    rest, first = divmod(position, BASE)
    rest, second = divmod(rest, BASE)
    fourth, third = divmod(rest, BASE)
    return _CONTROL_FIELDS.pack(LETTER_OF_KIND[kind], identity, first, second, third, fourth)
