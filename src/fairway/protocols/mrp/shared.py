"""What all connections of one machine share: options, counters, and the way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fairway.core.events import Event
from fairway.core.outbox import Outbox
from fairway.core.statistics import Statistics
from fairway.protocols.mrp.options import MrpOptions
from fairway.protocols.mrp.places import Places

if TYPE_CHECKING:
    from fairway.protocols.mrp.connection import Connection


class Shared:
    """One per machine, handed to each connection."""

    __slots__ = ("events", "forget", "options", "outbox", "places", "statistics", "touched")

    def __init__(self, options: MrpOptions, forget: Callable[[Connection], None]) -> None:
        self.options = options
        self.forget = forget
        """Takes a connection that has ended out of the machine's tables."""
        self.statistics = Statistics()
        self.outbox = Outbox(self.statistics)
        self.places = Places(options.open_receipts_max, options.open_receipt_bytes_max)
        self.events: list[Event] = []
        self.touched: dict[int, Connection] = {}
        """Connections that have something to send or to time since the driver last asked, by own id."""

    def drop(self, reason: str) -> None:
        """Counts a datagram, or what it carried, as refused."""
        self.statistics.dropped[reason] += 1
