"""Randomness for real endpoints: from the operating system's cryptographic source.

Not by way of `secrets`, which loads random numbers, hashes and message authentication: a fortieth of a second.
"""

from __future__ import annotations

import os


class Cryptographic:
    """Draws integers that nobody can foresee."""

    __slots__ = ()

    def bits(self, count: int) -> int:
        return int.from_bytes(os.urandom((count + 7) // 8), "big") >> -count % 8

    def below(self, bound: int) -> int:
        """Draw an integer from 0 to bound - 1, each as likely as any other."""
        count = (bound - 1).bit_length()
        while (number := self.bits(count)) >= bound:
            pass
        return number
