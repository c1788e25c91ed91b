"""What a DTLS layer counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field


@dataclass(slots=True)
class DtlsCounters:
    """Counts of one socket since it was opened. `associations` and `half_open` are what there is now."""

    associations: int = 0
    half_open: int = 0
    handshakes: int = 0
    """Handshakes that were completed."""
    renewals: int = 0
    """Those of them that replaced an association with the same peer."""
    moved: int = 0
    """Those of them by which a client went on at another address."""
    hellos: int = 0
    """Hellos without a valid cookie, answered with one and forgotten."""
    hints: int = 0
    """Unprotected close_notify sent (gateway) or followed (client): the gateway does not know the association."""
    resent_flights: int = 0
    records_in: int = 0
    records_out: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    """Handshakes that failed, by reason."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Datagrams that came to nothing, by reason."""

    def as_dict(self) -> dict[str, object]:
        """Return plain values."""
        return {
            **asdict(self),
            "failed": dict(sorted(self.failed.items())),
            "dropped": dict(sorted(self.dropped.items())),
        }
