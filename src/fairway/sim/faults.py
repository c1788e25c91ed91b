"""What a link does to datagrams. Chances are integers out of a million; no floats."""

from __future__ import annotations

from dataclasses import dataclass, fields

from fairway.core.errors import BadOption
from fairway.core.random_source import MILLION

CHANCES = ("loss", "burst_enter", "burst_leave", "burst_loss", "duplicate", "reorder", "corrupt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The behaviour of one direction of one link.

    Bursts follow Gilbert and Elliott: each datagram may move the link between a good and a bad state, and the bad one
    loses `burst_loss` of a million. Jitter alone keeps the order, as a queue does; `reorder` breaks it.
    """

    loss: int = 0
    burst_enter: int = 0
    burst_leave: int = 250_000
    burst_loss: int = 900_000
    duplicate: int = 0
    reorder: int = 0
    reorder_us: int = 30_000
    corrupt: int = 0
    delay_us: int = 10_000
    jitter_us: int = 0
    bandwidth_bytes_per_s: int = 0
    """0 is unlimited."""
    queue_bytes: int = 64 << 10
    """What waits in front of a limited link at the most; more is dropped."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value < 0:
                raise BadOption(f"{field.name} is {value}; it must not be negative")
            if field.name in CHANCES and value > MILLION:
                raise BadOption(f"{field.name} is {value} of a million; it must be at most {MILLION}, which is always")

    def healed(self) -> Faults:
        """Return the same link without faults: only its delay stays."""
        return Faults(delay_us=self.delay_us)

    @property
    def only_loses(self) -> bool:
        """Whether datagrams that leave together and are not lost arrive together, unchanged and in order."""
        moved = self.burst_enter or self.duplicate or self.reorder or self.corrupt
        return not (moved or self.jitter_us or self.bandwidth_bytes_per_s)

    @property
    def longest_us(self) -> int:
        """For how long a datagram is under way at the most."""
        queue_us = self.queue_bytes * 1_000_000 // self.bandwidth_bytes_per_s if self.bandwidth_bytes_per_s else 0
        return self.delay_us + self.jitter_us + (self.reorder_us if self.reorder or self.duplicate else 0) + queue_us


def per_million(name: str, share: float) -> int:
    """Turns a share from 0 to 1 into a chance out of a million; raises `BadOption` for any other."""
    if not 0 <= share <= 1:
        raise BadOption(f"{name} is {share:g}; it must be from 0 to 1")
    return round(share * MILLION)
