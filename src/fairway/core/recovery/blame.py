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
REPAIRED_MAX = 256
"""Packets that may be acknowledged a second time, as far as they are remembered."""


class Blame:
    """The losses behind the latest cut of the window."""

    __slots__ = (
        "_controller", "_cuts", "_each", "_latest_us", "_losses", "_none", "_reorders_until", "_repaired", "_timing",
    )  # fmt: skip

    def __init__(self, timing: RoundTrip, controller: Controller | None, *, each: bool) -> None:
        self._timing = timing
        self._controller = controller
        self._each = each
        """Whether each packet is repaired and acknowledged by its name."""
        self._repaired: dict[int, tuple[int, int, int, int]] = {}
        """By number, of packets that left more than once and were acknowledged once, what `spurious` wants to know."""
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

    def spurious(self, cut: int, count: int, order: int, age_us: int) -> None:
        """Take that the first transmission of packets which were taken for lost had arrived, at that age."""
        if cut:
            self._latest_us = max(self._latest_us if self.reordered_us() else 0, age_us + (age_us >> 3))
            self._reorders_until = self._cuts + REORDERS_FOR
            self._none += count
            self.absolve(cut, count)
        if self._each and self._controller is not None:
            self._controller.missed(-count)
            self._controller.waited(order, age_us)

    def repaired(self, number: int, cut: int, order: int, age_us: int) -> None:
        """Take that a packet which left more than once was acknowledged, and nobody knows which transmission was."""
        if self._each:
            self._repaired[number] = (cut, 1, order, age_us)
            if len(self._repaired) > REPAIRED_MAX:
                del self._repaired[next(iter(self._repaired))]

    def acknowledged_again(self, number: int) -> None:
        """Take that a packet was acknowledged a second time: then its first transmission had arrived, too."""
        if number in self._repaired:
            self.spurious(*self._repaired.pop(number))
