"""The packets of the four protocols as data: which fields stand where, and what must hold.

`dissectors.py` writes Wireshark's dissectors from these; a test reads datagrams with `read` and with each protocol's
own decoder and compares, so a description cannot drift away from the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fairway.protocols.mrp import wire as mrp
from fairway.protocols.pydevts import wire as pydevts
from fairway.protocols.rup import wire as rup
from fairway.protocols.udpc import wire as udpc

Type = Literal["uint", "uint255", "digits"]
"""A big-endian number, a number of four digits in base 255, or lower-case hexadecimal digits as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field: its place, its type, and what it may hold."""

    name: str
    offset: int
    size: int
    meaning: str
    type: Type = "uint"
    hexadecimal: bool = False
    """How it is shown."""
    not_zero: bool = False
    values: Mapping[int, str] = field(default_factory=dict)
    """If there are any, no other is accepted."""
    bits: Mapping[int, str] = field(default_factory=dict)
    """What each bit is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One form of datagram: how it is told from others, its fields, and whether a body follows."""

    kind: str
    where: Mapping[int, tuple[int, ...]]
    """The bytes that tell it, by offset."""
    header_bytes: int
    fields: tuple[Field, ...]
    body: bool = False
    layout: str = ""
    """Set where forms differ only by what the connection has agreed on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """All packets of one protocol."""

    protocol: str
    title: str
    forms: tuple[Form, ...]
    summary: tuple[str, ...]
    """Fields that a one-line summary shows."""
    port: int | None = None
    telling: bool = False
    """Whether a well-formed datagram is evidence enough for the protocol."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a description makes of a datagram."""

    form: Form
    values: Mapping[str, int | str]
    body: bytes


def read(description: Description, datagram: bytes, layout: str | None = None) -> Reading | None:
    """Reads a datagram by the first form that fits, or gives None if it is malformed."""
    for form in description.forms:
        if layout is not None and form.layout not in ("", layout):
            continue
        if all(offset < len(datagram) and datagram[offset] in known for offset, known in form.where.items()):
            reading = _read(form, datagram)
            if reading is not None or not form.layout:
                return reading
    return None


def _read(form: Form, datagram: bytes) -> Reading | None:
    size = len(datagram)
    if size < form.header_bytes or (size > form.header_bytes and not form.body):
        return None
    values: dict[str, int | str] = {}
    for one in form.fields:
        value = _value(one, datagram[one.offset : one.offset + one.size])
        if value is None or (one.not_zero and not value) or (one.values and value not in one.values):
            return None
        values[one.name] = value
    return Reading(form, values, datagram[form.header_bytes :])


def _value(one: Field, data: bytes) -> int | str | None:
    if one.type == "uint":
        return int.from_bytes(data, "big")
    if one.type == "uint255":
        digits = [digit * rup.BASE**place for place, digit in enumerate(data)]
        return None if rup.BASE in data else sum(digits)
    return data.decode("ascii") if all(digit in b"0123456789abcdef" for digit in data) else None


def _udpc_forms() -> tuple[Form, ...]:
    fields = (
        Field(name="index", offset=0, size=4, meaning="number of the packet", not_zero=True),
        Field(name="session_id", offset=4, size=4, meaning="sessionID", hexadecimal=True, not_zero=True),
        Field(name="ack_index", offset=8, size=4, meaning="number of the packet that is answered"),
        Field(
            name="flag",
            offset=12,
            size=1,
            meaning="flags",
            hexadecimal=True,
            bits={
                udpc.ACK: "ACK",
                udpc.REQ: "REQ",
                udpc.ASY: "ASY",
                udpc.SYN: "SYN",
                udpc.IMP: "IMP",
                udpc.FIN: "FIN",
                udpc.HBT: "HBT",
            },
        ),
    )
    return tuple(
        Form(
            kind=kind,
            where={12: (flag,)},
            header_bytes=udpc.HEADER_BYTES,
            fields=fields,
            body=flag not in udpc.CONTROL_FLAGS,
        )
        for flag, kind in udpc.KIND_OF_FLAG.items()
    )


def _conid(name: str, offset: int, meaning: str, *, size: int = 3, not_zero: bool = True) -> Field:
    return Field(name=name, offset=offset, size=size, meaning=meaning, not_zero=not_zero)


def _mrp_form(kind: str, number: int, size: int, *fields: Field, body: bool = False, layout: str = "") -> Form:
    magic: dict[int, tuple[int, ...]] = {place: (byte,) for place, byte in enumerate(mrp.MAGIC)}
    names = dict(enumerate(mrp.KINDS[1:]))
    kind_of = Field(name="type", offset=3, size=1, meaning="type", values=names)
    where = magic | {3: (number,)}
    return Form(kind=kind, where=where, header_bytes=size, fields=(kind_of, *fields), body=body, layout=layout)


