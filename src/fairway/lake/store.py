"""The lake's folder, and the one way in which anything gets under `tables/`.

Whoever writes takes the table's lock, writes to a folder below `staging/`, and then publishes: single files by
`publish_files`, a whole partition by `exchange_folder`. Both sync what they move before it gets its name, so that a
reader finds complete files at every moment, also after a power cut. Nothing below `staging/` is ever read by others.

A lock is held by this process (flock: gone with the process) and, where Spark works for it, also by the JVM: after
kill -9 of Python the JVM lives about half a second more, and what it still writes must not meet a successor.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairway.core import layout
from fairway.core.errors import FairwayError
from fairway.lake.crashpoints import BETWEEN_RENAMES, EXCHANGED, reach

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORPHAN_WAIT_S = 30.0
"""How long to wait for the JVM of a killed predecessor: usually half a second, longer if it is swapped out."""

PLAN = ".plan"
"""Ends the name of a note about an exchange in two steps, beside the staged folder."""

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


class NotALake(FairwayError):
    """The folder cannot be used as a lake; the message says why."""


class TableBusy(FairwayError):
    """Another process writes to the table."""


class Lake:
    """A lake: its folders, its locks, its staging."""

    def __init__(self, path: Path | str, *, create: bool = True) -> None:
        """Opens the lake, or makes one of an empty or missing folder; a folder with anything else in it is refused."""
        self.path = Path(layout.folder_of(path)).absolute()
        self._check(create)
        for folder in layout.FOLDERS if create else ():
            (self.path / folder).mkdir(exist_ok=True)

    def _check(self, create: bool) -> None:
        marker = self.path / layout.MARKER
        if marker.exists():
            version = marker.read_text()
            if version != layout.MARKER_TEXT:
                raise NotALake(f"{self.path} has the lake layout {version.strip()!r}: use the Fairway that made it.")
            return
        if self.path.exists() and not self.path.is_dir():
            raise NotALake(f"{self.path} is a file: name a folder.")
        found = sorted(os.listdir(self.path)) if self.path.exists() else []
        strange = [name for name in found if layout.is_strange(name)]
        if strange:
            raise NotALake(f"{self.path} is no lake and holds other things ({strange[0]}): name another folder.")
        if not create and not found:
            raise NotALake(f"{self.path} is no lake: fairway gateway, stream and analyze make one.")
        if create:
            make_folder(self.path)
            aside = marker.with_name(f".{marker.name}.{os.getpid()}")
            aside.write_text(layout.MARKER_TEXT)
            publish_file(aside, marker)

    @property
    def landing(self) -> Path:
        """Where gateways put sealed segments."""
        return self.path / layout.LANDING

    @property
    def gateways(self) -> Path:
        """Where gateways keep their journals."""
        return self.path / layout.GATEWAYS

    @property
    def captures(self) -> Path:
        """Where captures lie, read once."""
        return self.path / layout.CAPTURES

    @property
    def tables(self) -> Path:
        """Where anybody may read at any moment."""
        return self.path / layout.TABLES

    @property
    def checkpoints(self) -> Path:
        """Where Spark notes how far a stream is."""
        return self.path / layout.CHECKPOINTS

    def table(self, name: str) -> Path:
        """Gives the folder of a table."""
        return self.tables / name

    def fresh_staging(self, owner: str) -> Path:
        """Gives an empty folder to write in, for the holder of the lock of that name.

        What an earlier run left there goes away; an exchange that it did not finish is finished.
        """
        folder = self.path / layout.STAGING / owner
        if folder.exists():
            self._finish_exchanges(folder)
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        return folder

    def _finish_exchanges(self, folder: Path) -> None:
        for plan in sorted(folder.rglob(f"*{PLAN}")):
            staged, target = plan.with_suffix(""), self.path / plan.read_text()
            if staged.exists() and not target.exists():
                os.rename(staged, target)
                sync(target.parent)

    @contextmanager
    def lock(self, table: str, holder: str) -> Iterator[TableLock]:
        """Holds a table for writing; `holder` is what others are told ("fairway stream")."""
        lock = TableLock(self.path / layout.LOCKS, table, holder)
        try:
            yield lock
        finally:
            lock.release()


class TableLock:
    """The right to write to a table, until it is released or this process and its JVM are gone."""

    def __init__(self, folder: Path, table: str, holder: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.table = table
        self.orphans = folder / f"{table}.jvm"
        """Locked by the JVM: whoever gets the first lock waits for this one."""
        self._held_by_jvm: Any = None
        self._descriptor = os.open(folder / f"{table}.lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            self._take(holder)
            self._wait_for_orphans()
        except BaseException:
            os.close(self._descriptor)
            raise

    def _take(self, holder: str) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.pread(self._descriptor, 200, 0).decode(errors="replace").strip() or "another process"
            raise TableBusy(f"{other} writes to the table {self.table}: stop it first, or wait for its end.") from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{holder} (process {os.getpid()})\n".encode(), 0)

    def _wait_for_orphans(self) -> None:
        patience_ends_s = time.monotonic() + ORPHAN_WAIT_S
        with open(self.orphans, "ab") as file:
            while True:
                try:
                    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except (BlockingIOError, PermissionError):
                    if time.monotonic() > patience_ends_s:
                        raise TableBusy(
                            f"The Java process of a killed predecessor still writes to the table {self.table}: "
                            "end it, then try again."
                        ) from None
                    time.sleep(0.05)
                else:
                    return

    def share_with_jvm(self, spark: SparkSession) -> None:
        """Has the JVM hold the lock too, for as long as it lives."""
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        # Python's reference keeps the JVM's: without it the channel could be collected, and the lock with it.
        self._held_by_jvm = jvm.java.io.RandomAccessFile(str(self.orphans), "rw")
        self._held_by_jvm.getChannel().lock()

    def release(self) -> None:
        """Gives the table free."""
        if self._held_by_jvm is not None:
            with suppress(Exception):  # the JVM may be gone, and its lock with it
                self._held_by_jvm.close()
        os.close(self._descriptor)


def sync(path: Path) -> None:
    """Forces a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Makes a folder and those above it, so that they are there after a power cut."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync(folder.parent)


