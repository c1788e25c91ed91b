"""What the halves of one rup machine share: options, randomness, outputs and timers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fairway.core.outputs import Outputs
from fairway.core.random_source import RandomSource
from fairway.core.timers import Deadlines
from fairway.protocols.rup.options import RupOptions

if TYPE_CHECKING:
    from fairway.protocols.rup.columns import Bursts
    from fairway.protocols.rup.sender import Sender

IDENTITIES_MAX = 64
"""Ids drawn at a time at the most."""
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

    def __init__(
        self,
        options: RupOptions,
        random_source: RandomSource,
        outputs: Outputs[Sender],
        timers: Deadlines[Timed],
    ) -> None:
        self.options = options
        self.random_source = random_source
        self.outputs = outputs
        self.statistics = outputs.statistics
        self.outbox = outputs.outbox
        self.drop = outputs.drop
        self.timers = timers
        self._serials = 0
        self._identities: list[bytes] = []
        """Drawn and not yet used; the next one is last."""
        self._identities_drawn = 0
        self.part_bytes_max = options.body_bytes_per_part
        """Body bytes of the largest part that the options and the paths allow."""
        self._bursts: Bursts | None = None

    @property
    def bursts(self) -> Bursts:
        """What makes and takes bursts; numpy is loaded when the first one comes."""
        if self._bursts is None:
            from fairway.protocols.rup.columns import Bursts

            self._bursts = Bursts()
        return self._bursts

    def next_serial(self) -> int:
        """Return the next number for something with a timer."""
        self._serials += 1
        return self._serials

    def due(self, now_us: int) -> list[Timed]:
        """Remove what is due, in the order of making."""
        due = self.timers.pop_due(now_us)
        if len(due) > 1:
            due.sort(key=lambda timed: timed.serial)
        return due

    def draw_identity(self) -> bytes:
        """Draw the 32 digits of a random UUID (version 4).

        Where many are used they are drawn several at a time, a few in a hundred ahead: asking the operating system
        for each would cost a small message a tenth of its way out. The order is that of drawing them one by one.
        """
        if not self._identities:
            count = max(1, min(IDENTITIES_MAX, self._identities_drawn // 32))
            self._identities_drawn += count
            drawn = self.random_source.bits(128 * count)
            free = [drawn >> shift & _UUID_FREE_BITS for shift in range(0, 128 * count, 128)]
            self._identities = [b"%032x" % (bits | UUID_VERSION_4 | UUID_VARIANT) for bits in free]
        return self._identities.pop()
