"""How long answers wait for each other at the peer.

A queue is never silent: it delivers at the rate of the path. So answers that come after a silence, of more than a few
packets at that rate, may have waited as long, for a commit of many messages or for a process that was not scheduled, at
either end. All but the latest of them waited as much longer as they had left earlier. The latest may have waited, too,
unless something left soon after it: that would have been answered with it.
"""

from __future__ import annotations

ROUNDS = 8
BETWEEN = 3
"""So many packets, of others or lost ones, may come between two of a queue."""


class Gathering:
    """What the latest silences and answers show."""

    def __init__(self, held_us: int) -> None:
        self._held_us = held_us
        """What is held back on purpose; it is known without a silence."""
        self._silence_us = 0
        """How long nothing had come before the latest answers."""
        self._quiet_us = 0
        """The same, less the time since."""
        self._longest_us = 0
        """The longest round trip since."""
        self._round_us = 0
        self._rounds_us = [0] * ROUNDS
        """The longest wait of this round trip, and of the latest ones."""
        self.us = 0
        """How long answers wait: one of the latest round trips may have had a longer pause, by accident."""

    def take(self, gap_us: int, service_us: int, rtt_us: int, alone_us: int, late_us: int) -> int:
        """Take an answer that comes so long after the one before, and return how long it may have waited.

        It is `late_us` later than the shortest, and so long after its packet left nothing else did. `rtt_us` is 0 where
        the round trip is not certain. A queue would have delivered a packet every `service_us`.
        """
        self._quiet_us -= gap_us
        silence_us = max(0, min(gap_us - self._held_us - BETWEEN * service_us, late_us))
        if silence_us >= self._quiet_us:
            self._quiet_us = self._silence_us = silence_us
            self._longest_us = 0
        self._longest_us = max(self._longest_us, rtt_us)
        earlier_us = min(self._silence_us, self._longest_us - rtt_us) if rtt_us else 0
        waited_us = max(0, min(self._quiet_us, alone_us, late_us))
        self._round_us = max(self._round_us, silence_us if rtt_us else 0, earlier_us, waited_us)
        return waited_us

    def end_round(self) -> None:
        """Take that a round trip is over."""
        self._rounds_us = [self._round_us, *self._rounds_us[:-1]]
        self._round_us = 0
        self.us = sorted(self._rounds_us)[-2]
