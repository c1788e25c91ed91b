"""A fleet of devices that send readings in all four protocols, and a ledger of what each message came to.

A body names its device and its number, so no two are equal; it is never sent a second time, whatever became of it. So
the ledger says exactly what a table may hold: an acknowledged body once, an unknown one at most once, nothing else.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from time import monotonic, time
from typing import BinaryIO

from fairway.core.errors import CallerError
from fairway.demo.keys import Keys
from fairway.net import (
    Connection,
    ConnectRefused,
    ConnectUnknown,
    ConversationClosed,
    OutcomeRefused,
    OutcomeUnknown,
    connect,
)
from fairway.store.delta import Delta
from fairway.store.locations import location_of

ACKNOWLEDGED, UNKNOWN, REFUSED = "acknowledged", "unknown", "refused"
RECONNECT_S = 0.2
EPOCH_S = 1_767_225_600
"""2026-01-01: readings carry a time of their own, which depends on nothing but their number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What the fleet sends. Sizes beyond that of a reading are filled up."""

    urls: Mapping[str, str]
    """By protocol."""
    devices: int = 3
    """Of each protocol."""
    messages: int = 100
    """Of each device; 0 is until it is told to stop."""
    interval_s: float = 0.02
    in_flight: int = 16
    """Messages of a device without an outcome, at the most."""
    sizes: Mapping[str, int] = field(default_factory=lambda: {"rup": 5_000})
    """Bytes of a message, by protocol; a reading is about 100."""
    name: str = "fleet"
    """Part of every body: two fleets never send the same."""
    request_every: int = 0
    """Every so many messages a udpc device asks instead of sending; 0 is never."""
    keys: str = ""
    """The folder of the devices' identities, where DTLS is used."""

    def device_name(self, protocol: str, number: int) -> str:
        """Return the name in a device's certificate."""
        return f"{self.name}.{protocol}-{number}"

    def key(self, body: bytes, protocol: str, number: int) -> bytes:
        """Return what the ledger knows a device's message by."""
        return key_of(body, self.device_name(protocol, number) if self.keys else None)


@dataclass(slots=True)
class Ledger:
    """Every message and its outcome; bodies by their hash."""

    outcomes: dict[bytes, str] = field(default_factory=dict)
    latencies_s: list[float] = field(default_factory=list)
    acknowledged_s: dict[bytes, float] = field(default_factory=dict)
    """The time of day at which each acknowledgement came."""
    lost_connections: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    """Why messages were refused."""

    def add(self, other: Ledger) -> None:
        """Take over what another fleet noted."""
        self.outcomes |= other.outcomes
        self.latencies_s += other.latencies_s
        self.acknowledged_s |= other.acknowledged_s
        self.lost_connections += other.lost_connections
        self.refusals += other.refusals

    def counts(self) -> Counter[str]:
        return Counter(self.outcomes.values())

    def longest_s(self) -> float:
        """Return the longest time from send to acknowledgement."""
        return max(self.latencies_s, default=0.0)


def key_of(body: bytes, device: str | None = None) -> bytes:
    """Return what the ledger knows a body of a device by: under the name of another it is a foreign one."""
    return blake2b(body, digest_size=16, key=(device or "").encode()).digest()


def reading(name: str, protocol: str, device: int, number: int, size: int = 0) -> bytes:
    """Return the body of one message: JSON, as a device would send it."""
    values = {
        "sensor": f"{name}/{protocol}-{device}",
        "number": number,
        "celsius": round(20 + (7 * device + number) % 100 / 10, 1),
        "at": f"{datetime.fromtimestamp(EPOCH_S + number, UTC):%Y-%m-%dT%H:%M:%SZ}",
    }
    body = json.dumps(values).encode()
    return body if len(body) >= size else body[:-1] + b', "note": "' + b"." * (size - len(body) - 13) + b'"}'


class Fleet:
    """Runs the devices and keeps the ledger."""

    def __init__(self, orders: Orders, traces: Path | None = None) -> None:
        self.orders = orders
        self._traces = traces
        self.ledger = Ledger()
        self.stopping = False
        """Set from anywhere: devices send nothing new, and wait for the outcomes of what is out."""

    def run(self) -> Ledger:
        """Send everything and wait for every outcome."""
        asyncio.run(self.send())
        return self.ledger

    async def send(self) -> None:
        """Do the same inside a loop that runs already."""
        orders = self.orders
        with ExitStack() as files:
            async with asyncio.TaskGroup() as group:
                for protocol, url in orders.urls.items():
                    for device in range(orders.devices):
                        trace = None
                        if self._traces is not None:
                            path = self._traces / f"{protocol}-{device}.pcapng"
                            trace = files.enter_context(path.open("wb"))
                        group.create_task(Device(self, orders, protocol, device, url, trace).run())


