"""Rows of the journal's `messages`, read off SQLite's pages without the tree above them.

A tree with one damaged page hides what lies below it, and with a damaged first page everything. The rows themselves
stand on leaf pages, each of which can be read alone:

    leaf     0x0D, first free block, cells, begin of the cells (16 bits each), free bytes (8); 16 bits for each cell
    cell     size of the record, row id (varints), the record, the number of a page where it goes on
    record   size of its header, a type for each column (varints), the values

A page that is no longer in use may still show rows, but only such as were removed after sealing: their offsets are
below where the salvage begins. What does not fit the columns in every way is not taken for a row.
"""

from __future__ import annotations

import mmap
import struct
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from fairway.core.tables import PROTOCOLS

LEAF = 0x0D
KINDS = ("message", "plain", "request")
INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)
"""By the type of a column."""
FIXED = {8: 0, 9: 1}
FIELDS: tuple[tuple[type, ...], ...] = (
    (type(None),), (int,), (str,), (str,), (int, type(None)), (int, str), (str,), (int,), (int,), (int, type(None)),
    (bytes, type(None)), (bytes,), (str, type(None)), (int, type(None)),
)  # fmt: skip
"""What stands in each column; the first is the row id, which stands in front of the record."""
COLUMNS = (len(FIELDS) - 1, len(FIELDS))
"""A row of version 1 has no checksum."""

Values = tuple[Any, ...]


class Pages:
    """The pages of a file, some of them in a newer version out of the log."""

    def __init__(self, path: Path, page_bytes: int, newer: Mapping[int, bytes]) -> None:
        self._size = page_bytes
        self._newer = newer
        with open(path, "rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __enter__(self) -> Pages:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._data.close()

    def messages(self) -> Iterator[Values]:
        """Gives every row that can be read, some perhaps twice."""
        for number in range(1, max([len(self._data) // self._size, *self._newer]) + 1):
            page = self._page(number)
            yield from self.messages_on(page)

    def _page(self, number: int) -> bytes:
        newer = self._newer.get(number)
        return self._data[(number - 1) * self._size : number * self._size] if newer is None else newer

    def messages_on(self, page: bytes) -> Iterator[Values]:
        """Gives the rows on one page, or nothing if it is of another kind."""
        cells = int.from_bytes(page[3:5], "big")
        if page[:1] != bytes([LEAF]) or 8 + 2 * cells > self._size or len(page) < self._size:
            return
        for (begin,) in struct.iter_unpack(">H", page[8 : 8 + 2 * cells]):
            try:
                size, at = _varint(page, begin)
                offset, at = _varint(page, at)
                values = _values(self._record(page, at, size))
            except (IndexError, ValueError):
                continue
            if _is_message(values):
                yield offset, *values[1:]

    def _record(self, page: bytes, at: int, size: int) -> bytes:
        """Gives a record, which goes on on other pages if it is long."""
        local = _local(size, self._size)
        record = bytearray(page[at : at + local])
        if local < size:
            number = int.from_bytes(page[at + local : at + local + 4], "big")
            while len(record) < size and number:
                more = self._page(number)
                number = int.from_bytes(more[:4], "big")
                record += more[4:]
                if len(more) < self._size:
                    break
            if number:
                raise ValueError("the record goes on behind its end")
            del record[size:]
        if len(record) != size:
            raise ValueError("the record is not whole")
        return bytes(record)


def _local(size: int, page_bytes: int) -> int:
    """Gives how many bytes of a record are on the page itself."""
    if size <= page_bytes - 35:
        return size
    least = (page_bytes - 12) * 32 // 255 - 23
    wanted = least + (size - least) % (page_bytes - 4)
    return wanted if wanted <= page_bytes - 35 else least


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Reads a number of one to nine bytes; gives it, and where it ends."""
    value = 0
    for place in range(at, at + 8):
        value = value << 7 | data[place] & 0x7F
        if data[place] < 0x80:
            return value, place + 1
    return value << 8 | data[at + 8], at + 9


def _values(record: bytes) -> Values:
    end, at = _varint(record, 0)
    values: list[Any] = []
    begin = end
    while at < end:
        kind, at = _varint(record, at)
        value, begin = _value(record, kind, begin)
        values.append(value)
    if at != end or begin != len(record):
        raise ValueError("the record's header does not fit")
    return tuple(values)


def _value(record: bytes, kind: int, at: int) -> tuple[Any, int]:
    if kind == 0:
        return None, at
    if kind in FIXED:
        return FIXED[kind], at
    if kind < len(INTEGER_BYTES):
        end = at + INTEGER_BYTES[kind]
        return int.from_bytes(record[at:end], "big", signed=True), end
    if kind < 12:
        raise ValueError("the journal has no such values")
    end = at + (kind - 12) // 2
    piece = record[at:end]
    return (piece.decode() if kind % 2 else piece), end


def _is_one(value: object, types: tuple[type, ...]) -> bool:
    return isinstance(value, types)


def _is_message(values: Values) -> bool:
    """Tells whether values are those of a row of `messages`, and agree with one another."""
    if len(values) not in COLUMNS or not all(map(_is_one, values, FIELDS)):
        return False
    count, protocol, kind, size, sizes, body, spool = (values[place] for place in (1, 2, 6, 9, 10, 11, 12))
    if count < 1 or protocol not in PROTOCOLS or kind not in KINDS:
        return False
    if spool is not None:
        return bool(count == 1 and size is not None and not body)
    if sizes is None:
        return bool(size is not None and size * count == len(body))
    return bool(len(sizes) == 4 * count and sum(array("I", sizes)) == len(body))
