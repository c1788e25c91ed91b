"""Bytes that are taken from the front: held whole in memory, or fetched from a caller's `read` as needed."""

from __future__ import annotations

from collections.abc import Callable

from fairway.core.errors import DamagedCapture

Read = Callable[[int], bytes]
"""Gives up to so many bytes, and none at the end, as a file's `read` does."""

RECORD_BYTES_MAX = 16 << 20
"""The longest record that is believed: a damaged length must not make a reader ask for gigabytes."""


class Source:
    """Hands out exact runs of bytes in order and knows how far it has come."""

    __slots__ = ("_ahead", "_read", "offset")

    def __init__(self, source: bytes | Read) -> None:
        self._read = _from_bytes(source) if isinstance(source, bytes) else source
        self._ahead = b""
        self.offset = 0

    def take(self, count: int, what: str) -> bytes:
        """Gives exactly `count` bytes; raises `DamagedCapture` when the capture ends before."""
        data = self._fetch(count)
        if len(data) < count:
            raise DamagedCapture(f"the capture ends at byte {self.offset + len(data)}, in the middle of {what}")
        self.offset += count
        return data

    def peek(self, count: int) -> bytes:
        """Gives the next `count` bytes, or fewer at the end, without taking them."""
        self._ahead = self._fetch(count)
        return self._ahead

    def read(self, count: int) -> bytes:
        """Gives up to `count` bytes, and none at the end: a source is a `Read` of its own."""
        data = self._fetch(count)
        self.offset += len(data)
        return data

    @property
    def exhausted(self) -> bool:
        """Tells whether nothing follows."""
        return not self.peek(1)

    def _fetch(self, count: int) -> bytes:
        """A `read` may give less than it was asked for before the end; only an empty answer is the end."""
        pieces = [self._ahead[:count]]
        self._ahead = self._ahead[count:]
        missing = count - len(pieces[0])
        while missing > 0 and (piece := self._read(missing)):
            pieces.append(piece)
            missing -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _from_bytes(data: bytes) -> Read:
    position = 0

    def read(count: int) -> bytes:
        nonlocal position
        piece = data[position : position + count]
        position += len(piece)
        return piece

    return read
