"""What a user of udpc may set."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.core.handshakes import HandshakeOptions
from fairway.core.machine import check_range, fill_window

INDEX_RUN_MAX = 65_535
"""How far an index may run past the oldest packet that waits: the peer's bitmap covers 65,536 indices."""

WINDOW = 16_384
"""Important packets unacknowledged per session at the most: 20 MB, a quarter of what the peer's bitmap covers."""
FIXED_WINDOW = 1_024


@dataclass(frozen=True, kw_only=True)
class UdpcOptions(HandshakeOptions):
    """Durations and bounds of udpc; the defaults are those of docs/wire/udpc.md."""

    sequenced: bool = False
    """Drop plain messages that are not newer than the newest one delivered."""
    migration: bool = False
    """Follow a peer to a new address."""
    accepts_calls: bool = True
    """Answer SYN; off for an endpoint that only calls."""

    syn_acks_per_syn: int = 3

    important_timeout_us: int = 30_000_000
    request_timeout_us: int = 5_000_000
    ping_timeout_us: int = 5_000_000
    rto_initial_us: int = 200_000
    rto_us_min: int = 20_000
    rto_us_max: int = 3_000_000
    requests_max: int = 1_024
    """Per session and direction: requests without a response."""
    pings_max: int = 1_024
    index_run_max: int = INDEX_RUN_MAX

    response_kept_us: int = 30_000_000
    responses_max: int = 1_024
    response_bytes_max: int = 1 << 20
    """Per session: responses kept for duplicates of their requests."""

    keepalive_us: int = 1_000_000
    silence_us: int = 10_000_000
    flush_us: int = 2_000_000
    linger_us: int = 3_000_000
    fin_gap_us: int = 20_000

    first_index: int = 0
    """For tests only: the first index of both roles, to start close to the wrap; 0 leaves it to the rules."""

    def __post_init__(self) -> None:
        fill_window(self, WINDOW, FIXED_WINDOW)
        HandshakeOptions.__post_init__(self)
        check_range("window", self.window, 1, INDEX_RUN_MAX)
        check_range("index_run_max", self.index_run_max, 1, INDEX_RUN_MAX)
        check_range("syn_acks_per_syn", self.syn_acks_per_syn, 1, 3)
        check_range("first_index", self.first_index, 0, (1 << 32) - 1)
        for name in ("requests_max", "pings_max", "responses_max"):
            check_range(name, getattr(self, name), 1, 1 << 31)
