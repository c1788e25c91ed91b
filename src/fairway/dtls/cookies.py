"""Cookies: a client proves that it receives at its address, and the gateway keeps nothing until it has."""

from __future__ import annotations

import hmac
from hashlib import blake2b

from fairway.core.events import Address

SLOT_US = 30_000_000
COOKIE_BYTES = 20
"""What the datagram of the smallest hello can be answered with, without sending more than came."""


class Cookies:
    """MACs over address and time, valid in the slot of 30 s they were made in and in the next."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def make(self, address: Address, now_us: int) -> bytes:
        """Return the cookie of an address, now."""
        return self._of(address, now_us // SLOT_US)

    def valid(self, cookie: bytes, address: Address, now_us: int) -> bool:
        """Return whether a cookie was made for this address not long ago."""
        slot = now_us // SLOT_US
        # Both are compared, whatever the first result is.
        found = [hmac.compare_digest(cookie, self._of(address, one)) for one in (slot, slot - 1)]
        return any(found)

    def _of(self, address: Address, slot: int) -> bytes:
        # With a key it is a MAC (RFC 7693), and takes a third of the time of HMAC: anybody may have us compute it.
        return blake2b(f"{address!r} {slot}".encode(), key=self._secret, digest_size=COOKIE_BYTES).digest()
