"""What the halves of one rup machine share: options, randomness, counters, timers, the outbox and the events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fairway.core.chance import Chance
from fairway.core.events import Event
from fairway.core.outbox import Outbox
from fairway.core.statistics import Statistics
from fairway.core.timers import Deadlines
from fairway.protocols.rup.options import RupOptions

if TYPE_CHECKING:
    from fairway.protocols.rup.columns import Headers
    from fairway.protocols.rup.sender import Sender

UUID_VERSION_4 = 4 << 76
UUID_VARIANT = 2 << 62
_UUID_FREE_BITS = ((1 << 128) - 1) ^ (0xF << 76) ^ (3 << 62)


class Timed(Protocol):
    """Something with a timer. Serials follow the order of making, and so does what is due at the same time: the
    order in which timers were moved differs between a batch and its datagrams one by one."""

    @property
    def serial(self) -> int: ...

    def __hash__(self) -> int: ...


class Context:
    """One per machine."""

    __slots__ = (
        "_headers",
        "_serials",
        "chance",
        "events",
        "options",
        "outbox",
        "part_bytes_max",
        "statistics",
        "stirred",
        "timers",
    )

    def __init__(self, options: RupOptions, chance: Chance) -> None:
        self.options = options
        self.chance = chance
        self.statistics = Statistics()
        self.outbox = Outbox(self.statistics, options.unproved_max)
        self.timers: Deadlines[Timed] = Deadlines()
        self.stirred: dict[Sender, int] = {}
        """Senders that may have something to send, and since when."""
        self._serials = 0
        self.events: list[Event] = []
        self.part_bytes_max = options.body_bytes_per_part
        """Body bytes of the largest part that the options and the paths allow."""
        self._headers: Headers | None = None

    @property
    def headers(self) -> Headers:
        """Headers of bursts; numpy is loaded when the first burst comes."""
        if self._headers is None:
            from fairway.protocols.rup.columns import Headers

            self._headers = Headers()
        return self._headers

    def next_serial(self) -> int:
        """Gives the next number for something with a timer."""
        self._serials += 1
        return self._serials

    def due(self, now_us: int) -> list[Timed]:
        """Takes out what is due, in the order of making."""
        due = self.timers.pop_due(now_us)
        if len(due) > 1:
            due.sort(key=lambda timed: timed.serial)
        return due

    def drop(self, reason: str) -> None:
        """Counts a datagram that no rule accepts."""
        self.statistics.dropped[reason] += 1

    def draw_identity(self) -> bytes:
        """Draws the 32 digits of a random UUID (version 4)."""
        value = (self.chance.bits(128) & _UUID_FREE_BITS) | UUID_VERSION_4 | UUID_VARIANT
        return b"%032x" % value
