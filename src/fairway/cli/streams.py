"""Standard output and input beside the loop: neither a slow reader nor a slow writer may make heartbeats late.

A file takes whatever it is given. Everything else may make its writer wait, so a thread writes there: the caller waits
for it, and the loop does not. Lines of standard input are read by a thread, as fast as they are taken and no faster.
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
from collections.abc import AsyncIterator
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
        """Return when the piece is with the operating system; raise `BrokenPipeError` when nobody reads any more."""
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


CHUNK_BYTES = 1 << 18
CHUNKS_AHEAD_MAX = 4


class Splitter:
    """Cuts a stream of bytes at its line feeds. Of a line beyond the bound one byte too many is kept, which is enough
    to see that it is too long."""

    def __init__(self, line_bytes_max: int) -> None:
        self._room_bytes_max = line_bytes_max + 1
        self._pieces: list[bytes] = []
        self._kept_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take bytes and return the lines that end in them."""
        first, *others = chunk.split(b"\n")
        self._keep(first)
        if not others:
            return []
        lines = [self._line(), *(line[: self._room_bytes_max] for line in others[:-1])]
        self._keep(others[-1])
        return lines

    def end(self) -> list[bytes]:
        """Return the last line, if the stream did not end with a line feed."""
        return [self._line()] if self._kept_bytes else []

    def _keep(self, piece: bytes) -> None:
        piece = piece[: self._room_bytes_max - self._kept_bytes]
        if piece:
            self._pieces.append(piece)
            self._kept_bytes += len(piece)

    def _line(self) -> bytes:
        line = b"".join(self._pieces)
        self._pieces.clear()
        self._kept_bytes = 0
        return line


class Lines:
    """Iterates over lists of lines, each without its line feed."""

    def __init__(self, descriptor: int, line_bytes_max: int) -> None:
        self._descriptor = descriptor
        self._splitter = Splitter(line_bytes_max)
        self._loop = asyncio.get_running_loop()
        self._arrived: asyncio.Queue[list[bytes] | OSError | None] = asyncio.Queue()
        """Bounded by the semaphore."""
        self._room = threading.Semaphore(CHUNKS_AHEAD_MAX)

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        threading.Thread(target=self._read, name="lines", daemon=True).start()
        while (lines := await self._arrived.get()) is not None:
            if isinstance(lines, OSError):
                raise lines
            yield lines
            self._room.release()

    def _read(self) -> None:
        with suppress(RuntimeError):  # the loop may be gone
            try:
                while chunk := os.read(self._descriptor, CHUNK_BYTES):
                    self._put(self._splitter.feed(chunk))
                self._put(self._splitter.end())
            except OSError as error:
                named = OSError(error.errno, error.strerror, "standard input")
                self._loop.call_soon_threadsafe(self._arrived.put_nowait, named)
            else:
                self._loop.call_soon_threadsafe(self._arrived.put_nowait, None)

    def _put(self, lines: list[bytes]) -> None:
        if lines:
            self._room.acquire()
            self._loop.call_soon_threadsafe(self._arrived.put_nowait, lines)
