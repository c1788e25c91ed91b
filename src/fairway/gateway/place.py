"""The gateway's folders in the lake, made and checked at the start, and the lock on its journal."""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

from fairway.core import layout
from fairway.core.errors import BadOption
from fairway.core.tables import MESSAGES
from fairway.gateway.errors import JournalInUse, LakeUnusable

LOCK = "lock"
SPOOL = "spool"
SEALED_TO = "sealed-to"
"""A note beside the journal: the last offset that was ever sealed. It outlives the journal, and the segments."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_name(name: str) -> None:
    """Raises `BadOption` unless the name can be that of a folder, and of a gateway in a table."""
    if not _NAME.fullmatch(name):
        raise BadOption(f"the name {name!r} must be letters, digits, '.', '_' and '-', at most 64 of them")


def prepare_lake(lake: Path) -> None:
    """Makes the lake if there is none, and sees that it can be written."""
    try:
        _mark(lake)
        for folder in layout.FOLDERS:
            (lake / folder).mkdir(exist_ok=True)
        sync(lake)
        probe = lake / layout.STAGING / f".probe-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise LakeUnusable(
            f"the lake {lake} cannot be written: {error.strerror}; name another with --lake, or let this user write"
        ) from error


def _mark(lake: Path) -> None:
    marker = lake / layout.MARKER
    if marker.exists():
        version = marker.read_text()
        if version != layout.MARKER_TEXT:
            raise LakeUnusable(f"{lake} has the lake layout {version.strip()!r}; use the Fairway that made it")
        return
    make_folder(lake)
    strange = sorted(name for name in os.listdir(lake) if layout.is_strange(name))
    if strange:
        raise LakeUnusable(f"{lake} is no lake and holds other things ({strange[0]}); name another folder")
    write_note(marker, layout.MARKER_TEXT)


class Place:
    """Where one gateway keeps its things. Only the holder of the lock writes there."""

    def __init__(self, lake: Path, name: str) -> None:
        self.name = name
        self.home = lake / layout.GATEWAYS / name
        self.journal = self.home / layout.JOURNAL
        self.sealed_to = self.home / SEALED_TO
        self.spool = self.home / SPOOL
        self.landing = lake / layout.LANDING / name
        self.staging = lake / layout.STAGING / f"gateway-{name}"
        self.streamed = lake / layout.CHECKPOINTS / MESSAGES.name / "offsets"
        self._lock: int | None = None

    def take(self) -> None:
        """Makes the folders and takes the lock; raises `JournalInUse`."""
        for folder in (self.home, self.spool, self.landing, self.staging):
            folder.mkdir(parents=True, exist_ok=True)
            sync(folder.parent)
        lock = os.open(self.home / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(lock, 32).decode(errors="replace").strip()
            os.close(lock)
            raise JournalInUse(
                f"the journal {self.journal} is in use by process {holder or 'of another gateway'}; stop that one, or "
                f"give this gateway a name of its own with --name"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        self._lock = lock

    def release(self) -> None:
        """Gives the lock back."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def landed(self) -> list[tuple[int, int]]:
        """Lists the ranges of the segments that lie in the landing folder, in order."""
        found = (layout.segment_range(name) for name in os.listdir(self.landing))
        return sorted(one for one in found if one is not None)


def make_folder(folder: Path) -> None:
    """Makes a folder and those above it, so that they are there after a power cut."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def write_note(path: Path, text: str) -> None:
    """Writes a small file that is there whole or not at all, also after a power cut."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(text)
    sync(aside)
    os.replace(aside, path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Forces a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
