"""Whether a path has got longer: a longer round trip that is no queue.

A round trip that is half as long again, and three times in a row the same to a 64th although the sender slows down and
all that leaves arrives, is hardly a queue: slowing down shortens one's own, and those of others vary. Then it is looked
for with half a product in flight. If it stays, the path has got longer.
"""

from __future__ import annotations

SAME_ROUNDS = 2
"""So many round trips of slowing down as long as the one before may be a longer path: queues of others vary."""


class LongerPath:
    """What speaks for one, and the search for it."""

    def __init__(self) -> None:
        self._same_rounds = 0
        """Round trips in a row that slowing down left as long as the one before, while all arrived."""
        self._doubted_us = 0
        """The round trip that may be that of a longer path."""
        self.found_us = 0
        """The shortest round trip since the search began."""

    def take(self, rtt_us: int) -> None:
        """Take a round trip, of this length at the most."""
        self.found_us = min(self.found_us or rtt_us, rtt_us)

    def end_round(self, rtt_us: int, before_us: int, *, slowed: bool) -> None:
        """Take the shortest of a round trip and of the one before; whether it was `slowed` down, is long all the same,
        and all arrived."""
        same = slowed and abs(rtt_us - before_us) <= before_us >> 6
        self._same_rounds = self._same_rounds + 1 if same else 0

    @property
    def is_likely(self) -> bool:
        """Whether it is worth looking."""
        return self._same_rounds >= SAME_ROUNDS

    def search(self, doubted_us: int) -> None:
        """Begin to look for the shortest round trip; 0 where none is doubted, because it was measured long ago."""
        self._doubted_us, self.found_us, self._same_rounds = doubted_us, 0, 0

    @property
    def is_found(self) -> bool:
        """Whether the round trip that was doubted stays."""
        return self._doubted_us > 0 and self.found_us * 8 >= self._doubted_us * 7
