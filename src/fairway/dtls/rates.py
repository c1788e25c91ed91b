"""A rate with a burst, in the time that is passed in."""

from __future__ import annotations


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
