"""What the layer needs of the library that does the cryptography, and its bounds.

`openssl.py` has the real one; tests in virtual time bring one without cryptography, clock or randomness of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Protocol

from fairway.core.events import Address
from fairway.core.machine import Buffer
from fairway.dtls.records import OVERHEAD_BYTES

SECOND_US = 1_000_000
DATAGRAM_BYTES_MAX = 1_200
INPUT_BYTES_MAX = 2_048
"""A larger datagram is nothing that a peer within its budget sends."""
PLAINTEXT_BYTES_MAX = DATAGRAM_BYTES_MAX - OVERHEAD_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Durations and bounds. The defaults hold a gateway of 12,000 devices within a gigabyte."""

    repeat_us: int = SECOND_US // 4
    """How often a client repeats its last flight: OpenSSL's own timer, a second and doubling, is slow at 30 % loss."""
    repeats_max: int = 12
    attempts_us: tuple[int, ...] = tuple(seconds * SECOND_US for seconds in (5, 10, 20, 40, 60))
    """How long a client gives one attempt after another before it begins anew."""
    probe_us: int = SECOND_US
    """How often the flight is repeated after that, while there is something to send."""
    retry_us: int = SECOND_US
    """How soon a client begins anew after the first failure: anybody may forge an alert during a handshake."""
    liveness_us: int = 2 * SECOND_US
    """How long a client sends without hearing anything valid before it shakes hands anew, or three times what answers
    took of late; doubled, while that does not help, up to `liveness_us_max`."""
    liveness_us_max: int = 60 * SECOND_US
    hint_us: int = 5 * SECOND_US
    """A client follows a hint of the gateway at most so often."""
    renew_us: int = 24 * 3_600 * SECOND_US
    renew_records: int = 1 << 24
    overlap_us: int = 5 * SECOND_US
    """How long records of a renewed association are still opened: they were under way."""
    queued_max: int = 16
    """Datagrams that wait for a client's handshake."""
    handshake_us: int = 15 * SECOND_US
    """How long a gateway keeps a half-open association."""
    handshake_bytes_max: int = 1 << 16
    """What a gateway takes of one handshake, five times over what a long chain needs: OpenSSL would keep a megabyte of
    fragments for each stranger."""
    idle_us: int = 3_600 * SECOND_US
    sweep_us: int = 10 * SECOND_US
    half_open_max: int = 256
    up_max: int = 12_000
    handshakes_per_second: int = 400
    handshakes_burst: int = 256
    per_turn_max: int = 16
    """Costly handshake datagrams that a gateway serves at one instant; the others wait in a queue of `backlog_max`."""
    backlog_max: int = 1_024
    seen_max: int = 16
    """Datagrams of a handshake that a gateway remembers, to answer them with its last flight when they come again."""
    resends_max: int = 24
    hints_per_second: int = 100
    lines_per_second: int = 10
    """Lines of log about failed handshakes."""


class PeerIdentity(NamedTuple):
    """Who is at the other end of an association, as its certificate says."""

    name: str
    serial: int
    fingerprint: str
    """SHA-256 of the certificate, in hexadecimal."""
    issuer: str
    """The issuer's name, as RFC 4514 writes it."""
    suite: str
    ends_s: float = inf
    """When the first certificate of its chain ends, in seconds since 1970."""
    above: tuple[PeerIdentity, ...] = ()
    """The CAs of its chain: whoever of them is revoked takes along all below it."""


class Plaintext(NamedTuple):
    """What a peer sent: one datagram, or with `segment_bytes` several of that size. The address holds the device."""

    data: Buffer
    address: Address
    device: str
    segment_bytes: int | None = None


class HandshakeFailed(Exception):
    """A handshake cannot be completed; `reason` is a short name to count it by."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class AssociationClosed(Exception):
    """The peer has closed the association, or it can no longer be used."""


class Association(Protocol):
    """One handshake, and what follows it."""

    established: bool
    instance: bytes
    """What a client calls itself in all its handshakes, whatever its address; empty for those of other makers."""

    def advance(self, datagram: bytes | None = None) -> None:
        """Take a handshake datagram, or begin. Raises `HandshakeFailed`; what is in `flight` then still leaves."""

    def flight(self) -> list[bytes]:
        """Return, once, the datagrams that the last step wants sent."""

    def timeout_us(self) -> int | None:
        """Return in how long the library's own timer rings."""

    def ring(self) -> None:
        """Have the library's timer check its clock."""

    def peer(self) -> PeerIdentity | None:
        """Return who is there, once established; None if the certificate names nobody or is no longer accepted."""

    def open(self, data: bytes, step: int) -> list[bytes]:
        """Return the plaintexts in a datagram, or in several of `step` bytes that arrived together: none of those that
        are forged, replayed or too old. Raises `AssociationClosed`.

        Without data it returns what came with, or before, the end of the handshake."""

    def seal(self, data: Buffer, segment_bytes: int | None) -> tuple[bytes, int | None]:
        """Return the records of a datagram, or of several of one size. Raises `AssociationClosed`."""

    def close(self, *, notify: bool) -> list[bytes]:
        """End it and return what is to be sent: the close_notify, if wanted."""


class GatewayEngine(Protocol):
    """Makes the associations of a gateway."""

    def knows(self, cookie: bytes, address: Address, now_us: int) -> bool:
        """Return whether a cookie was made for an address, of late: without one a hello costs next to nothing."""

    def listen(self, datagram: bytes, address: Address, now_us: int) -> tuple[list[bytes], Association | None]:
        """Check a ClientHello: answer with a cookie and keep nothing, or accept one that brings a valid cookie."""

    def refusal(self, peer: PeerIdentity) -> str:
        """Return why a peer is not, or no longer, accepted, or an empty string."""


class ClientEngine(Protocol):
    """Makes the associations of a client."""

    name: str
    """Who must be at the other end."""

    def call(self, instance: bytes) -> Association:
        """Return an association that has not begun, for the client that calls itself this."""
