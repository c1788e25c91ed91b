"""The packets of the four protocols as data: which forms there are, of the headers that each `wire.py` describes.

`dissectors.py` writes Wireshark's dissectors from these; a test reads datagrams with `read` and with each protocol's
own decoder and compares, so a description cannot drift away from the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fairway.core.headers import Field, Header
from fairway.protocols.mrp import wire as mrp
from fairway.protocols.pydevts import wire as pydevts
from fairway.protocols.rup import wire as rup
from fairway.protocols.udpc import wire as udpc


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
    flag_at = udpc.HEADER["flag"].offset
    return tuple(
        _form(kind, {flag_at: (flag,)}, udpc.HEADER, body=flag not in udpc.CONTROL_FLAGS)
        for flag, kind in udpc.KIND_OF_FLAG.items()
    )


def _form(
    kind: str, where: Mapping[int, tuple[int, ...]], *headers: Header, body: bool = False, layout: str = ""
) -> Form:
    fields = tuple(one for header in headers for one in header.fields)
    return Form(kind=kind, where=where, header_bytes=headers[-1].size, fields=fields, body=body, layout=layout)


def _mrp_forms() -> tuple[Form, ...]:
    def form(number: int, *headers: Header, body: bool = False, layout: str = "") -> Form:
        where = {place: (byte,) for place, byte in enumerate((*mrp.MAGIC, number))}
        return _form(mrp.KINDS[number + 1], where, mrp.HEAD, *headers, body=body, layout=layout)

    reply = form(mrp.TYPE_CON_REPLY, mrp.CON_REPLY)
    stat_at, (*others, server) = mrp.CON_REPLY["stat"].offset, reply.fields
    return (
        form(mrp.TYPE_IGNORE, body=True),
        form(mrp.TYPE_CONNECT, mrp.CONNECT),
        replace(reply, where={**reply.where, stat_at: (mrp.ACCEPT,)}),
        replace(reply, fields=(*others, replace(server, not_zero=False))),
        form(mrp.TYPE_DATA, mrp.STAMPED, body=True, layout="stamped"),
        form(mrp.TYPE_DATA, mrp.PIGGYBACK, body=True, layout="piggyback"),
        form(mrp.TYPE_ACK, mrp.STAMPED),
    )


def _rup_forms() -> tuple[Form, ...]:
    headers = {rup.DATA: rup.DATA_HEADER, rup.REQUEST: rup.REQUEST_HEADER, rup.CONFIRM: rup.CONFIRM_HEADER}
    return tuple(
        _form(rup.KINDS[kind], {0: (rup.LETTER_OF_KIND[kind],)}, header, body=kind == rup.DATA)
        for kind, header in headers.items()
    )


def _pydevts_forms() -> tuple[Form, ...]:
    return tuple(
        _form(kind, {0: (number,)}, pydevts.HEADER, body=number == pydevts.TYPE_PACKET)
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
