"""What the user of a rup endpoint may set; the defaults are those of `docs/wire/rup.md`."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.core.machine import Options, check_range, fill_window
from fairway.protocols.rup.wire import DATA_HEADER_BYTES, UINT_MAX

PARTS_MAX = 1 << 20
"""A message has at most so many parts."""

WINDOW = 16_384
"""Parts in flight to one peer at the most: 20 MB."""
FIXED_WINDOW = 1_024
"""On a path without delay more than 1.3 MB in flight do not pay."""
MESSAGE_BYTES_MAX = 64 << 20
"""What is sent and taken unless the option says otherwise."""


@dataclass(frozen=True, kw_only=True)
class RupOptions(Options):
    """Durations and bounds of rup. The window counts parts."""

    part_bytes: int = 0
    """Body bytes of each part but the last; 0 takes the largest that fits `datagram_bytes_max`."""
    message_bytes_max: int = MESSAGE_BYTES_MAX
    """A larger message is neither sent nor taken."""
    messages_under_way_max: int = 256
    """Messages to one peer that are sent at the same time; further ones wait."""

    incoming_messages_max: int = 16_384
    incoming_messages_per_peer_max: int = 1_024
    incoming_bytes_max: int = 0
    incoming_bytes_per_peer_max: int = 0
    """Unfinished messages: their number, and what was received of them (a little is added for each part). The bytes
    follow `message_bytes_max` unless they are set, so that raising that one option is enough: 256 and 128 MiB, or four
    and two of the largest messages. At a bound of bytes only the oldest message goes on, and may exceed the bound."""
    gaps_max: int = 4_096
    """Stretches of missing parts in one message; a part that would make one more is dropped."""
    remembered_max: int = 1 << 20
    """Messages that are unfinished or remembered; when so many are, new ones are dropped."""
    spool_above_bytes: int = 0
    """Deliver a message larger than this part by part (`PartReceived`) instead of keeping it; 0 means never."""

    confirm_after_us: int = 20_000
    confirm_every_parts: int = 64
    request_after_us: int = 10_000
    request_after_parts: int = 3
    request_again_us: int = 200_000
    request_again_us_min: int = 5_000
    request_again_us_max: int = 3_000_000
    """When a request is repeated: before a round trip was measured, and the bounds of one and a half round trips."""
    requests_open_max: int = 1_024
    """Per message."""

    rto_initial_us: int = 200_000
    rto_us_min: int = 20_000
    rto_us_max: int = 3_000_000
    backoff_us_max: int = 1_000_000
    """How far apart the probes of a peer that is silent get."""
    silence_us: int = 10_000_000
    """What is sent to a peer that says nothing at all for so long ends as unknown."""
    stall_us: int = 60_000_000
    """The same for a peer that says nothing new, and for a message that was left behind by three later ones."""
    unfinished_us: int = 30_000_000
    """An unfinished message that gets no new part for so long is forgotten."""
    remember_us: int = 60_000_000
    """How long a completed id is remembered, from its delivery (deferred: its commit) and from its latest part."""
    forget_us: int = 60_000_000
    """A conversation that a peer began is over when it was idle for so long."""

    def __post_init__(self) -> None:
        fill_window(self, WINDOW, FIXED_WINDOW)
        super().__post_init__()
        largest = max(self.message_bytes_max, MESSAGE_BYTES_MAX)
        object.__setattr__(self, "incoming_bytes_max", self.incoming_bytes_max or 4 * largest)
        object.__setattr__(self, "incoming_bytes_per_peer_max", self.incoming_bytes_per_peer_max or 2 * largest)
        check_range("window", self.window, 1, PARTS_MAX)
        check_range("part_bytes", self.part_bytes, 0, self.datagram_bytes_max - DATA_HEADER_BYTES)
        check_range("message_bytes_max", self.message_bytes_max, 0, UINT_MAX)
        check_range("confirm_every_parts", self.confirm_every_parts, 1, 64)
        for name in (
            "messages_under_way_max",
            "incoming_messages_max",
            "incoming_messages_per_peer_max",
            "gaps_max",
            "remembered_max",
            "request_after_parts",
            "requests_open_max",
        ):
            check_range(name, getattr(self, name), 1, 1 << 31)

    @property
    def body_bytes_per_part(self) -> int:
        """Body bytes of each part but the last, towards an address that is proved."""
        return self.part_bytes or self.datagram_bytes_max - DATA_HEADER_BYTES