def publish_file(staged: Path, target: Path) -> None:
    """Gives one staged file its name, in place of whatever had it."""
    publish_files([(staged, target)])


def publish_files(moves: Iterable[tuple[Path, Path]]) -> None:
    """Gives staged files their names, each in one step; all of them are on disk before the first is seen."""
    pairs = list(moves)
    for staged, _ in pairs:
        sync(staged)
    for staged, target in pairs:
        make_folder(target.parent)
        os.replace(staged, target)
        reach(BETWEEN_RENAMES)
    for folder in sorted({target.parent for _, target in pairs}):
        sync(folder)


def exchange_folder(staged: Path, target: Path) -> bool:
    """Puts the staged folder in the place of the target in one step, and removes what was there.

    Gives False where the file system cannot do that in one step (NFS, for one): then the target is missing for a
    moment, and a reader in that moment sees fewer rows, never a row twice.
    """
    for path in sorted(staged.rglob("*")):
        sync(path)
    sync(staged)
    make_folder(target.parent)
    at_once = True
    if not target.exists():
        os.rename(staged, target)
    elif _exchange(staged, target):
        _settle(staged, target)
        reach(EXCHANGED)
        shutil.rmtree(staged)
    else:
        at_once = False
        _exchange_in_two_steps(staged, target)
    _settle(staged, target)
    return at_once


def _settle(staged: Path, target: Path) -> None:
    sync(target.parent)
    sync(staged.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Exchanges two names; False if this system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(other))


def _exchange_in_two_steps(staged: Path, target: Path) -> None:
    """Moves the old aside and the new in; the note lets `fresh_staging` finish it after a crash between the two."""
    lake = next(folder for folder in staged.parents if folder.name == layout.STAGING).parent
    plan = staged.with_name(staged.name + PLAN)
    plan.write_text(str(target.relative_to(lake)))
    sync(plan)
    sync(plan.parent)
    aside = staged.with_name(staged.name + ".old")
    os.rename(target, aside)
    os.rename(staged, target)
    _settle(staged, target)
    plan.unlink()
    shutil.rmtree(aside)
