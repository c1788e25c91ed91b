"""Capture files: which there are, what each is called by its content, and its bytes as one buffer.

A plain file is mapped into memory. A compressed one is unpacked into a temporary file first: it can only be read from
the front, and a damaged header near its end must not need all of it in memory. Of an object in a store, the range that
is asked for is fetched into a temporary file with holes, where everything has the offset that it has in the object.
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
from fnmatch import fnmatch
from hashlib import blake2b
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

from fairway.core.errors import DamagedCapture
from fairway.store.locations import Location, location_of

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
BEYOND_BYTES = 16 << 20
"""Of an object, so much is fetched behind a range: its last record, and the chain by which one is recognised."""

DAMAGED = "its {} data is damaged"
"""Said where unpacking fails: the front of whole data never makes it fail, so this is no file that was cut off."""
ENDS_EARLY = "its {} data ends early: it is cut off or damaged"
"""Said where unpacking wants more than there is. A damage can look like that too, when it hides the end of the data."""


@dataclass(frozen=True, slots=True)
class CaptureFile:
    """A file as it was when it was listed: what is appended later is not read."""

    path: str
    """Absolute, or an address: tasks and later runs have working folders of their own."""
    size_bytes: int
    compressed: bool

    @property
    def name(self) -> str:
        """The file's name without its folders."""
        return os.path.basename(self.path)

    @property
    def is_object(self) -> bool:
        """Whether it lies in an object store."""
        return is_address(self.path)

    @contextmanager
    def raw(self) -> Iterator[Any]:
        """Open it as it is, as an Arrow file."""
        location, name = _located(self.path)
        with location.open(name) as file:
            yield file


class Span(NamedTuple):
    """When a capture begins and ends, in nanoseconds since 1970."""

    first_ns: int
    last_ns: int


class Capture(NamedTuple):
    """What tables say of the file that a record comes from, and what decides whether another could continue it."""

    file_id: str
    file: str
    payload: bool
    """Whether the heads of its datagrams are whole payloads."""
    span: Span = Span(0, 0)


def is_address(path: str) -> bool:
    """Whether a path is an address in an object store."""
    return path.startswith("s3:")


def _located(path: str) -> tuple[Location, str]:
    """Return where a file lies, and its name there."""
    folder, _, name = location_of(path).uri.rpartition("/")
    return Location(folder), name


