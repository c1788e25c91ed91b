"""What both ends of the layer return, each once, and what they count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from fairway.core.events import Address
from fairway.core.machine import Buffer, Transmit
from fairway.dtls.engine import INPUT_BYTES_MAX, PLAINTEXT_BYTES_MAX, Association, Limits, Plaintext
from fairway.dtls.records import is_record


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


class Outputs:
    """What both ends have: outputs that are held until they are asked for, and counts."""

    def __init__(self, limits: Limits | None) -> None:
        self.counters = DtlsCounters()
        self._limits = limits or Limits()
        self._transmits: list[Transmit] = []
        self._plaintexts: list[Plaintext] = []

    def transmits(self) -> list[Transmit]:
        """Return, once, the datagrams to send."""
        transmits, self._transmits = self._transmits, []
        return transmits

    def plaintexts(self) -> list[Plaintext]:
        """Return, once, what the peers sent."""
        plaintexts, self._plaintexts = self._plaintexts, []
        return plaintexts

    def _transmit(self, address: Address, datagrams: Iterable[bytes]) -> None:
        self._transmits += [Transmit(address, one) for one in datagrams]

    def _fits(self, data: Buffer, segment_bytes: int | None) -> bool:
        """Return whether a record holds each datagram; count what none does."""
        if 0 < (segment_bytes or len(data)) <= PLAINTEXT_BYTES_MAX:
            return True
        self.counters.dropped["plaintext_size"] += 1
        return False

    def _send_sealed(self, up: Association, address: Address, data: Buffer, segment_bytes: int | None) -> int:
        """Send the records of a datagram, or of several, and return their number. Raises `AssociationClosed`."""
        sealed, step = up.seal(data, segment_bytes)
        count = 1 if segment_bytes is None else -(-len(data) // segment_bytes)
        self.counters.records_out += count
        self._transmits.append(Transmit(address, sealed, step))
        return count

    def _is_record(self, datagram: bytes) -> bool:
        """Return whether a datagram may belong to an association; count one that cannot."""
        if len(datagram) > INPUT_BYTES_MAX:
            self.counters.dropped["too_large"] += 1
        elif not is_record(datagram):
            self.counters.dropped["not_dtls"] += 1
        else:
            return True
        return False


def joined(plaintexts: list[bytes], address: Address, device: str) -> list[Plaintext]:
    """Return plaintexts as super-buffers, as long as neighbours have one size; the last of a buffer may be shorter."""
    found: list[Plaintext] = []
    first, count = 0, len(plaintexts)
    while first < count:
        size, end = len(plaintexts[first]), first + 1
        while end < count and len(plaintexts[end]) == size:
            end += 1
        if end < count and end - first > 1 and len(plaintexts[end]) < size:
            end += 1
        if end - first == 1:
            found.append(Plaintext(plaintexts[first], address, device))
        else:
            found.append(Plaintext(b"".join(plaintexts[first:end]), address, device, size))
        first = end
    return found
