"""Wireshark's dissectors of the four protocols: their packets as Lua tables, and one engine that reads them.

Which forms of packets there are is described here, of the headers that each `wire.py` describes; a test has tshark
read datagrams by these descriptions, reads them with each protocol's own decoder and compares, so a description cannot
drift away from the bytes. mrp's two layouts of data are told apart as an endpoint does it: by the version of the
connect that a connection began with. Where the capture does not hold the beginning, data is read as stamped if it can
be.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from fairway import __version__
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
        where = {offset: (byte,) for offset, byte in enumerate((*mrp.MAGIC, number))}
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

FILE_NAME = "fairway.lua"


def lua_tables() -> str:
    """Return what the engine, `dissectors.lua`, reads: the descriptions of the four protocols."""
    head = f"-- Written by fairway {__version__}: udpc, mrp, rup and pydevts. `fairway wireshark --install` renews it."
    return f"{head}\nlocal protocols = {_lua([_description(one) for one in DESCRIPTIONS])}\n"


def _description(one: Description) -> dict[str, object]:
    return {
        "name": one.protocol,
        "title": one.title,
        "ports": "" if one.port is None else str(one.port),
        "telling": one.telling,
        "summary": one.summary,
        "forms": [
            {
                "kind": form.kind,
                "where": {offset: dict.fromkeys(values, True) for offset, values in form.where.items()},
                "header_bytes": form.header_bytes,
                "body": form.body,
                "layout": form.layout or None,
                "fields": [_field(field) for field in form.fields],
            }
            for form in one.forms
        ],
    }


def _field(field: Field) -> dict[str, object]:
    return {
        "name": field.name,
        "title": field.meaning[:1].upper() + field.meaning[1:],
        "offset": field.offset,
        "size": field.size,
        "type": field.type,
        "hexadecimal": field.hexadecimal,
        "not_zero": field.not_zero,
        "values": field.values or None,
        "bits": field.bits or None,
    }


def _lua(value: object) -> str:
    """Return a value as Lua writes it; what is None is left out of a table."""
    if isinstance(value, Mapping):
        entries = ((key if isinstance(key, str) else f"[{key}]", one) for key, one in value.items() if one is not None)
        return "{" + ", ".join(f"{key} = {_lua(one)}" for key, one in entries) + "}"
    if isinstance(value, list | tuple):
        return "{\n  " + ",\n  ".join(map(_lua, value)) + "}"
    # What JSON writes of texts, truth values and whole numbers Lua reads as such.
    return json.dumps(value, ensure_ascii=False)