def listed(patterns: Iterable[str]) -> list[str]:
    """Return the paths that names, globs and folders stand for, each once and in order.

    A name that stands for nothing is kept: whoever opens it says what is wrong with it.
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        if is_address(pattern):
            found.update(dict.fromkeys(_listed_objects(pattern)))
        elif os.path.isdir(pattern):
            names = sorted(entry for entry in os.listdir(pattern) if entry.endswith(SUFFIXES))
            found.update(dict.fromkeys(os.path.join(pattern, name) for name in names))
        elif os.path.exists(pattern):
            found[pattern] = None
        else:
            found.update(dict.fromkeys(sorted(glob.glob(pattern)) or [pattern]))
    return list(found)


def _listed_objects(pattern: str) -> list[str]:
    location, name = _located(pattern)
    names = location.names()
    if name in names and not any(sign in name for sign in "*?["):
        below = [f"{location / name}/{one}" for one in (location / name).names() if one.endswith(SUFFIXES)]
        return below or [f"{location}/{name}"]
    return [f"{location}/{one}" for one in names if fnmatch(one, name)] or [pattern]


def seen(path: str) -> CaptureFile:
    """Check a file; raise `DamagedCapture` in a sentence if it cannot be a capture."""
    try:
        if is_address(path):
            location, name = _located(path)
            size = location.file(name).size_bytes
            with location.open(name) as file:
                head = file.read(4)
        elif not stat.S_ISREG(os.stat(path).st_mode):
            raise DamagedCapture(f"{path} is no regular file: name a file that a capture was written to.")
        else:
            with open(path, "rb") as file:
                head = file.read(4)
                size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise DamagedCapture(f"{path} cannot be read ({error.strerror}): check the name and the permissions.") from None
    if not head:
        raise DamagedCapture(f"{path} is empty: there is nothing to read.")
    absolute = path if is_address(path) else os.path.abspath(path)
    return CaptureFile(absolute, size, head[:2] == GZIP_MAGIC or head == ZSTD_MAGIC)


def identity(file: CaptureFile) -> str:
    """Return the name of the file's content: the same for a copy under another name, packed or not.

    Of a large file the size, both ends and evenly spread samples are hashed: captures that differ do so in the times of
    nearly every record.
    """
    if file.is_object and not file.compressed:
        with file.raw() as raw:
            return _digest(
                file.size_bytes, (raw.read_at(length, offset) for offset, length in _sampled(file.size_bytes))
            )
    with opened(file) as (data, _):
        return _digest(len(data), (data[offset : offset + length] for offset, length in _sampled(len(data))))


def _digest(size_bytes: int, samples: Iterable[bytes | memoryview]) -> str:
    digest = blake2b(str(size_bytes).encode(), digest_size=16)
    for sample in samples:
        digest.update(sample)
    return digest.hexdigest()


def number_of(file_id: str) -> int:
    """Return an identity as a number; numbers have the order of their identities."""
    return int(file_id[:16], 16) >> 1


def _sampled(size: int) -> list[tuple[int, int]]:
    if size <= WHOLE_BYTES_MAX:
        return [(0, size)]
    between = [(size * number // (SAMPLES + 1), SAMPLE_BYTES) for number in range(1, SAMPLES + 1)]
    return [(0, END_BYTES), *between, (size - END_BYTES, END_BYTES)]


@contextmanager
def opened(file: CaptureFile, start: int = 0, stop: int | None = None) -> Iterator[tuple[memoryview, str | None]]:
    """Yield the file's bytes, unpacked, and what was wrong with the packing, if anything.

    Of a plain object only the first bytes and those from `start` to a while behind `stop` are there.
    """
    if not file.is_object and not file.compressed:
        with open(file.path, "rb") as raw, _mapped(raw, file.size_bytes) as view:
            yield view, None
        return
    with tempfile.TemporaryFile(prefix="fairway-capture-") as held:
        if file.compressed:
            with file.raw() as packed:
                problem = _unpack(packed, held)
            size_bytes = held.tell()
        else:
            problem, size_bytes = None, file.size_bytes
            held.truncate(size_bytes)
            end = size_bytes if stop is None else min(size_bytes, stop + BEYOND_BYTES)
            with file.raw() as plain:
                _fetch(plain, held, 0, min(PIECE_BYTES, size_bytes))
                _fetch(plain, held, start, end)
        held.flush()
        with _mapped(held, size_bytes) as view:
            yield view, problem


def _fetch(source: Any, target: BinaryIO, start: int, end: int) -> None:
    target.seek(start)
    for offset in range(start, end, BEYOND_BYTES):
        target.write(source.read_at(min(BEYOND_BYTES, end - offset), offset))


@contextmanager
def _mapped(file: Any, size: int) -> Iterator[memoryview]:
    if size == 0:
        yield memoryview(b"")
        return
    mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    if hasattr(mapped, "madvise"):
        mapped.madvise(mmap.MADV_SEQUENTIAL)
    # Left to the collector: numpy may still hold views, and closing a map under them would raise.
    yield memoryview(mapped)


def _unpack(packed: Any, unpacked: BinaryIO) -> str | None:
    head = packed.read(4)
    packed.seek(0)
    return _unpack_gzip(packed, unpacked) if head[:2] == GZIP_MAGIC else _unpack_zstd(packed, unpacked)


def _unpack_gzip(packed: Any, unpacked: BinaryIO) -> str | None:
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
    """Unpack what stands before a damage: an error takes with it what the same step has unpacked."""
    with suppress(zlib.error):
        while piece and not member.eof:
            unpacked.write(member.decompress(piece, 1))
            piece = member.unconsumed_tail


def _unpack_zstd(packed: Any, unpacked: BinaryIO) -> str | None:
    try:
        with pa.CompressedInputStream(packed, "zstd") as stream:
            while piece := stream.read(PIECE_BYTES):
                unpacked.write(piece)
    except (OSError, pa.ArrowException) as error:
        # Arrow raises one class for both and tells them apart in its words alone.
        return (ENDS_EARLY if "Truncated" in str(error) else DAMAGED).format("zstd")
    return None
