"""What a user of mrp may set; the defaults are those of the standard."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.core.errors import BadOption
from fairway.core.handshakes import HandshakeOptions
from fairway.core.machine import check_choice, check_range, fill_window

STAMPED, PIGGYBACK = "stamped", "piggyback"
LAYOUTS = (STAMPED, PIGGYBACK)
WINDOW_MAX = 32_767
"""One less than half the number space: a sequence is then either ahead or a duplicate, never both."""
FIXED_WINDOW = 256
HALF_TURN = 32_768


@dataclass(frozen=True, kw_only=True)
class MrpOptions(HandshakeOptions):
    """Options of an mrp endpoint; every duration is in microseconds."""

    layout: str = STAMPED
    """The layout of connections that this side opens."""
    accepts: tuple[str, ...] = LAYOUTS
    """The layouts that this side accepts from others; none at all rejects every call."""
    connect_repeat_us: int = 50_000
    connect_repeat_us_max: int = 1_000_000
    rto_initial_us: int = 50_000
    rto_us_min: int = 10_000
    rto_us_max: int = 3_000_000
    start_interval_us: int = 100_000
    starts_max: int = HALF_TURN
    """Sequences started within `start_interval_us`, or four resend delays if that is longer."""
    keepalive_us: int = 10_000_000
    stall_us: int = 30_000_000
    """How long nothing outstanding may be acknowledged before the connection counts as dead."""
    forget_us: int = 300_000_000
    ping_timeout_us: int = 5_000_000
    pings_max: int = 64
    first_sequence: int = 1
    """For tests: both sides of a connection start counting here, so that a wrap is near."""

    def __post_init__(self) -> None:
        fill_window(self, WINDOW_MAX, FIXED_WINDOW)
        HandshakeOptions.__post_init__(self)
        check_choice("layout", self.layout, LAYOUTS)
        for layout in self.accepts:
            check_choice("accepts", layout, LAYOUTS)
        check_range("window", self.window, 1, WINDOW_MAX)
        check_range("starts_max", self.starts_max, 1, HALF_TURN)
        check_range("first_sequence", self.first_sequence, 1, 1 << 62)
        if self.rto_us_min > self.rto_us_max:
            raise BadOption(f"rto_us_min is {self.rto_us_min}; it must not exceed rto_us_max")