def _mrp_forms() -> tuple[Form, ...]:
    ver = Field(name="ver", offset=4, size=1, meaning="version: 0 stamped layout, 1 piggyback", hexadecimal=True)
    stat = Field(name="stat", offset=4, size=1, meaning="status", values={mrp.ACCEPT: "accept", mrp.REJECT: "reject"})
    fill = Field(name="fill", offset=5, size=1, meaning="fill, ignored")
    client = _conid("cl_conid", 6, "connection id of the client")
    stamped = (
        _conid("dest_conid", 4, "connection id of the receiver"),
        _conid("from_conid", 7, "connection id of the sender"),
        Field(name="sequence", offset=10, size=2, meaning="sequence number"),
        Field(name="stamp", offset=12, size=2, meaning="sender's clock, milliseconds modulo 65,536"),
    )
    piggyback = (
        _conid("from_conid", 4, "connection id of the sender", size=2),
        _conid("dest_conid", 6, "connection id of the receiver", size=2),
        Field(name="sequence", offset=8, size=2, meaning="sequence number"),
        Field(name="from_seq", offset=10, size=2, meaning="highest sequence received with none missing below"),
    )
    accepted = _mrp_form(
        "con_reply",
        mrp.TYPE_CON_REPLY,
        mrp.CON_REPLY_BYTES,
        *(stat, fill, client, _conid("sv_conid", 9, "connection id of the server")),
    )
    return (
        _mrp_form("ignore", mrp.TYPE_IGNORE, mrp.HEAD_BYTES, body=True),
        _mrp_form("connect", mrp.TYPE_CONNECT, mrp.CONNECT_BYTES, ver, _conid("cl_conid", 5, client.meaning)),
        Form(
            kind=accepted.kind,
            where={**accepted.where, 4: (mrp.ACCEPT,)},
            header_bytes=accepted.header_bytes,
            fields=accepted.fields,
        ),
        _mrp_form(
            "con_reply",
            mrp.TYPE_CON_REPLY,
            mrp.CON_REPLY_BYTES,
            *(stat, fill, client, _conid("sv_conid", 9, "connection id of the server", not_zero=False)),
        ),
        _mrp_form("data", mrp.TYPE_DATA, mrp.STAMPED_BYTES, *stamped, body=True, layout="stamped"),
        _mrp_form("data", mrp.TYPE_DATA, mrp.PIGGYBACK_BYTES, *piggyback, body=True, layout="piggyback"),
        _mrp_form("ack", mrp.TYPE_ACK, mrp.ACK_BYTES, *stamped),
    )


def _rup_forms() -> tuple[Form, ...]:
    def identity(offset: int) -> Field:
        return Field(name="id", offset=offset, size=rup.ID_DIGITS, meaning="id of the message", type="digits")

    def position(meaning: str) -> Field:
        return Field(name="position", offset=34, size=4, meaning=meaning, type="uint255")

    zero = Field(name="separator", offset=33, size=1, meaning="separator, 0", values={0: "zero"})
    start = Field(name="start", offset=1, size=1, meaning="start", values={0: "later part", 1: "first part"})
    total = Field(name="total", offset=38, size=4, meaning="size of the message", type="uint255")
    letters = {rup.KINDS[kind]: letter for kind, letter in rup.LETTER_OF_KIND.items()}
    data_fields = (start, identity(2), position("where the body begins in the message"), total)
    request_fields = (identity(1), zero, position("where the missing part begins"))
    confirm_fields = (identity(1), zero, position("everything below has arrived"))
    control = rup.CONTROL_BYTES
    return (
        Form(
            kind="data",
            where={0: (letters["data"],)},
            header_bytes=rup.DATA_HEADER_BYTES,
            fields=data_fields,
            body=True,
        ),
        Form(kind="request", where={0: (letters["request"],)}, header_bytes=control, fields=request_fields),
        Form(kind="confirm", where={0: (letters["confirm"],)}, header_bytes=control, fields=confirm_fields),
    )


def _pydevts_forms() -> tuple[Form, ...]:
    fields = (
        Field(name="type", offset=0, size=1, meaning="type", values=pydevts.KIND_OF_TYPE),
        Field(name="success", offset=1, size=1, meaning="success", values={0: "good", 1: "the CRC failed"}),
        Field(name="message_id", offset=2, size=2, meaning="id of the message"),
        Field(name="crc", offset=4, size=4, meaning="CRC-32 of the packet's body", hexadecimal=True),
    )
    return tuple(
        Form(
            kind=kind,
            where={0: (number,)},
            header_bytes=pydevts.HEADER_BYTES,
            fields=fields,
            body=number == pydevts.TYPE_PACKET,
        )
        for number, kind in pydevts.KIND_OF_TYPE.items()
    )


DESCRIPTIONS = (
    Description(
        protocol="udpc",
        title="UDPC (UDPConnection)",
        forms=_udpc_forms(),
        summary=("index", "ack_index"),
    ),
    Description(
        protocol="mrp",
        title="MRP (reliable packets over UDP)",
        forms=_mrp_forms(),
        summary=("cl_conid", "sv_conid", "dest_conid", "sequence", "stamp", "from_seq"),
        port=8192,
        telling=True,
    ),
    Description(
        protocol="rup",
        title="RUP (data, request, confirm over UDP)",
        forms=_rup_forms(),
        summary=("position", "total"),
        telling=True,
    ),
    Description(
        protocol="pydevts",
        title="PYDEVTS (packets, acks and closes over UDP)",
        forms=_pydevts_forms(),
        summary=("message_id", "success"),
    ),
)
