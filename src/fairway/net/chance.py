"""Randomness for real endpoints: from the operating system's cryptographic source."""

from __future__ import annotations

import secrets


class Cryptographic:
    """Draws integers that nobody can foresee."""

    __slots__ = ()

    def bits(self, count: int) -> int:
        """Draws an integer of `count` random bits."""
        return secrets.randbits(count)

    def below(self, bound: int) -> int:
        """Draws an integer from 0 to bound - 1."""
        return secrets.randbelow(bound)
