"""Which losses count against the path, and what becomes of the window when they turn out to be none.

Only the first loss of a packet counts, until the packet is lost again while others arrive: then it is the packet that
the peer does not take, not the path. A loss was none when the first transmission is acknowledged after all. When all
losses behind the latest cut were none, the cut is undone; and from then on a packet that was overtaken waits as long as
the late one took before it counts as lost.
"""

from __future__ import annotations

from fairway.core.recovery.congestion import Controller
from fairway.core.recovery.runs import Run
from fairway.core.recovery.timing import RoundTrip


class Blame:
    """The losses behind the latest cut of the window."""

    __slots__ = ("_controller", "_cuts", "_losses", "_timing", "tolerance_us")

    def __init__(self, timing: RoundTrip, controller: Controller | None) -> None:
        self._timing = timing
        self._controller = controller
        self._cuts = 1
        self._losses = 0
        """Those since the latest cut that have not turned out to be none."""
        self.tolerance_us = 0
        """By how much more than a round trip an acknowledgement may be late without a loss, as far as was seen."""

    def lost(self, run: Run, now_us: int) -> bool:
        """Count the first loss of packets against the path; return whether that cut the window."""
        cut = self._controller is not None and self._controller.lost(run.sent_us[0], now_us)
        if cut:
            self._cuts += 1
            self._losses = 0
        self._losses += run.count
        run.cut = self._cuts
        return cut

    def timed_out(self, sent_us: int, now_us: int) -> None:
        """Have the controller judge the path anew; what was lost before has no cut left to undo."""
        if self._controller is not None:
            self._controller.timed_out(sent_us, now_us)
            self._cuts += 1

    def absolve(self, run: Run, count: int) -> None:
        """Take back that the loss of packets counted; the cut itself when no other loss is behind it."""
        if run.cut == self._cuts:
            self._losses -= count
            if not self._losses and self._controller is not None:
                self._controller.undo()

    def spurious(self, run: Run, count: int, age_us: int) -> None:
        """Take that the first transmission of packets which were taken for lost had arrived, at that age."""
        smoothed_us = self._timing.smoothed_us
        late_us = age_us - smoothed_us
        self.tolerance_us = min(smoothed_us, max(self.tolerance_us, late_us + (late_us >> 2), smoothed_us >> 3))
        self.absolve(run, count)
