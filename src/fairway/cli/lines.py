"""Lines of standard input, read by a thread, as fast as they are taken and no faster."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import suppress

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
        """Takes bytes and returns the lines that end in them."""
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
        """Bounded by the room."""
        self._room = threading.Semaphore(CHUNKS_AHEAD_MAX)

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        threading.Thread(target=self._pump, name="lines", daemon=True).start()
        while (lines := await self._arrived.get()) is not None:
            if isinstance(lines, OSError):
                raise lines
            yield lines
            self._room.release()

    def _pump(self) -> None:
        with suppress(RuntimeError):  # the loop may be gone
            try:
                while chunk := os.read(self._descriptor, CHUNK_BYTES):
                    self._hand_over(self._splitter.feed(chunk))
                self._hand_over(self._splitter.end())
            except OSError as error:
                named = OSError(error.errno, error.strerror, "standard input")
                self._loop.call_soon_threadsafe(self._arrived.put_nowait, named)
            else:
                self._loop.call_soon_threadsafe(self._arrived.put_nowait, None)

    def _hand_over(self, lines: list[bytes]) -> None:
        if lines:
            self._room.acquire()
            self._loop.call_soon_threadsafe(self._arrived.put_nowait, lines)
