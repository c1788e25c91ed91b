"""A machine behind the DTLS layer with the fake engine, which a scenario drives like any other."""

from __future__ import annotations

from typing import Any, cast

from fairway.core.addresses import with_device
from fairway.core.events import Address
from fairway.core.machine import Buffer, Machine, Transmit
from fairway.core.random_source import Seeded
from fairway.dtls import OVERHEAD_BYTES, DtlsClient, DtlsGateway
from fairway.dtls.records import DATA
from tests.dtls.fake import FakeClientEngine, FakeGatewayEngine

from .pair import Pump

GATEWAY_NAME = "gateway"
DATAGRAM_BYTES_MAX = 1_200 - OVERHEAD_BYTES
_TAG_BYTES = 16


class Secured:
    """Seals what the machine sends, and opens what it receives; everything else is the machine's."""

    def __init__(self, machine: Machine, layer: DtlsGateway | DtlsClient, pump: Pump) -> None:
        self._machine = machine
        self._layer = layer
        self._pump = pump

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)

    def connect(self, address: Address, now_us: int) -> int:
        return self._machine.connect(with_device(address, GATEWAY_NAME), now_us)

    def receive(self, data: Buffer, address: Address, now_us: int, segment_bytes: int | None = None) -> None:
        self._layer.receive(data, address, now_us, segment_bytes)
        for plaintext in self._layer.plaintexts():
            self._machine.receive(plaintext.data, plaintext.address, now_us, plaintext.segment_bytes)

    def transmits(self) -> list[Transmit]:
        self._layer.send(self._machine.transmits(), self._pump.now_us)
        return self._layer.transmits()

    def next_deadline_us(self) -> int | None:
        dues = (self._machine.next_deadline_us(), self._layer.next_deadline_us())
        return min((due for due in dues if due is not None), default=None)

    def wake(self, now_us: int) -> None:
        due_us = self._layer.next_deadline_us()
        if due_us is not None and due_us <= now_us:
            self._layer.wake(now_us)
        self._machine.wake(now_us)


def secured(machine: Machine, pump: Pump, remote: Address | None) -> Machine:
    """Return a machine behind DTLS: a client of the gateway at an address, or a gateway."""
    if remote is None:
        gateway = DtlsGateway(FakeGatewayEngine(GATEWAY_NAME, Seeded(21)))
        return cast("Machine", Secured(machine, gateway, pump))
    client = DtlsClient(FakeClientEngine("device", GATEWAY_NAME, Seeded(22)), remote, Seeded(23))
    return cast("Machine", Secured(machine, client, pump))


def inside(data: bytes) -> bytes:
    """Return the datagram in a record of the fake, which hides nothing; other records as they are."""
    return data[OVERHEAD_BYTES - _TAG_BYTES : -_TAG_BYTES] if data[0] == DATA else data
