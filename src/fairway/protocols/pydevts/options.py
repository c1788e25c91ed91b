"""What a user of pydevts may set."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.core.errors import BadOption
from fairway.core.machine import Options, check_range, fill_window

SECOND_US = 1_000_000
WINDOW_MAX = 1 << 15
"""Half of the message ids: so that the other half is always there to choose from."""

WINDOW = 4_096
"""Packets open at the most: 5 MB. What is lost waits for three seconds, with its id."""
FIXED_WINDOW = 256


@dataclass(frozen=True, kw_only=True)
class PydevtsOptions(Options):
    """Durations and bounds of a pydevts endpoint."""

    repeat_after_us: int = 3 * SECOND_US
    """Between transmissions of a packet without ack, and of an ack without close."""
    packet_repeats_max: int = 10
    ack_repeats_max: int = 10
    """0 switches the repeats of acks off; every duplicate of a packet still gets its own."""
    remember_us: int = 40 * SECOND_US
    """How long a received key is known, from its first arrival."""
    reuse_after_us: int = 120 * SECOND_US
    """How long an id is not used again with the same crc, from its first transmission."""
    flush_us: int = 33 * SECOND_US
    """How long closing waits for open and queued messages: the life of one packet."""
    ping_timeout_us: int = 3 * SECOND_US
    pings_max: int = 1_024
    remembered_max: int = 1 << 20
    """Keys that the machine remembers; `remembered_max / remember_us` is the rate it can sustain."""
    recent_uses_max: int = 1 << 21
    """Pairs of id and crc that the machine remembers as used; beyond it whole blocks of ids count as used."""
    first_id: int | None = None
    """For tests: where the ids of every peer start, instead of at random."""

    def __post_init__(self) -> None:
        fill_window(self, WINDOW, FIXED_WINDOW)
        super().__post_init__()
        check_range("window", self.window, 1, WINDOW_MAX)
        for name in ("pings_max", "remembered_max"):
            check_range(name, getattr(self, name), 1, 1 << 62)
        if self.first_id is not None:
            check_range("first_id", self.first_id, 0, 0xFFFF)
        if self.remember_us < self.packet_repeats_max * self.repeat_after_us:
            raise BadOption(
                f"remember_us is {self.remember_us}; it must be at least packet_repeats_max times repeat_after_us, "
                f"{self.packet_repeats_max * self.repeat_after_us}, or a late duplicate would be delivered again"
            )
        if self.reuse_after_us <= self.remember_us:
            raise BadOption(
                f"reuse_after_us is {self.reuse_after_us}; it must exceed remember_us, {self.remember_us}, or a new "
                f"message would be taken for a duplicate"
            )
