"""Which losses count against the path, and what becomes of the window when they turn out to be none.

Only the first loss of a packet counts, until the packet is lost again while others arrive: then it is the packet that
the peer does not take, not the path. A loss was none when the first transmission is acknowledged after all. Mostly that
cannot be told from an acknowledgement of the second one; so the latest cut is undone when as many losses have turned
out to be none since, whichever cut they counted for, as still count behind it. The path, or the peer, *reorders* then:
for as many cuts as `REORDERS_FOR` a packet that was overtaken counts as lost only when it is later than nearly all
acknowledgements are, and than the latest of those.
"""

from __future__ import annotations

from fairway.core.recovery.congestion import Controller
from fairway.core.recovery.runs import Run
from fairway.core.recovery.timing import RoundTrip

REORDERS_FOR = 16
"""Cuts after which three later acknowledgements are believed again."""


class Blame:
    """The losses behind the latest cut of the window."""

    __slots__ = ("_controller", "_cuts", "_latest_us", "_losses", "_none", "_reorders_until", "_timing")

    def __init__(self, timing: RoundTrip, controller: Controller | None) -> None:
        self._timing = timing
        self._controller = controller
        self._cuts = 1
        self._losses = 0
        """Those since the latest cut that have not turned out to be none."""
        self._none = 0
        """Losses that turned out to be none since the latest cut, whichever cut they counted for."""
        self._reorders_until = 0
        self._latest_us = 0
        """The oldest that such a packet was, and an eighth more."""

    def reordered_us(self) -> int:
        """Return how old a packet that was overtaken must be to be lost; 0 where nothing was reordered lately."""
        if self._cuts >= self._reorders_until:
            return 0
        late_us = self._timing.late_us
        return min(max(late_us + (late_us >> 2), self._latest_us), 2 * late_us)

    def lost(self, run: Run, now_us: int) -> bool:
        """Count the first loss of packets against the path; return whether that cut the window."""
        cut = self._controller is not None and self._controller.lost(run.sent_us[0], now_us)
        if cut:
            self._cuts += 1
            self._losses = self._none = 0
        self._losses += run.count
        run.cut = self._cuts
        return cut

    def timed_out(self, sent_us: int, now_us: int) -> None:
        """Have the controller judge the path anew; what was lost before has no cut left to undo."""
        if self._controller is not None:
            self._controller.timed_out(sent_us, now_us)
            self._cuts += 1

    def absolve(self, cut: int, count: int) -> None:
        """Take back that losses counted for a cut; the cut itself when no more count than there were none."""
        if cut == self._cuts:
            self._losses -= count
            if self._losses <= self._none and self._controller is not None:
                self._controller.undo()
                self._cuts += 1  # what else was lost then has no cut left to undo

    def spurious(self, cut: int, count: int, age_us: int) -> None:
        """Take that the first transmission of packets which were taken for lost had arrived, at that age."""
        self._latest_us = max(self._latest_us if self.reordered_us() else 0, age_us + (age_us >> 3))
        self._reorders_until = self._cuts + REORDERS_FOR
        self._none += count
        self.absolve(cut, count)
