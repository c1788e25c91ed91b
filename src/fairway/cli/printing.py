"""Standard output that never holds up the loop: a reader that is slow must not make heartbeats late.

A file takes whatever it is given. Everything else may make its writer wait, so a thread writes there: the caller waits
for it, and the loop does not.
"""

from __future__ import annotations

import asyncio
import errno
import os
import queue
import stat
import sys
import threading
import time
from contextlib import suppress

FINISH_S = 1.0
"""How long a write that has begun may take after the command was told to end."""

RETRY_S = 0.01


class Printer:
    """Writes whole pieces to standard output, in order."""

    def __init__(self) -> None:
        if sys.stdout is None:
            raise OSError(errno.EBADF, "it is closed", "standard output")
        sys.stdout.flush()
        self._descriptor = sys.stdout.fileno()
        self._never_waits = stat.S_ISREG(os.fstat(self._descriptor).st_mode)
        self._pieces: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] | None = None
        """What the thread writes, once there is one."""
        self.terminal = os.isatty(self._descriptor)

    async def write(self, piece: bytes) -> None:
        """Returns when the piece is with the operating system; raises `BrokenPipeError` when nobody reads any more."""
        if self._never_waits:
            self._write(piece)
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._aside().put((piece, done))
        try:
            await asyncio.shield(done)
        except asyncio.CancelledError:
            await asyncio.wait([done], timeout=FINISH_S)
            raise

    def _write(self, piece: bytes) -> None:
        left = memoryview(piece)
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:  # somebody who shares it made it non-blocking
                time.sleep(RETRY_S)

    def _aside(self) -> queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]]:
        if self._pieces is None:
            self._pieces = queue.SimpleQueue()
            work = (self._pieces, asyncio.get_running_loop())
            threading.Thread(target=self._work, args=work, name="printing", daemon=True).start()
        return self._pieces

    def _work(
        self, pieces: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]], loop: asyncio.AbstractEventLoop
    ) -> None:
        with suppress(RuntimeError):  # the loop may be gone
            while True:
                piece, done = pieces.get()
                error: OSError | None = None
                try:
                    self._write(piece)
                except OSError as found:
                    error = found
                loop.call_soon_threadsafe(_settle, done, error)


def _settle(done: asyncio.Future[None], error: OSError | None) -> None:
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(None)
