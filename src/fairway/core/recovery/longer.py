"""Whether a path has got longer: a longer round trip that is no queue. Two signs show it.

*A step.* A queue gets longer by what enters it, no faster than some times the rate of the path: one packet waits hardly
longer than the one before. A path gets longer from one packet to the next. Answers that waited at the peer for
others, or for a process that was not scheduled, begin with a step as well, but what left later waited less: so all
must take as long for a round trip, up to what left after the step was seen.

*Slowing down* does not help. A round trip that is half as long again, and three times in a row the same to a 64th
although the sender slows down and all that leaves arrives, is hardly a queue: slowing down shortens one's own, and
those of others vary. Then it is looked for with half a product in flight. If it stays, the path has got longer.
"""

from __future__ import annotations

SAME_ROUNDS = 2
"""So many round trips of slowing down as long as the one before may be a longer path: queues of others vary."""
STEEP = 4
"""A step is so many times as long as the time between the two packets. A sender's own queue grows by 1.8 times."""


class LongerPath:
    """What speaks for one, and the search for it."""

    def __init__(self) -> None:
        self.step_us = 1 << 62
        """A step is longer than this."""
        self._before_us = self._left_us = 0
        """The round trip of the latest packet that was answered, and when it had left."""
        self._stepped_us = 0
        """When the latest step was seen; 0 if what followed was shorter."""
        self._floor_us = self._least_us = 0
        """What is shorter than this ends it, and the shortest since."""
        self._lost = 0
        """What had been lost by then."""
        self._same_rounds = 0
        """Round trips in a row that slowing down left as long as the one before, while all arrived."""
        self._doubted_us = 0
        """The round trip that may be that of a longer path."""
        self.found_us = 0
        """The shortest round trip since the search began."""

    def take(self, rtt_us: int) -> None:
        """Take a round trip, of this length at the most."""
        self.found_us = min(self.found_us or rtt_us, rtt_us)

    def follow(self, rtt_us: int, lost: int, now_us: int) -> int:
        """Take how long the answer took to what left after all that was answered before; return the round trip of the
        path if that shows it to have got longer, else 0. Where more is `lost` since the step, it shows nothing."""
        step_us, left_us = rtt_us - self._before_us, now_us - rtt_us
        steep = step_us > self.step_us and step_us >= STEEP * abs(left_us - self._left_us)
        self._before_us, self._left_us = rtt_us, left_us
        if steep:
            self._stepped_us, self._floor_us, self._least_us, self._lost = now_us, rtt_us - step_us // 4, rtt_us, lost
        elif self._stepped_us:
            self._least_us = min(self._least_us, rtt_us)
            stays = self._least_us >= self._floor_us and lost == self._lost
            if not stays or left_us >= self._stepped_us:
                self._stepped_us = 0
                return self._least_us if stays else 0
        return 0

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
