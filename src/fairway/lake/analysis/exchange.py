"""How `fairway analyze` puts folders in the place of others in one step, and who may: until captures are Delta tables.

Whoever writes takes the table's lock, writes to a folder below `staging/`, and then publishes: single files by
`publish_file`, a whole partition by `exchange_folder`. Both sync what they move before it gets its name, so that a
reader finds complete files at every moment, also after a power cut. Nothing below `staging/` is ever read by others.

The lock is held by this process (flock: gone with the process) and also by the JVM: after kill -9 of Python the JVM
lives about half a second more, and what it still writes must not meet a successor.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairway.core import layout
from fairway.store.files import make_folder, sync
from fairway.store.lakes import Lake, TableBusy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORPHAN_WAIT_S = 30.0
"""How long to wait for the JVM of a killed predecessor: usually half a second, longer if it is swapped out."""

PLAN = ".plan"
"""Ends the name of a note about an exchange in two steps, beside the staged folder."""

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


def fresh_staging(lake: Lake, owner: str) -> Path:
    """Gives an empty folder to write in, for the holder of the lock of that name.

    What an earlier run left there goes away; an exchange that it did not finish is finished.
    """
    folder = lake.path / layout.STAGING / owner
    if folder.exists():
        _finish_exchanges(lake, folder)
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder


def _finish_exchanges(lake: Lake, folder: Path) -> None:
    for plan in sorted(folder.rglob(f"*{PLAN}")):
        staged, target = plan.with_suffix(""), lake.path / plan.read_text()
        if staged.exists() and not target.exists():
            os.rename(staged, target)
            sync(target.parent)


@contextmanager
def locked(lake: Lake, table: str, holder: str) -> Iterator[TableLock]:
    """Holds a table for writing; `holder` is what others are told ("fairway analyze")."""
    with lake.lock(table, holder):
        lock = TableLock(lake.path / layout.LOCKS, table)
        try:
            yield lock
        finally:
            lock.release()


class TableLock:
    """What the JVM holds of a table's lock, until it is released or the JVM is gone."""

    def __init__(self, folder: Path, table: str) -> None:
        self.table = table
        self.orphans = folder / f"{table}.jvm"
        """Locked by the JVM: whoever gets the first lock waits for this one."""
        self._held_by_jvm: Any = None
        self._wait_for_orphans()

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
