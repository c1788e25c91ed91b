"""The links that are measured: rates, round trips and losses that real ones have."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from fairway.sim.bottleneck import Path

QUEUE_BYTES_MIN = 64 << 10
"""A short link has a queue all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One link, the same in both directions."""

    name: str
    title: str
    mbit_per_s: int
    round_trip_ms: int
    loss_percent: float = 0.0
    bursts: bool = False
    """Losses come in bursts, with the same average."""
    jitter_ms: float = 0.0

    @property
    def bytes_per_s(self) -> int:
        """The rate, with the headers of IP."""
        return self.mbit_per_s * 125_000

    @property
    def product_bytes(self) -> int:
        """Bandwidth times delay."""
        return self.bytes_per_s * self.round_trip_ms // 1_000

    def faults(self) -> dict[str, Any]:
        """Return what one direction does to packets, in the words of the simulator."""
        path = Path(
            rate_mbit=self.mbit_per_s,
            round_trip_ms=self.round_trip_ms,
            loss=self.loss_percent / 100,
            bursts=self.bursts,
        )
        queue_bytes = max(QUEUE_BYTES_MIN, self.product_bytes)
        return asdict(replace(path.faults(), jitter_us=round(self.jitter_ms * 1_000), queue_bytes=queue_bytes))


ROWS = {
    row.name: row
    for row in (
        Link(name="lan", title="LAN", mbit_per_s=200, round_trip_ms=1),
        Link(name="wifi", title="office Wi-Fi", mbit_per_s=100, round_trip_ms=10, loss_percent=0.5, bursts=True),
        Link(name="lte", title="LTE", mbit_per_s=20, round_trip_ms=50, loss_percent=1, jitter_ms=10),
        Link(name="bad-lte", title="bad LTE", mbit_per_s=5, round_trip_ms=100, loss_percent=5, bursts=True),
        Link(name="satellite", title="satellite", mbit_per_s=20, round_trip_ms=600, loss_percent=1),
        Link(name="ocean", title="ocean", mbit_per_s=100, round_trip_ms=150, loss_percent=0.1),
    )
}
