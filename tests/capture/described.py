"""Datagrams read by the descriptions that Wireshark's dissectors are made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fairway.capture.dissectors import Description, Form
from fairway.core.headers import Field
from fairway.protocols.rup import wire as rup


@dataclass(frozen=True, slots=True)
class Reading:
    form: Form
    values: Mapping[str, int | str]
    body: bytes


def read(description: Description, datagram: bytes, layout: str | None = None) -> Reading | None:
    """Read a datagram by the first form that fits, or return None if it is malformed."""
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
