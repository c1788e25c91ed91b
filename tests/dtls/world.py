"""A client and a gateway joined by a seeded link in virtual time, and identities for both."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from fairway.core.addresses import with_device
from fairway.core.events import Address
from fairway.core.machine import Transmit
from fairway.core.random_source import Seeded
from fairway.dtls.authority import Authority
from fairway.dtls.certificates import Role
from fairway.dtls.client import DtlsClient
from fairway.dtls.cookies import Cookies
from fairway.dtls.engine import Limits, Plaintext
from fairway.dtls.gateway import DtlsGateway
from fairway.dtls.identity import Identity, IdentityFiles, read_identity
from fairway.dtls.openssl import OpensslClientEngine, OpensslGatewayEngine
from tests.dtls.fake import FakeClientEngine, FakeGatewayEngine

NOW = datetime.now(UTC)
GATEWAY: Address = ("192.0.2.1", 9000)
GATEWAY_NAME = "gateway.test"
DELAY_US = 20_000
SECOND_US = 1_000_000


class Layer(Protocol):
    """What a link needs of either end."""

    def receive(self, data: bytes, address: Address, now_us: int, segment_bytes: int | None = None) -> None: ...

    def wake(self, now_us: int) -> None: ...

    def next_deadline_us(self) -> int | None: ...

    def transmits(self) -> list[Transmit]: ...

    def plaintexts(self) -> list[Plaintext]: ...


class Fleet:
    """A CA and the identities it issued, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder / "ca")
        self.authority.create("test-ca", 30, NOW)

    def file(self, name: str, role: Role = "device", *, days: int = 10) -> Path:
        """Issue an identity, or return the file of one that was issued."""
        path = self.folder / f"{name}.pem"
        if not path.exists():
            self.authority.issue(name, role, days, path, NOW)
        return path

    def identity(
        self, name: str, role: Role = "device", *, revoked: Path | None = None, now: datetime = NOW
    ) -> Identity:
        path = str(self.file(name, role))
        return read_identity(IdentityFiles(identity=path, revoked=str(revoked or "")), role, now)

    def gateway_engine(self, *, secret: bytes = b"secret", revoked: Path | None = None) -> OpensslGatewayEngine:
        return OpensslGatewayEngine(self.identity(GATEWAY_NAME, "gateway", revoked=revoked), Cookies(secret))

    def gateway(self, limits: Limits | None = None, *, secret: bytes = b"secret") -> DtlsGateway:
        return DtlsGateway(self.gateway_engine(secret=secret), limits)

    def client(
        self, name: str, *, seed: int = 1, expects: str = GATEWAY_NAME, limits: Limits | None = None
    ) -> DtlsClient:
        engine = OpensslClientEngine(self.identity(name), expects)
        return DtlsClient(engine, GATEWAY, Seeded(seed), limits)


class FakeFleet:
    """The same without cryptography."""

    def gateway(self, limits: Limits | None = None, *, secret: bytes = b"secret") -> DtlsGateway:
        return DtlsGateway(FakeGatewayEngine(GATEWAY_NAME, Seeded(int.from_bytes(secret[:8], "big"))), limits)

    def client(
        self, name: str, *, seed: int = 1, expects: str = GATEWAY_NAME, limits: Limits | None = None
    ) -> DtlsClient:
        return DtlsClient(FakeClientEngine(name, expects, Seeded(seed)), GATEWAY, Seeded(seed), limits)


@dataclass
class Faults:
    """What a link does to datagrams, in parts of a million."""

    loss: int = 0
    duplicate: int = 0
    reorder: int = 0
    flip: int = 0


