"""A gateway in a process of its own, senders that keep a ledger, and what is found on disk afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pyarrow.parquet as pq

from fairway import net
from fairway.core import layout
from fairway.gateway.journal import open_reader, read_rows
from fairway.store.locations import location_of
from tests.loopback import own_host

PROTOCOLS = ("udpc", "mrp", "rup", "pydevts")
CLIENT = {
    "pydevts": "?repeat_after=1s&packet_repeats_max=39",
    "mrp": "?stall=60s",
    "udpc": "?silence=60s&important_timeout=60s",
    "rup": "?silence=60s",
}
"""All wait longer than usual, because a start takes many seconds on a machine that is busy with other tests; pydevts as
long as its receiver recognises duplicates, 40 s, and with shorter pauses, so that a test ends soon."""
START_S = 120.0
EXIT_S = 120.0


class Running:
    """A gateway process."""

    def __init__(self, process: asyncio.subprocess.Process, urls: list[str]) -> None:
        self.process = process
        self.urls = urls
        self.said: list[str] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.said.append(line.decode().rstrip())

    def url(self, protocol: str) -> str:
        return next(url for url in self.urls if url.startswith(f"{protocol}://"))

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Wait for the end and return the exit code."""
        async with asyncio.timeout(EXIT_S):
            code = await self.process.wait()
            await self._reading
        return code

    async def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return await self.ended()


async def start(
    lake: Path | str,
    urls: Sequence[str],
    *options: str,
    environment: Mapping[str, str] | None = None,
) -> Running:
    """Start a gateway and wait until it listens."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fairway", "gateway", *urls, "--lake", str(lake), *options,
        stderr=asyncio.subprocess.PIPE, env={**os.environ, **(environment or {})},
    )  # fmt: skip
    assert process.stderr is not None
    found: list[str] = []
    others: list[str] = []
    async with asyncio.timeout(START_S):
        while len(found) < len(urls):
            line = (await process.stderr.readline()).decode()
            assert line, f"the gateway ended before it listened: {others}"
            if line.startswith("listening "):
                found.append(line.split()[1])
            else:
                others.append(line.rstrip())
    running = Running(process, found)
    running.said += others
    return running


@asynccontextmanager
async def gateway(lake: Path | str, urls: Sequence[str], *options: str, **more: Any) -> AsyncIterator[Running]:
    """Run a gateway for the time of the context; whatever happens, no process is left."""
    running = await start(lake, urls, *options, **more)
    try:
        yield running
    finally:
        if running.process.returncode is None:
            running.process.kill()
            await running.ended()


def any_ports(protocols: Iterable[str] = PROTOCOLS) -> list[str]:
    """Return URLs with a port each that nobody takes while a gateway is away."""
    return [f"{protocol}://{own_host()}:0" for protocol in protocols]


async def until(condition: Callable[[], object], seconds: float = 120.0) -> None:
    """Wait until something is true."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


class Ledger:
    """What was sent, and what became of it."""

    def __init__(self) -> None:
        self.acknowledged: list[bytes] = []
        self.unknown: list[bytes] = []

    def settle(self, body: bytes, future: asyncio.Future[Any]) -> None:
        if future.exception() is None:
            self.acknowledged.append(body)
        else:
            self.unknown.append(body)


class Sender:
    """Sends numbered messages over one connection until it is told to end, a few at a time."""

    def __init__(self, url: str, tag: str, ledger: Ledger, more: str = "") -> None:
        self.url = url
        self._more = more
        self.tag = tag
        self.ledger = ledger
        self.enough = asyncio.Event()
        self.sent = 0
        self.served = False
        """Whether anything was acknowledged."""
        self._connection: net.Connection | None = None

    async def connect(self) -> net.Connection:
        if self._connection is None:
            protocol = self.url.partition(":")[0].removesuffix("+dtls")
            self._connection = await net.connect(self.url + CLIENT[protocol] + self._more)
        return self._connection

    async def run(self, pause_s: float = 0.01, at_once: int = 5) -> None:
        connection = await self.connect()
        pending: list[asyncio.Future[Any]] = []
        while not self.enough.is_set():
            for _ in range(at_once):
                body = f"{self.tag}-{self.sent}-".encode() + bytes([self.sent % 251]) * (self.sent % 90)
                future: asyncio.Future[Any] = connection.send_nowait(body)
                future.add_done_callback(partial(self._settle, body))
                pending.append(future)
                self.sent += 1
            await asyncio.sleep(pause_s)
        await asyncio.wait(pending)
        await connection.close(1.0)

    def _settle(self, body: bytes, future: asyncio.Future[Any]) -> None:
        self.ledger.settle(body, future)
        self.served = self.served or future.exception() is None


