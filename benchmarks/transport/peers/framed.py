"""Messages and bulk over one stream in each direction, for TCP and for QUIC.

A transfer begins with its size. Messages carry their length in front; the receiver answers with how many units have
come, after each read, and each answer settles the futures of the messages it covers.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import AsyncIterator

from benchmarks.transport.loads import Load, send_each
from benchmarks.transport.pattern import (
    BATCHES_IN_FLIGHT,
    BLOCK,
    BLOCK_BYTES,
    NUMBER_BYTES,
    Reception,
    StreamCheck,
    batch_messages,
    cycle,
    number_bytes,
)

READ_BYTES = 1 << 18
IN_FLIGHT_BYTES = 32 * BLOCK_BYTES
CONFIRM_BYTES = 4 * BLOCK_BYTES
_LENGTH = struct.Struct(">I")


def frame(body: bytes) -> bytes:
    """Put the length in front."""
    return _LENGTH.pack(len(body)) + body


class FramedSender:
    """Sends over a stream. Who opens it gives a reader, a writer, and what would close both if it were collected."""

    def __init__(
        self, load: Load, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, owner: object = None
    ) -> None:
        self._load = load
        self._owner = owner
        self._writer = writer
        self._confirmed = 0
        self._sent = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._room = asyncio.Event()
        self._cycle = [frame(body) for body in cycle(load.message_bytes)] if load.kind == "batches" else []
        self._reading = asyncio.create_task(self._read(reader))
        self._reading.add_done_callback(lambda _: self._room.set())  # whoever waits sees that it is over

    async def _read(self, reader: asyncio.StreamReader) -> None:
        rest = b""
        while data := await reader.read(READ_BYTES):
            data = rest + data
            whole = len(data) // NUMBER_BYTES * NUMBER_BYTES
            rest = data[whole:]
            if whole:
                self._confirm(int.from_bytes(data[whole - NUMBER_BYTES : whole], "big"))

    def _confirm(self, count: int) -> None:
        waiting = self._waiting
        if waiting:
            for _ in range(count - self._confirmed):
                waiting.popleft().set_result(None)
        self._confirmed = count
        self._room.set()

    async def _until(self, confirmed: int) -> None:
        while self._confirmed < confirmed:
            self._room.clear()
            if self._reading.done():
                raise ConnectionError("the receiver went away")
            await self._room.wait()

    async def begin(self, size: int) -> None:
        self._confirmed = 0
        header = number_bytes(size)
        self._writer.write(header if self._load.kind == "bulk" else frame(header))

    async def bulk(self, size: int) -> None:
        await self.begin(size)
        for sent in range(0, size, BLOCK_BYTES):
            await self._until(sent + BLOCK_BYTES - IN_FLIGHT_BYTES)
            self._writer.write(BLOCK)
            await self._writer.drain()
        await self._until(size)

    async def awaited(self, count: int) -> None:
        await self.begin(count)
        await send_each([self.send], count, self._load.message_bytes)

    def send(self, body: bytes) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._writer.write(frame(body))
        return future

    async def batches(self, count: int) -> None:
        await self.begin(count)
        size, sent = batch_messages(self._load.message_bytes), 0
        while sent < count:
            await self._until(sent + size - BATCHES_IN_FLIGHT * size)
            first = sent % len(self._cycle)
            batch = self._cycle[first : first + min(size, count - sent)]
            self._writer.write(b"".join(batch))
            sent += len(batch)
        await self._until(count)

    async def ping(self, body: bytes) -> None:
        self._confirmed = 0
        await self.send(body)


async def receive(
    load: Load,
    reception: Reception,
    failed: asyncio.Future[None],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Receive from a stream to its end, compare and confirm."""
    try:
        if load.kind == "bulk":
            await _receive_bulk(reception, reader, writer)
            return
        async for bodies in frames(reader):
            confirmed = reception.take(bodies)
            if confirmed is not None:
                writer.write(number_bytes(confirmed))
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()  # the sender has what it wanted, or says itself what is wrong
    except Exception as error:
        failed.set_exception(error)


async def _receive_bulk(reception: Reception, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        reception.take([await reader.readexactly(NUMBER_BYTES)])
        while not reception.complete:
            data = await reader.read(READ_BYTES)
            if not data:
                return
            confirmed = reception.take([data])
            if confirmed is not None:
                writer.write(number_bytes(confirmed))


def reception_of(load: Load) -> Reception:
    return Reception(load, StreamCheck, CONFIRM_BYTES) if load.kind == "bulk" else Reception(load)


async def frames(reader: asyncio.StreamReader) -> AsyncIterator[list[bytes]]:
    """Cut a stream into messages; return those of each read."""
    rest = b""
    while data := await reader.read(READ_BYTES):
        if rest:
            data = rest + data
        bodies, position, end = [], 0, len(data)
        while end - position >= _LENGTH.size:
            start = position + _LENGTH.size
            (size,) = _LENGTH.unpack_from(data, position)
            if end - start < size:
                break
            position = start + size
            bodies.append(data[start:position])
        rest = data[position:]
        if bodies:
            yield bodies
