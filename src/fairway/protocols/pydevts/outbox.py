"""What is to be sent: acks and closes gathered into super-buffers, and the three-times limit kept."""

from __future__ import annotations

from fairway.core.amplification import Ledger
from fairway.core.events import Address
from fairway.core.machine import Transmit
from fairway.core.statistics import Statistics
from fairway.protocols.pydevts import wire
from fairway.protocols.pydevts.conversation import Conversation


class Outbox:
    """Transmits in the order in which they were asked for; neighbouring controls for one address leave together."""

    __slots__ = ("_address", "_controls", "_ledger", "_statistics", "_transmits")

    def __init__(self, ledger: Ledger, statistics: Statistics) -> None:
        self._ledger = ledger
        self._statistics = statistics
        self._transmits: list[Transmit] = []
        self._controls = bytearray()
        self._address: Address = None

    def control(self, address: Address, data: bytes, proved: bool) -> None:
        """Sends acks or closes, one or many one after another."""
        data = data if proved else self._allowed(address, data, wire.HEADER_BYTES)
        if not data:
            return
        if address != self._address:
            self._seal()
            self._address = address
        self._controls += data
        self._count(len(data) // wire.HEADER_BYTES, len(data))

    def answer(self, address: Address, conversation: Conversation | None, header: int) -> None:
        """Sends one ack or close to an address of which little or nothing may be known."""
        self.control(address, wire.datagram(header), conversation is not None and conversation.proved)

    def packets(self, address: Address, data: bytes, segment_bytes: int, proved: bool) -> None:
        """Sends packets of equal size, one or many one after another."""
        data = data if proved else self._allowed(address, data, segment_bytes)
        if not data:
            return
        self._seal()
        count = len(data) // segment_bytes
        self._transmits.append(Transmit(address, data, segment_bytes if count > 1 else None))
        self._count(count, len(data))

    def take(self) -> list[Transmit]:
        """Hands over everything."""
        self._seal()
        transmits, self._transmits = self._transmits, []
        return transmits

    def _allowed(self, address: Address, data: bytes, segment_bytes: int) -> bytes:
        """Gives the datagrams that the limit lets through; as one by one, all or the first few."""
        if self._ledger.allows(address, len(data)):
            return data
        count = len(data) // segment_bytes
        passed = 0
        while count > 1 and self._ledger.allows(address, segment_bytes):
            passed += 1
        self._statistics.amplification_withheld += count - passed
        return data[: passed * segment_bytes]

    def _count(self, datagrams: int, size: int) -> None:
        self._statistics.datagrams_sent += datagrams
        self._statistics.bytes_sent += size

    def _seal(self) -> None:
        if self._controls:
            data = bytes(self._controls)
            several = len(data) > wire.HEADER_BYTES
            self._transmits.append(Transmit(self._address, data, wire.HEADER_BYTES if several else None))
            self._controls.clear()
