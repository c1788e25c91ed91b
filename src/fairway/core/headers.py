"""The layout of a header, written once: decoders, columns, dissectors and searches take positions from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from struct import Struct
from typing import Literal

from fairway.core.machine import Buffer

Type = Literal["uint", "uint255", "digits"]
"""A big-endian number, a number of four digits in base 255, or lower-case hexadecimal digits as text."""

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field: its size, its type, and what it may hold. Where it stands, its header knows."""

    name: str
    size: int
    meaning: str
    offset: int = 0
    type: Type = "uint"
    hexadecimal: bool = False
    """How it is shown."""
    not_zero: bool = False
    values: Mapping[int, str] = field(default_factory=dict)
    """If there are any, no other is accepted."""
    bits: Mapping[int, str] = field(default_factory=dict)
    """What each bit is called."""

    @property
    def end(self) -> int:
        return self.offset + self.size


class Header:
    """Fields that stand one after another, from `start` on."""

    def __init__(self, *fields: Field, start: int = 0) -> None:
        self.start = start
        placed: list[Field] = []
        for one in fields:
            placed.append(replace(one, offset=start))
            start += one.size
        self.fields = tuple(placed)
        self.size = start
        self._by_name = {one.name: one for one in placed}

    def __getitem__(self, name: str) -> Field:
        return self._by_name[name]

    def span(self, name: str) -> slice:
        """Return where the bytes of a field stand."""
        one = self._by_name[name]
        return slice(one.offset, one.end)

    def shift(self, name: str) -> int:
        """Return by how many bits a field is shifted when the header is read as one number."""
        return 8 * (self.size - self._by_name[name].end)

    def struct(self) -> Struct:
        """Return what packs and unpacks the fields from `start` on, numbers as numbers and others as bytes."""
        return Struct(">" + "".join(_CODES.get(one.size, f"{one.size}s") for one in self.fields))

    def values(self, data: Buffer) -> dict[str, int]:
        """Read the fields, all of them numbers, of a datagram that is long enough."""
        return {one.name: int.from_bytes(data[one.offset : one.end], "big") for one in self.fields}

    def encoded(self, packet: object) -> bytes:
        """Return the bytes from `start` on of a packet that has the fields, all of them numbers, as attributes."""
        return b"".join([int(getattr(packet, one.name)).to_bytes(one.size, "big") for one in self.fields])

    def dtype(self) -> list[tuple[str, str]]:
        """Return the fields as numpy describes them."""
        return [(one.name, f">u{one.size}") for one in self.fields]
