"""A place: a folder, or a prefix in an object store. Whoever reads or writes below a lake goes through one.

On a folder everything that is written is synced; an object store keeps what it has accepted. Names are relative and
have `/` between their parts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fairway.core.errors import BadOption
from fairway.store.files import make_folder, publish_file, sync

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")


class File(NamedTuple):
    """What is known of a file below a place."""

    size_bytes: int
    changed_s: float


@dataclass(frozen=True, slots=True)
class Place:
    """A folder or a prefix, by its absolute path or its address."""

    uri: str

    def __truediv__(self, name: str) -> Place:
        return Place(f"{self.uri}/{name}")

    def __str__(self) -> str:
        return self.uri

    @property
    def is_folder(self) -> bool:
        """Whether this is a folder of a mounted file system."""
        return "://" not in self.uri

    @property
    def folder(self) -> Path:
        """The folder; only where there is one."""
        assert self.is_folder, self.uri
        return Path(self.uri)

    def storage_options(self) -> dict[str, str]:
        """Return what delta-rs is told about the store, beside what it reads from the environment."""
        return {}

    def filesystem(self) -> tuple[Any, str]:
        """Return Arrow's file system for this place, and the path of the place in it."""
        from pyarrow import fs

        found, path = fs.FileSystem.from_uri(self.uri) if not self.is_folder else (fs.LocalFileSystem(), self.uri)
        return found, path

    def exists(self) -> bool:
        """Whether there is anything here."""
        return self.folder.exists() if self.is_folder else bool(self.names())

    def names(self) -> list[str]:
        """List what lies directly below; nothing if the place is not there."""
        if self.is_folder:
            return sorted(os.listdir(self.folder)) if self.folder.is_dir() else []
        from pyarrow import fs

        filesystem, path = self.filesystem()
        return sorted(info.base_name for info in filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True)))

    def file(self, name: str) -> File:
        """Return the size and the time of a file; raise `FileNotFoundError`."""
        if self.is_folder:
            found = os.stat(self.folder / name)
            return File(found.st_size, found.st_mtime)
        filesystem, path = self.filesystem()
        info = filesystem.get_file_info(f"{path}/{name}")
        if not info.is_file:
            raise FileNotFoundError(f"{self}/{name}")
        return File(info.size, info.mtime_ns / 1e9)

    def read(self, name: str) -> bytes:
        """Return the bytes of a file; raise `FileNotFoundError`."""
        if self.is_folder:
            return (self.folder / name).read_bytes()
        with self.open(name) as file:
            return bytes(file.read())

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
        """Give a file that was written aside on this machine its name here, in one step."""
        publish_file(aside, self.folder / name, points=points)

    def remove(self, name: str) -> None:
        """Remove a file that need not be there."""
        if self.is_folder:
            (self.folder / name).unlink(missing_ok=True)
            return
        filesystem, path = self.filesystem()
        filesystem.delete_file(f"{path}/{name}")

    def sync(self, name: str) -> None:
        """Force a file and its name to the disk, where there is one."""
        if self.is_folder:
            sync(self.folder / name)
            sync((self.folder / name).parent)


def place_of(where: object) -> Place:
    """Return the place that a path, or a file: address, names; raise `BadOption` for an address of another kind.

    A `Path` made of `s3://bucket/lake` is `s3:/bucket/lake`, a folder like any other: so one slash is enough.
    """
    found = _ADDRESS.match(str(where))
    if found is None:
        return Place(str(Path(str(where)).absolute()))
    if found[1].lower() == "file":
        return Place(f"/{str(where)[found.end() :]}")
    raise BadOption(
        f"{where} is an address of {found[1]}: a lake is a folder on a file system that every node mounts, "
        "so mount it and name the folder."
    )
