"""Capture files: which there are, what each is called by its content, and its bytes as one buffer.

A plain file is mapped into memory. A compressed one is unpacked into a temporary file first: it can only be read from
the front, and a damaged header near its end must not need all of it in memory.
"""

from __future__ import annotations

import glob
import mmap
import os
import stat
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import BinaryIO

import pyarrow as pa

from fairway.core.errors import DamagedCapture

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
SUFFIXES = (".pcap", ".pcapng", ".cap", ".gz", ".zst")
"""What a folder's captures end in; a file that is named itself may be called anything."""

WHOLE_BYTES_MAX = 8 << 20
END_BYTES = 1 << 20
SAMPLES = 64
SAMPLE_BYTES = 32 << 10
PIECE_BYTES = 1 << 20
STEP_BYTES = 256 << 10
"""So much is unpacked at a time."""

DAMAGED = "its {} data is damaged"
"""Said where unpacking fails: the front of whole data never makes it fail, so this is no file that was cut off."""
ENDS_EARLY = "its {} data ends early: it is cut off or damaged"
"""Said where unpacking wants more than there is. A damage can look like that too, when it hides the end of the data."""


@dataclass(frozen=True, slots=True)
class CaptureFile:
    """A file as it was when it was listed: what is appended later is not read."""

    path: str
    size_bytes: int
    compressed: bool

    @property
    def name(self) -> str:
        """The file's name without its folders."""
        return os.path.basename(self.path)


def listed(patterns: Iterable[str]) -> list[str]:
    """Gives the paths that names, globs and folders stand for, each once and in order.

    A name that stands for nothing is kept: whoever opens it says what is wrong with it.
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        if os.path.isdir(pattern):
            names = sorted(entry for entry in os.listdir(pattern) if entry.endswith(SUFFIXES))
            found.update(dict.fromkeys(os.path.join(pattern, name) for name in names))
        elif os.path.exists(pattern):
            found[pattern] = None
        else:
            found.update(dict.fromkeys(sorted(glob.glob(pattern)) or [pattern]))
    return list(found)


def seen(path: str) -> CaptureFile:
    """Looks at a file; raises `DamagedCapture` in a sentence if it cannot be a capture."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise DamagedCapture(f"{path} is no regular file: name a file that a capture was written to.")
        with open(path, "rb") as file:
            head = file.read(4)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise DamagedCapture(f"{path} cannot be read ({error.strerror}): check the name and the permissions.") from None
    if not head:
        raise DamagedCapture(f"{path} is empty: there is nothing to read.")
    return CaptureFile(path, size, head[:2] == GZIP_MAGIC or head == ZSTD_MAGIC)


def identity(file: CaptureFile) -> str:
    """Gives the name of the file's content: the same for a copy under another name, packed or not.

    Of a large file the size, both ends and evenly spread samples are hashed: captures that differ do so in the times of
    nearly every record.
    """
    with opened(file) as (data, _):
        digest = blake2b(str(len(data)).encode(), digest_size=16)
        for offset, length in _sampled(len(data)):
            digest.update(data[offset : offset + length])
    return digest.hexdigest()


def _sampled(size: int) -> list[tuple[int, int]]:
    if size <= WHOLE_BYTES_MAX:
        return [(0, size)]
    between = [(size * number // (SAMPLES + 1), SAMPLE_BYTES) for number in range(1, SAMPLES + 1)]
    return [(0, END_BYTES), *between, (size - END_BYTES, END_BYTES)]


@contextmanager
def opened(file: CaptureFile) -> Iterator[tuple[memoryview, str | None]]:
    """Gives the file's bytes, unpacked, and what was wrong with the packing, if anything."""
    with open(file.path, "rb") as raw:
        if not file.compressed:
            with _mapped(raw, file.size_bytes) as view:
                yield view, None
            return
        with tempfile.TemporaryFile(prefix="fairway-capture-") as unpacked:
            problem = _unpack(raw, unpacked)
            unpacked.flush()
            with _mapped(unpacked, os.fstat(unpacked.fileno()).st_size) as view:
                yield view, problem


@contextmanager
def _mapped(file: BinaryIO, size: int) -> Iterator[memoryview]:
    if size == 0:
        yield memoryview(b"")
        return
    mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    if hasattr(mapped, "madvise"):
        mapped.madvise(mmap.MADV_SEQUENTIAL)
    # Left to the collector: numpy may still hold views, and closing a map under them would raise.
    yield memoryview(mapped)


def _unpack(packed: BinaryIO, unpacked: BinaryIO) -> str | None:
    head = packed.read(4)
    packed.seek(0)
    return _unpack_gzip(packed, unpacked) if head[:2] == GZIP_MAGIC else _unpack_zstd(packed, unpacked)


def _unpack_gzip(packed: BinaryIO, unpacked: BinaryIO) -> str | None:
    """Unpack member after member and keep what came out before a damage; return what was wrong, if anything."""
    member = zlib.decompressobj(31)
    while piece := packed.read(PIECE_BYTES):
        while piece:
            if member.eof:
                piece = piece.lstrip(b"\0")
                member = zlib.decompressobj(31) if piece else member
            before = member.copy()
            try:
                unpacked.write(member.decompress(piece, STEP_BYTES))
            except zlib.error:
                _unpack_to_damage(before, piece, unpacked)
                return DAMAGED.format("gzip")
            piece = member.unconsumed_tail or member.unused_data
    return None if member.eof else ENDS_EARLY.format("gzip")


def _unpack_to_damage(member: zlib._Decompress, piece: bytes, unpacked: BinaryIO) -> None:
    """Unpacks what stands before a damage: an error takes with it what the same step has unpacked."""
    with suppress(zlib.error):
        while piece and not member.eof:
            unpacked.write(member.decompress(piece, 1))
            piece = member.unconsumed_tail


def _unpack_zstd(packed: BinaryIO, unpacked: BinaryIO) -> str | None:
    try:
        with pa.CompressedInputStream(pa.PythonFile(packed, mode="r"), "zstd") as stream:
            while piece := stream.read(PIECE_BYTES):
                unpacked.write(piece)
    except (OSError, pa.ArrowException) as error:
        # Arrow raises one class for both and tells them apart in its words alone.
        return (ENDS_EARLY if "Truncated" in str(error) else DAMAGED).format("zstd")
    return None
