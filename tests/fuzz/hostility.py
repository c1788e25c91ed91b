"""Hostile datagrams, drawn from pools: random bytes, and duplicates, truncations and mutations of recorded traffic.

Made for many millions: a few words of a large random block decide each datagram, never one draw per byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from fairway.core.events import Address

STRANGERS = 4_096
BLOCK_BYTES = 1 << 18
WORDS_EACH = 4
RANDOM_BYTES_MAX = 127
REACHES = (16, 16, 48, 65_507)
"""Most mutations fall on the first bytes, where the rules are."""

COPY_BELOW, TRUNCATE_BELOW, JOIN_BELOW = 1, 6, 7
"""Of 32 recorded datagrams one comes unchanged, five truncated, one as a super-buffer, the others mutated."""

Shot = tuple[bytes, Address, int | None]
"""A datagram, or a super-buffer with its segment size: the bytes, where they seem to come from, the size."""


class Insider:
    """Somebody whose own datagrams are mutated: their address and the latest of them."""

    __slots__ = ("address", "recorded")

    def __init__(self, address: Address) -> None:
        self.address = address
        self.recorded: list[bytes] = []


class Hostility:
    """Draws the same shots for the same seed and the same recordings."""

    def __init__(self, seed: int, recorded: Sequence[bytes], bystander: Address) -> None:
        self._random = Random(seed)
        self._recorded = recorded
        self._bystander = bystander
        self._strangers: list[Address] = [("stranger", number) for number in range(STRANGERS)]
        self.insiders: list[Insider] = []
        self._refill()

    def _refill(self) -> None:
        self._bytes = self._random.randbytes(BLOCK_BYTES)
        words = memoryview(self._random.randbytes(BLOCK_BYTES)).cast("I").tolist()
        self._words = iter(zip(*[iter(words)] * WORDS_EACH, strict=True))

    def draw(self) -> Shot:
        """Return the next shot."""
        words = next(self._words, None)
        if words is None:
            self._refill()
            words = next(self._words)
        choice, index, change, who = words
        address = self._strangers[who & (STRANGERS - 1)]
        if choice & 7 == 0:
            start = index & (BLOCK_BYTES - 1)
            if choice & 0xF00 == 0:
                address = self._bystander
            return self._bytes[start : start + (change & RANDOM_BYTES_MAX)], address, None
        pool = self._recorded
        if choice & 8 and self.insiders:
            insider = self.insiders[who % len(self.insiders)]
            if insider.recorded:
                pool = insider.recorded
                address = insider.address if choice & 0x70 else address
        original = pool[index % len(pool)]
        kind = choice >> 16 & 31
        if kind >= JOIN_BELOW:
            return _mutated(original, index >> 8, change), address, None
        if kind < COPY_BELOW:
            return original, address, None
        if kind < TRUNCATE_BELOW:
            return original[: change % (len(original) + 1)], address, None
        return _joined(original, index, change), address, len(original)


def _mutated(original: bytes, index: int, change: int) -> bytes:
    """Change one to four bytes."""
    data = bytearray(original)
    reach = min(len(data), REACHES[change >> 2 & 3])
    data[index % reach] = change >> 8 & 0xFF
    for turn in range(change & 3):
        data[(index >> (turn * 7 + 3)) % reach] = change >> (8 * turn + 4) & 0xFF
    return bytes(data)


def _joined(original: bytes, index: int, change: int) -> bytes:
    """Join duplicates, mutations and a truncated end."""
    first, second, third = (_mutated(original, index >> turn, change >> turn) for turn in range(3))
    end = original[: change % len(original) + 1]
    return b"".join([original, first, original, original, second, third, original, end])
