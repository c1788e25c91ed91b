"""Files that are whole or not there, also after a power cut: written aside, synced, renamed, the folder synced.

And locks on files, each of which ends with the process that holds it.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from fairway.core.errors import FairwayError
from fairway.store import crashpoints


def sync(path: Path | str) -> None:
    """Force a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, so that they are there after a power cut."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def publish_file(aside: Path, target: Path, *, points: tuple[str, str] = ("", "")) -> None:
    """Sync a file that was written aside and rename it to its target, in place of whatever had the name.

    `points` are the crash points behind the first two steps.
    """
    sync(aside)
    crashpoints.reached(points[0])
    make_folder(target.parent)
    os.replace(aside, target)
    crashpoints.reached(points[1])
    sync(target.parent)


def write_file(path: Path, content: str | bytes) -> None:
    """Write a small file that is there whole or not at all."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_bytes(content.encode() if isinstance(content, str) else content)
        publish_file(aside, path)
    finally:
        aside.unlink(missing_ok=True)


class Held(FairwayError):
    """Another process holds the lock; the message is what that one wrote into it."""


class FileLock:
    """A lock on a file, held from construction to `release`."""

    def __init__(self, path: Path, holder: str) -> None:
        """Take the lock and write `holder` into it; raise `Held` if another process has it."""
        self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.pread(self._descriptor, 200, 0).decode(errors="replace").strip()
            self.release()
            raise Held(other) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, holder.encode(), 0)

    def release(self) -> None:
        """Let others take it. Twice is fine."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
