"""Wireshark's dissectors of the four protocols: the packet descriptions as Lua tables, and one engine that reads them.

mrp's two layouts of data are told apart as an endpoint does it: by the version of the connect that a connection began
with. Where the capture does not hold the beginning, data is read as stamped if it can be.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairway import __version__
from fairway.capture.descriptions import DESCRIPTIONS, Description, Form
from fairway.core.headers import Field

FILE_NAME = "fairway.lua"


def lua_tables() -> str:
    """Return what the engine, `dissectors.lua`, reads: the descriptions of the four protocols."""
    tables = ",\n".join(_description(description) for description in DESCRIPTIONS)
    head = (
        f"-- Written by fairway {__version__}: udpc, mrp, rup and pydevts. `fairway wireshark --install` renews it.\n"
    )
    return f"{head}local protocols = {{\n{tables}\n}}\n"


def _description(description: Description) -> str:
    return _table(
        (
            ("name", _text(description.protocol)),
            ("title", _text(description.title)),
            ("ports", _text("" if description.port is None else str(description.port))),
            ("telling", _truth(description.telling)),
            ("summary", _list(_text(name) for name in description.summary)),
            ("forms", _list(_form(form) for form in description.forms)),
        )
    )


def _form(form: Form) -> str:
    known = (
        (f"[{offset}]", _table((f"[{value}]", "true") for value in values)) for offset, values in form.where.items()
    )
    return _table(
        (
            ("kind", _text(form.kind)),
            ("where", _table(known)),
            ("header_bytes", str(form.header_bytes)),
            ("body", _truth(form.body)),
            *((("layout", _text(form.layout)),) if form.layout else ()),
            ("fields", _list(_field(field) for field in form.fields)),
        )
    )


def _field(field: Field) -> str:
    def named(names: Iterable[tuple[int, str]]) -> str:
        return _table((f"[{value}]", _text(name)) for value, name in names)

    return _table(
        (
            ("name", _text(field.name)),
            ("title", _text(field.meaning[:1].upper() + field.meaning[1:])),
            ("offset", str(field.offset)),
            ("size", str(field.size)),
            ("type", _text(field.type)),
            ("base", "base.HEX" if field.hexadecimal else "base.DEC"),
            ("not_zero", _truth(field.not_zero)),
            *((("values", named(field.values.items())),) if field.values else ()),
            *((("bits", named(field.bits.items())),) if field.bits else ()),
        )
    )


def _table(entries: Iterable[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{key} = {value}" for key, value in entries) + "}"


def _list(values: Iterable[str]) -> str:
    return "{\n  " + ",\n  ".join(values) + "}"


def _text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _truth(value: bool) -> str:
    return "true" if value else "false"
