"""What is to be sent: datagrams in order, joined where one system call can carry them, and the three-times limit.

Nothing leaves a machine but through here, so neither the counts nor the limit towards unproved addresses can be missed.
"""

from __future__ import annotations

from fairway.core.amplification import Ledger
from fairway.core.events import Address
from fairway.core.machine import UDP_PAYLOAD_BYTES_MAX, Buffer, Transmit
from fairway.core.statistics import Statistics

_new = tuple.__new__
"""Makes a named tuple without the detour through a function in Python, which costs twice as much."""


class Outbox:
    """Neighbouring datagrams of one size for one address leave as one transmit.

    `send` is for conversations that prove their own addresses, `answer` for protocols that know a peer by its address.
    """

    __slots__ = (
        "_address",
        "_pieces",
        "_pieces_bytes",
        "_proved",
        "_segment_bytes",
        "_statistics",
        "_transmits",
        "ledger",
    )

    def __init__(self, statistics: Statistics, unproved_max: int = 0) -> None:
        self.ledger = Ledger(unproved_max)
        self._statistics = statistics
        self._proved: dict[Address, None] = {}
        self._transmits: list[Transmit] = []
        self._address: Address = None
        self._segment_bytes = 0
        self._pieces: list[Buffer] = []
        """Datagrams of `_segment_bytes` for `_address`, not yet a transmit."""
        self._pieces_bytes = 0

    # Who has proved that it receives.

    def prove(self, address: Address) -> None:
        """Lift the limit for an address that has shown that it receives, or that our application named."""
        if address not in self._proved:
            self._proved[address] = None
            self.ledger.forget(address)

    def disown(self, address: Address) -> None:
        """Put the limit back: the conversation that proved the address is over."""
        self._proved.pop(address, None)

    def is_proved(self, address: Address) -> bool:
        return address in self._proved

    def received(self, address: Address, count: int) -> None:
        """Credit bytes that came from an address."""
        if address not in self._proved:
            self.ledger.received(address, count)

    def budget(self, address: Address) -> int | None:
        """Return how many bytes may leave for an address; None when there is no limit."""
        return None if address in self._proved else self.ledger.budget(address)

    # What leaves.

    def send(self, address: Address, data: Buffer, segment_bytes: int, count: int = 1) -> None:
        """Queue `count` datagrams of `segment_bytes` each, only the last of which may be shorter."""
        size = len(data)
        statistics = self._statistics
        statistics.datagrams_sent += count
        statistics.bytes_sent += size
        if self._pieces:
            whole = self._pieces_bytes + size
            if segment_bytes == self._segment_bytes and address == self._address and whole <= UDP_PAYLOAD_BYTES_MAX:
                self._pieces.append(data)
                self._pieces_bytes = whole
                if size % segment_bytes:
                    self._seal()
                return
            self._seal()
        if size % segment_bytes:
            self._transmits.append(Transmit(address, data, segment_bytes if size > segment_bytes else None))
            return
        self._address = address
        self._segment_bytes = segment_bytes
        self._pieces.append(data)
        self._pieces_bytes = size

    def answer(self, address: Address, data: Buffer, segment_bytes: int, count: int = 1) -> None:
        """Queue datagrams for an address of which perhaps nothing is known, within what it may get."""
        if address in self._proved:
            self.send(address, data, segment_bytes, count)
        else:
            self.send_unproved(address, data, segment_bytes, count)

    def send_unproved(self, address: Address, data: Buffer, segment_bytes: int, count: int = 1) -> None:
        """Queue what the limit lets through: as one by one, all of the datagrams or the first few."""
        allows = self.ledger.allows
        if allows(address, len(data)):
            self.send(address, data, segment_bytes, count)
            return
        passed = 0
        while passed < count - 1 and allows(address, segment_bytes):
            passed += 1
        self._statistics.amplification_withheld += count - passed
        if passed:
            self.send(address, data[: passed * segment_bytes], segment_bytes, passed)

    def take(self) -> list[Transmit]:
        """Return everything gathered."""
        if self._pieces:
            self._seal()
        elif not self._transmits:
            return []
        transmits, self._transmits = self._transmits, []
        return transmits

    def _seal(self) -> None:
        """Make what was gathered a transmit."""
        pieces = self._pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        segment_bytes = self._segment_bytes if self._pieces_bytes > self._segment_bytes else None
        self._transmits.append(_new(Transmit, (self._address, data, segment_bytes)))
