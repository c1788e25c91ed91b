"""What is to be sent: neighbouring datagrams of one size for one address leave as one transmit."""

from __future__ import annotations

from fairway.core.events import Address
from fairway.core.machine import Buffer, Transmit
from fairway.core.statistics import Statistics


class Outbox:
    """Gathers datagrams in order until the driver takes them."""

    __slots__ = ("_pieces", "_segment_bytes", "_statistics", "_transmits", "_whole", "address")

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics
        self._transmits: list[Transmit] = []
        self.address: Address = None
        self._segment_bytes = 0
        self._pieces: list[Buffer] = []
        """Datagrams of `_segment_bytes` for `address`, not yet a transmit."""
        self._whole = 0

    def add(self, address: Address, datagrams: Buffer, segment_bytes: int, count: int = 1) -> None:
        """Takes `count` datagrams of one size."""
        self._statistics.datagrams_sent += count
        self._statistics.bytes_sent += len(datagrams)
        if self._pieces and (segment_bytes != self._segment_bytes or address != self.address):
            self._finish()
        self.address = address
        self._segment_bytes = segment_bytes
        self._pieces.append(datagrams)
        self._whole += count

    def _finish(self) -> None:
        pieces = self._pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._transmits.append(Transmit(self.address, data, self._segment_bytes if self._whole > 1 else None))
        self._pieces = []
        self._whole = 0

    def take(self) -> list[Transmit]:
        """Hands over everything gathered."""
        if self._pieces:
            self._finish()
        transmits, self._transmits = self._transmits, []
        return transmits