@dataclass
class World:
    """One gateway, clients by address, and a link between them."""

    gateway: DtlsGateway
    seed: int = 1
    faults: Faults = field(default_factory=Faults)
    now_us: int = SECOND_US
    clients: dict[Address, DtlsClient] = field(default_factory=dict)
    received: dict[Address, list[bytes]] = field(default_factory=dict)
    """Plaintexts that the gateway got, by inner address."""
    answers: dict[Address, list[bytes]] = field(default_factory=dict)
    """Plaintexts that clients got, by their own address."""
    carried: list[tuple[Address, Address, bytes]] = field(default_factory=list)
    """Every datagram that was sent, with source and destination."""
    echo: bool = True
    delay_us: int = DELAY_US

    def __post_init__(self) -> None:
        self._random = Seeded(self.seed)
        self._flying: list[tuple[int, int, Address, Address, bytes]] = []

    def add(self, client: DtlsClient, address: Address) -> DtlsClient:
        self.clients[address] = client
        return client

    def say(self, address: Address, *bodies: bytes) -> None:
        client = self.clients[address]
        client.send([Transmit(client.inner, body) for body in bodies], self.now_us)
        self.settle(address)

    def chat(self, address: Address, count: int, every_us: int = 50_000) -> list[bytes]:
        """Have a client say so many numbers, one after the other; return them."""
        bodies = [b"%d" % number for number in range(count)]
        for body in bodies:
            self.say(address, body)
            self.run(every_us)
        return bodies

    def settle(self, only: Address | None = None) -> None:
        """Put on the link what both ends want sent, and take out what they received; of clients only one, if named."""
        for plaintext in self.gateway.plaintexts():
            assert plaintext.device == plaintext.address[-1]  # type: ignore[index]
            bodies = segments(plaintext.data, plaintext.segment_bytes)
            self.received.setdefault(plaintext.address, []).extend(bodies)
            if self.echo:
                self.gateway.send([Transmit(plaintext.address, b"echo " + body) for body in bodies], self.now_us)
        for transmit in self.gateway.transmits():
            self._carry(GATEWAY, transmit)
        for address, client in self.clients.items() if only is None else [(only, self.clients[only])]:
            for plaintext in client.plaintexts():
                self.answers.setdefault(address, []).extend(segments(plaintext.data, plaintext.segment_bytes))
            for transmit in client.transmits():
                self._carry(address, transmit)

    def _carry(self, source: Address, transmit: Transmit) -> None:
        random, faults = self._random, self.faults
        for datagram in segments(transmit.data, transmit.segment_bytes):
            self.carried.append((source, transmit.address, datagram))
            duplicates = 2 if random.happens(faults.duplicate) else 1
            for _ in range(duplicates):
                if random.happens(faults.loss):
                    continue
                delay_us = self.delay_us + (random.below(200_000) if random.happens(faults.reorder) else 0)
                data = flipped(datagram, random) if random.happens(faults.flip) else datagram
                entry = (self.now_us + delay_us, len(self.carried) * 2 + _, source, transmit.address, data)
                heapq.heappush(self._flying, entry)

    def run(self, duration_us: int, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass; return whether the condition came true."""
        end_us = self.now_us + duration_us
        self.settle()
        while until is None or not until():
            due_us = self._next_us()
            if due_us is None or due_us > end_us:
                self.now_us = end_us
                return False
            self.now_us = max(self.now_us, due_us)
            while self._flying and self._flying[0][0] <= self.now_us:
                _, _, source, destination, data = heapq.heappop(self._flying)
                if destination == GATEWAY:
                    self.gateway.receive(data, source, self.now_us)
                elif destination in self.clients:
                    self.clients[destination].receive(data, GATEWAY, self.now_us)
                self.settle(next((one for one in (source, destination) if one in self.clients), None))
            for layer in self._layers():
                deadline_us = layer.next_deadline_us()
                if deadline_us is not None and deadline_us <= self.now_us:
                    layer.wake(self.now_us)
            self.settle()
        return True

    def _layers(self) -> list[Layer]:
        return [self.gateway, *self.clients.values()]

    def _next_us(self) -> int | None:
        dues = [layer.next_deadline_us() for layer in self._layers()]
        known = [due for due in dues if due is not None]
        return min([*known, *(entry[0] for entry in self._flying[:1])], default=None)

    def of(self, address: Address, name: str) -> list[bytes]:
        """Return what the gateway got from a device at an address."""
        return self.received.get(with_device(address, name), [])


def segments(data: bytes | bytearray | memoryview, segment_bytes: int | None) -> list[bytes]:
    step = segment_bytes or len(data) or 1
    return [bytes(data[start : start + step]) for start in range(0, len(data), step)]


def flipped(datagram: bytes, random: Seeded) -> bytes:
    bit = random.below(len(datagram) * 8)
    changed = bytearray(datagram)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)
