"""An association that is up, at either end; the handshake that led to it at a gateway, and rates that one allows."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b

from fairway.core.events import Address
from fairway.dtls.engine import Association, AssociationClosed, PeerIdentity
from fairway.dtls.records import DATA


class Rate:
    """Allows `per_second` things, and `burst` of them at once."""

    __slots__ = ("_burst", "_filled_us", "_per_second", "_tokens")

    def __init__(self, per_second: int, burst: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._tokens = float(burst)
        self._filled_us = 0

    def allows(self, now_us: int) -> bool:
        """Return whether one more may happen now, and count it if so."""
        gained = (now_us - self._filled_us) * self._per_second / 1_000_000
        self._tokens = min(float(self._burst), self._tokens + gained)
        self._filled_us = now_us
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


@dataclass(slots=True, eq=False)
class Handshake:
    """A handshake, remembered until the peer shows that it has our last flight."""

    association: Association
    random: bytes
    """The client's, which tells one hello from another."""
    began_us: int
    flight: list[bytes] = field(default_factory=list)
    """What we sent last."""
    taken_bytes: int = 0
    resends: int = 0
    ring_us: int | None = None
    """When the library's own timer rings."""
    _seen: list[bytes] = field(default_factory=list)

    def take(self, datagram: bytes, seen_max: int) -> None:
        """Remember a datagram of this handshake."""
        self.taken_bytes += len(datagram)
        if len(self._seen) < seen_max:
            self._seen.append(_digest(datagram))

    def has_seen(self, datagram: bytes) -> bool:
        """Return whether a datagram was taken before: the peer repeats it because it lacks our last flight."""
        return _digest(datagram) in self._seen

    def due_us(self, limit_us: int) -> int:
        """Return when the timer rings or the handshake has taken too long."""
        end_us = self.began_us + limit_us
        return end_us if self.ring_us is None else min(end_us, self.ring_us)


@dataclass(slots=True, eq=False)
class Up:
    """An association that is up."""

    association: Association
    peer: PeerIdentity
    outer: Address
    """The socket's address of the peer."""
    inner: Address
    """The same with the peer's name: what the machine knows."""
    since_us: int
    heard_us: int
    handshake: Handshake | None = None
    random: bytes = b""
    previous: Association | None = None
    """What this one replaced: its last records may still be under way."""

    def open(self, data: bytes, step: int) -> list[bytes]:
        """Return the plaintexts of a datagram, or of several, of this association or of the one before."""
        if len(data) > step and (self.previous is not None or self.handshake is not None):
            return [body for start in range(0, len(data), step) for body in self.open(data[start : start + step], step)]
        plaintexts = self.association.open(data, step)
        if plaintexts:
            # The peer has the keys, so it has our last flight. One that still uses those before may lack it.
            self.handshake = None
            return plaintexts
        if self.previous is None or not data or data[0] != DATA:
            return plaintexts
        try:
            return self.previous.open(data, step)
        except AssociationClosed:
            self.forget_previous()
            return plaintexts

    def forget_previous(self) -> None:
        """Drop what this association replaced."""
        if self.previous is not None:
            self.previous.close(notify=False)
            self.previous = None

    def has_seen(self, datagram: bytes) -> bool:
        """Return whether a datagram belongs to the handshake that led here."""
        return self.handshake is not None and self.handshake.has_seen(datagram)


def _digest(datagram: bytes) -> bytes:
    return blake2b(datagram, digest_size=16).digest()
