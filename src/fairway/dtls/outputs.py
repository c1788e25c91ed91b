"""What both ends of the layer return, each once, and what they count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field

from fairway.core.events import Address
from fairway.core.machine import Buffer, Transmit
from fairway.dtls.association import Up
from fairway.dtls.engine import INPUT_BYTES_MAX, PLAINTEXT_BYTES_MAX, AssociationClosed, Limits, Plaintext
from fairway.dtls.records import is_all_data, is_record


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
    """What both ends have: records of what is up, outputs that are held until they are asked for, and counts."""

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

    def _lost(self, up: Up, now_us: int) -> None:
        """The peer has closed an association, or it can no longer be used."""
        raise NotImplementedError

    def _seal(self, up: Up, data: Buffer, segment_bytes: int | None, now_us: int) -> int:
        """Send the records of a datagram, or of several; return their number, or 0 if the association is lost."""
        try:
            sealed, step = up.association.seal(data, segment_bytes)
        except AssociationClosed:
            self._lost(up, now_us)
            return 0
        count = 1 if segment_bytes is None else -(-len(data) // segment_bytes)
        self.counters.records_out += count
        self._transmits.append(Transmit(up.outer, sealed, step))
        return count

    def _opened(self, up: Up, data: bytes, step: int, now_us: int) -> int:
        """Keep the plaintexts of a datagram, or of several; return the number."""
        try:
            plaintexts = up.open(data, step)
        except AssociationClosed:
            self._lost(up, now_us)
            return 0
        if plaintexts:
            up.heard_us = now_us
            self.counters.records_in += len(plaintexts)
            self._plaintexts += joined(plaintexts, up.inner, up.peer.name)
        return len(plaintexts)

    def _is_record(self, datagram: bytes) -> bool:
        """Return whether a datagram may belong to an association; count one that cannot."""
        if len(datagram) > INPUT_BYTES_MAX:
            self.counters.dropped["too_large"] += 1
        elif not is_record(datagram):
            self.counters.dropped["not_dtls"] += 1
        else:
            return True
        return False


def pieces(data: Buffer, step: int, *, together: bool) -> list[bytes]:
    """Return the datagrams of a super-buffer; if so wanted those of application data stay together."""
    data = bytes(data)
    if len(data) <= step or (together and step <= INPUT_BYTES_MAX and is_all_data(data, step)):
        return [data]
    return [data[start : start + step] for start in range(0, len(data), step)]


def joined(plaintexts: list[bytes], address: Address, device: str) -> Iterator[Plaintext]:
    """Yield plaintexts as super-buffers, as long as neighbours have one size; the last of a buffer may be shorter."""
    first, count = 0, len(plaintexts)
    while first < count:
        size, end = len(plaintexts[first]), first + 1
        while end < count and len(plaintexts[end]) == size:
            end += 1
        if end < count and end - first > 1 and len(plaintexts[end]) < size:
            end += 1
        several = end - first > 1
        data = b"".join(plaintexts[first:end]) if several else plaintexts[first]
        yield Plaintext(data, address, device, size if several else None)
        first = end
