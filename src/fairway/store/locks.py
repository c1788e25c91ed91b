"""One writer at a time: a lock on a file, which ends with the process that holds it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from fairway.core.errors import FairwayError


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