class Crowd:
    """Senders with one ledger."""

    def __init__(self, *senders: Sender) -> None:
        self.senders = senders
        self.ledger = senders[0].ledger
        self._sending: list[asyncio.Task[None]] = []

    def start(self, pause_s: float = 0.01, at_once: int = 5) -> None:
        """Send from now on."""
        self._sending = [asyncio.create_task(sender.run(pause_s, at_once)) for sender in self.senders]

    async def begin(self, messages: int, pause_s: float = 0.01, at_once: int = 5) -> None:
        """Send, and wait until more than so many messages are acknowledged, some of every sender.

        Only then do all of them see a kill as a delay: a session that is not in the journal yet ends with it.
        """
        self.start(pause_s, at_once)
        await until(lambda: len(self.ledger.acknowledged) > messages and all(sender.served for sender in self.senders))

    async def more(self, messages: int = 200) -> None:
        """Wait until so many more are acknowledged."""
        before = len(self.ledger.acknowledged)
        await until(lambda: len(self.ledger.acknowledged) >= before + messages)

    async def end(self, running: Running, lake: Path | str, names: Sequence[str] = ("gateway",)) -> None:
        """Send no more, stop the gateway, and see that the promise was kept and no sender saw more than delay."""
        for sender in self.senders:
            sender.enough.set()
        await asyncio.gather(*self._sending)
        assert await running.stop() == 0
        assert not self.ledger.unknown, "a sender saw more than delay"
        check_promise(self.ledger, [row["body"] for name in names for row in landed(lake, name)])


def one_of_each(running: Running) -> Crowd:
    """Return a sender of each protocol."""
    ledger = Ledger()
    return Crowd(*(Sender(running.url(protocol), protocol, ledger) for protocol in PROTOCOLS))


async def fetch(url: str) -> tuple[int, str]:
    """Return the status and the text of a page."""

    def get() -> tuple[int, str]:
        try:
            with urlopen(url, timeout=120) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(get)


async def metrics_url(running: Running) -> str:
    """Return where the metrics of a gateway are."""
    await until(lambda: any(line.startswith("metrics ") for line in running.said))
    return next(line.split()[1] for line in running.said if line.startswith("metrics "))


def landed(lake: Path | str, name: str = "gateway") -> list[dict[str, Any]]:
    """Return every message in the segments of a gateway, and see that the segments join without gap or overlap."""
    rows: list[dict[str, Any]] = []
    location = location_of(lake) / layout.LANDING / name
    for segment in location.names():
        found = layout.segment_range(segment)
        assert found is not None, f"{segment} does not belong here"
        with location.open(segment) as file:
            more = pq.read_table(file).to_pylist()
        assert [row["gateway_offset"] for row in more] == list(range(found[0], found[1] + 1))
        assert found[0] == len(rows), f"{segment} does not follow offset {len(rows)}"
        rows += more
    return rows


def journalled(lake: Path, name: str = "gateway") -> list[bytes]:
    """Return the bodies that are committed and not in a segment."""
    path = lake / layout.GATEWAYS / name / layout.JOURNAL
    reader = open_reader(path)
    try:
        sealed = reader.execute("SELECT coalesce(max(last), -1) FROM sealed").fetchone()[0]
        rows = read_rows(reader, sealed + 1, 1 << 62)
    except sqlite3.Error as error:
        raise AssertionError(f"{path}: {error}") from error
    finally:
        reader.close()
    bodies: list[bytes] = []
    for row in rows:
        sizes = memoryview(row.sizes).cast("I").tolist() if row.sizes else [row.size_bytes or 0] * row.messages
        start = 0
        for size in sizes:
            bodies.append(row.body[start : start + size])
            start += size
    return bodies


def check_promise(ledger: Ledger, bodies: Iterable[bytes]) -> None:
    """Check that every acknowledged message is there once, every unknown one at most once, and nothing else."""
    found = Counter(bodies)
    missing = [body for body in ledger.acknowledged if found[body] == 0]
    double = [body for body, count in found.items() if count > 1]
    strange = found.keys() - set(ledger.acknowledged) - set(ledger.unknown)
    assert not missing, f"{len(missing)} of {len(ledger.acknowledged)} acknowledged are missing, such as {missing[:3]}"
    assert not double, f"{len(double)} are there more than once, such as {double[:3]}"
    assert not strange, f"{len(strange)} were never sent, such as {sorted(strange)[:3]}"