class Device:
    """One device: sends its readings in turn, and opens a new conversation when one ends."""

    def __init__(
        self, fleet: Fleet, orders: Orders, protocol: str, number: int, url: str, trace: BinaryIO | None
    ) -> None:
        self._fleet = fleet
        self._orders = orders
        self._protocol = protocol
        self._device = number
        self._url = (
            Keys(Path(orders.keys)).device_url(url, orders.device_name(protocol, number)) if orders.keys else url
        )
        self._trace = trace
        self._connection: Connection | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        number = 0
        try:
            while not self._fleet.stopping and (not self._orders.messages or number < self._orders.messages):
                connection = await self._connected()
                if connection is None:
                    continue
                body = reading(
                    self._orders.name, self._protocol, self._device, number, self._orders.sizes.get(self._protocol, 0)
                )
                self._send(connection, body, asks=self._asks(number))
                number += 1
                await self._room()
                await asyncio.sleep(self._orders.interval_s)
            if self._open:
                await asyncio.wait(self._open)
        finally:
            if self._connection is not None:
                await self._connection.close()

    async def _connected(self) -> Connection | None:
        """Return the open conversation, or try to open one."""
        if self._connection is not None:
            return self._connection
        try:
            self._connection = await connect(self._url, trace=self._trace)
        except (ConnectUnknown, ConnectRefused):
            await asyncio.sleep(RECONNECT_S)
        return self._connection

    def _asks(self, number: int) -> bool:
        every = self._orders.request_every
        return self._protocol == "udpc" and every > 0 and number % every == every - 1

    def _send(self, connection: Connection, body: bytes, *, asks: bool) -> None:
        task = asyncio.get_running_loop().create_task(self._await(connection, body, asks))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _room(self) -> None:
        while len(self._open) >= self._orders.in_flight:
            await asyncio.wait(self._open, return_when=asyncio.FIRST_COMPLETED)

    async def _await(self, connection: Connection, body: bytes, asks: bool) -> None:
        ledger = self._fleet.ledger
        began_s = monotonic()
        key = self._orders.key(body, self._protocol, self._device)
        # Whatever happens to this process, what was sent is known to have been sent.
        ledger.outcomes[key] = UNKNOWN
        try:
            await (connection.request(body) if asks else connection.send(body))
            outcome = ACKNOWLEDGED
            ledger.acknowledged_s[key] = time()
            ledger.latencies_s.append(monotonic() - began_s)
        except (OutcomeUnknown, ConversationClosed):
            outcome = UNKNOWN
            await self._leave(connection)
        except (OutcomeRefused, CallerError) as error:
            outcome = REFUSED
            ledger.refusals[str(error)] += 1
            await self._leave(connection)
        ledger.outcomes[key] = outcome

    async def _leave(self, connection: Connection) -> None:
        """Give a conversation up in which something went wrong; the next message opens another."""
        if connection is self._connection:
            self._connection = None
            self._fleet.ledger.lost_connections += 1
            await connection.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the comparison found. `missing`, `double` and `foreign` must be 0."""

    sent: int
    acknowledged: int
    in_table: int
    missing: int
    """Acknowledged and not in the table."""
    double: int
    """In the table more than once."""
    foreign: int
    """In the table, but never sent, refused, or with another body or device than was sent."""
    devices: dict[str, int]
    """Rows by the name in the certificate of who sent them."""

    @property
    def kept(self) -> bool:
        return not (self.missing or self.double or self.foreign)

    def __str__(self) -> str:
        return (
            f"{self.sent:,} sent, {self.acknowledged:,} acknowledged, {self.in_table:,} in the table; "
            f"{self.missing:,} missing, {self.double:,} double, {self.foreign:,} foreign"
        )


def judge(ledger: Ledger, table: Path | str) -> Judgement:
    """Read the bodies of `tables/messages` and hold them against the ledger."""
    rows = _rows(table)
    found = Counter(key_of(body, device) for body, device in rows)
    acknowledged = [key for key, outcome in ledger.outcomes.items() if outcome == ACKNOWLEDGED]
    allowed = {key for key, outcome in ledger.outcomes.items() if outcome != REFUSED}
    return Judgement(
        sent=len(ledger.outcomes),
        acknowledged=len(acknowledged),
        in_table=found.total(),
        missing=sum(1 for key in acknowledged if key not in found),
        double=sum(count - 1 for count in found.values()),
        foreign=sum(1 for key in found if key not in allowed),
        devices=dict(Counter(device or "" for _, device in rows)),
    )


def _rows(table: Path | str) -> list[tuple[bytes, str | None]]:
    import pyarrow as pa

    messages = Delta(location_of(table))
    wanted = pa.schema([("body", pa.binary()), ("device", pa.string())])
    batches = messages.rows(wanted) if messages.exists() else ()
    return [row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
