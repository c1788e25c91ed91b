"""A location: a folder, or a prefix in an object store. All reads and writes below a lake go through one.

On a folder everything that is written is synced; an object store (`objects.py`) keeps what it has accepted. Names are
relative and have `/` between their parts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fairway.core.errors import BadOption
from fairway.store import crashpoints, objects
from fairway.store.files import make_folder, publish_file, sync, write_file

if TYPE_CHECKING:
    from obstore.store import S3Store

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")


class File(NamedTuple):
    """What is known of a file below a location."""

    size_bytes: int
    changed_s: float


@dataclass(frozen=True, slots=True)
class Location:
    """A folder or a prefix, by its absolute path or its address."""

    uri: str

    def __truediv__(self, name: str) -> Location:
        return Location(f"{self.uri}/{name}")

    def __str__(self) -> str:
        return self.uri

    @property
    def is_folder(self) -> bool:
        """Whether this is a folder of a mounted file system."""
        return "://" not in self.uri

    @property
    def folder(self) -> Path:
        """The folder; raise `BadOption` where there is none."""
        if not self.is_folder:
            raise BadOption(f"{self} is in an object store: this needs a folder on a file system.")
        return Path(self.uri)

    @contextmanager
    def _object(self, name: str = "") -> Iterator[tuple[S3Store, str]]:
        """Return the bucket's client, and the key of what has a name here; what the client raises becomes `OSError`."""
        bucket, _, prefix = self.uri.removeprefix("s3://").partition("/")
        key = f"{prefix}/{name}".strip("/")
        with objects.as_os_errors(f"s3://{bucket}/{key}"):
            yield objects.bucket_store(bucket), key

    def filesystem(self) -> tuple[Any, str]:
        """Return Arrow's file system for this location, and the path of the location in it."""
        from pyarrow import fs

        if self.is_folder:
            return fs.LocalFileSystem(), self.uri
        return objects.arrow_filesystem(), self.uri.removeprefix("s3://")

    def exists(self) -> bool:
        """Whether there is anything here."""
        return self.folder.exists() if self.is_folder else bool(self.names())

    def names(self, after: str = "") -> list[str]:
        """List what lies directly below, behind a name if one is given; nothing if the location is not there."""
        if self.is_folder:
            return sorted(name for name in os.listdir(self.folder) if name > after) if self.folder.is_dir() else []
        with self._object() as (store, key):
            if after:  # asked for as such: a store lists from a name on
                listed = store.list(key, offset=f"{key}/{after}")
                paths = [str(one["path"])[len(key) + 1 :] for chunk in listed for one in chunk]
                return sorted(path for path in paths if "/" not in path)
            found = store.list_with_delimiter(key)
            paths = [*found["common_prefixes"], *(one["path"] for one in found["objects"])]
            return sorted(path.rpartition("/")[2] for path in paths)

    def file(self, name: str) -> File:
        """Return the size and the time of a file; raise `FileNotFoundError`."""
        if self.is_folder:
            found = os.stat(self.folder / name)
            return File(found.st_size, found.st_mtime)
        with self._object(name) as (store, key):
            head = store.head(key)
            return File(head["size"], head["last_modified"].timestamp())

    def read(self, name: str) -> bytes:
        """Return the bytes of a file; raise `FileNotFoundError`."""
        if self.is_folder:
            return (self.folder / name).read_bytes()
        with self._object(name) as (store, key):
            return bytes(store.get(key).bytes())

    @contextmanager
    def open(self, name: str) -> Iterator[Any]:
        """Open a file for reading at any offset, as an Arrow file; raise `FileNotFoundError`."""
        filesystem, path = self.filesystem()
        with filesystem.open_input_file(f"{path}/{name}") as file:
            yield file

    @contextmanager
    def create(self, name: str) -> Iterator[Any]:
        """Open a new file for writing, as an Arrow stream; it is durable after the block."""
        if self.is_folder:
            make_folder((self.folder / name).parent)
        filesystem, path = self.filesystem()
        with filesystem.open_output_stream(f"{path}/{name}") as file:
            yield file
        self.sync(name)

    def publish(self, aside: Path, name: str, *, points: tuple[str, str] = ("", "")) -> None:
        """Give a file that was written aside on this machine its name here, in one step.

        In a folder it is renamed, and replaces what has the name; an object store refuses that, with `FileExistsError`.
        """
        if self.is_folder:
            publish_file(aside, self.folder / name, points=points)
            return
        crashpoints.reached(points[0])
        self._put(name, aside)
        crashpoints.reached(points[1])

    def write(self, name: str, content: str) -> None:
        """Write a small file; an object store refuses to replace one, with `FileExistsError`."""
        if self.is_folder:
            write_file(self.folder / name, content)
        else:
            self._put(name, content.encode())

    def _put(self, name: str, content: bytes | Path) -> None:
        """Store an object in one PUT, on condition that there is none of that name."""
        with self._object(name) as (store, key):
            store.put(key, content, mode="create", use_multipart=False)

    def remove(self, name: str) -> None:
        """Remove a file that need not be there."""
        if self.is_folder:
            (self.folder / name).unlink(missing_ok=True)
            return
        with self._object(name) as (store, key):
            store.delete(key)

    def sync(self, name: str) -> None:
        """Force a file and its name to the disk, where there is one."""
        if self.is_folder:
            sync(self.folder / name)
            sync((self.folder / name).parent)


def location_of(where: object) -> Location:
    """Return the location that a path, or an address of file: or s3:, names; raise `BadOption` for any other.

    A `Path` made of `s3://bucket/lake` is `s3:/bucket/lake`, a folder like any other: so one slash is enough.
    """
    found = _ADDRESS.match(str(where))
    if found is None:
        return Location(str(Path(str(where)).absolute()))
    kind, rest = found[1].lower(), str(where)[found.end() :].rstrip("/")
    if kind == "file":
        return Location(f"/{rest}")
    if kind == "s3" and rest.partition("/")[2]:
        return Location(f"s3://{rest}")
    if kind == "s3":
        raise BadOption(f"{where} names a whole bucket: a lake has a prefix of its own, such as s3://{rest}/lake.")
    raise BadOption(
        f"{where} is an address of {found[1]}: a lake is a folder on a file system that every node mounts, or "
        "s3://bucket/prefix."
    )
