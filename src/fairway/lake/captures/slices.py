"""A file of records in slices: Arrow streams one after the other, and at the end a list of where each lies.

    stream │ stream │ ... │ index, JSON │ its length, 8 bytes │ MAGIC

A stream holds records of one slice, a slice may have several. Parquet takes several times as long for the same rows, to
be written and to be read, and nobody else reads these.
"""

from __future__ import annotations

import json
import os
from collections.abc import Container, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, NamedTuple
from zlib import crc32

import pyarrow as pa

from fairway.core.errors import FairwayError

SUFFIX = ".slices"
MAGIC = b"FWSLICES"
LENGTH_BYTES = 8
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


class DamagedSlices(FairwayError):
    """A file of the lake is not what was written; the message names it."""


class Stream(NamedTuple):
    """Where records of a slice lie in a file, and the CRC-32 of the bytes there."""

    slice: int
    offset: int
    length: int
    rows: int
    crc: int


class Writer:
    """Writes one file, which gets its name when it is complete. A file of no records is never made."""

    def __init__(self, path: Path, slices: int) -> None:
        self._path = path
        self._slices = slices
        self._streams: list[Stream] = []
        self._file: BinaryIO | None = None

    def write(self, number: int, rows: pa.Table) -> None:
        """Adds records of a slice."""
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self._unnamed, "wb")  # noqa: SIM115 - it is written to over many calls
        sink = BytesIO()
        with pa.ipc.new_stream(sink, rows.schema, options=_OPTIONS) as stream:
            stream.write_table(rows.combine_chunks())
        data = sink.getbuffer()
        self._streams.append(Stream(number, self._file.tell(), len(data), len(rows), crc32(data)))
        self._file.write(data)

    def close(self) -> None:
        """Completes the file."""
        if self._file is None:
            return
        index = json.dumps({"slices": self._slices, "streams": self._streams}).encode()
        with self._file as file:
            file.write(index + len(index).to_bytes(LENGTH_BYTES) + MAGIC)
        os.replace(self._unnamed, self._path)

    @property
    def _unnamed(self) -> str:
        return f"{self._path}.{os.getpid()}"


class Slices:
    """A file that is read; use it as a context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open(path, "rb")  # noqa: SIM115 - `__exit__` closes it
        try:
            index = json.loads(self._index())
            self.slices: int = index["slices"]
            self.streams = [Stream(*fields) for fields in index["streams"]]
        except (ValueError, OSError, KeyError, TypeError) as error:
            self._file.close()
            raise self._damaged() from error

    def __enter__(self) -> Slices:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _index(self) -> bytes:
        tail = LENGTH_BYTES + len(MAGIC)
        end = self._file.seek(0, os.SEEK_END)
        self._file.seek(max(0, end - tail))
        length, magic = self._file.read(LENGTH_BYTES), self._file.read()
        if magic != MAGIC:
            raise ValueError("the end of the file is not there")
        self._file.seek(end - tail - int.from_bytes(length))
        return self._file.read(int.from_bytes(length))

    def rows(self, numbers: Container[int]) -> int:
        """Gives how many records these slices have, as the index says."""
        return sum(stream.rows for stream in self.streams if stream.slice in numbers)

    def read(self, number: int, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Gives the records of a slice, stream by stream; of some columns only, if they are named."""
        for stream in self.streams:
            if stream.slice == number:
                self._file.seek(stream.offset)
                data = self._file.read(stream.length)
                if crc32(data) != stream.crc:
                    raise self._damaged()
                yield _read(data, columns)

    def _damaged(self) -> DamagedSlices:
        return DamagedSlices(f"{self._path} is damaged: remove its folder and analyze the capture again.")


def _read(data: bytes, columns: Sequence[str] | None) -> pa.Table:
    fields = None
    if columns is not None:
        with pa.ipc.open_stream(data) as reader:
            fields = [reader.schema.get_field_index(name) for name in columns]
    options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
    with pa.ipc.open_stream(data, options=options) as reader:
        return reader.read_all()
