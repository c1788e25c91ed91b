"""Where packets are between their transmission and their acknowledgement.

    FLYING    in the network, as far as is known: counted in the window, in a ring by the order of transmission
    SETTLED   no longer in the network, arrived or not: only a mark will tell
    LOST      leaves again when window and pacing let it, the lowest first, or when its own timer runs out
    URGENT    leaves again now, whatever window and pacing say
    OVER      acknowledged or given up

A run is always whole in one of them; what happens to a part of it only splits it.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from fairway.core.recovery.runs import FLYING, LOST, NEVER, OVER, SETTLED, URGENT, Run, Stream

STALE_MAX = 64
"""Timers that count no more, beyond as many as there are packets, before they are cleared out."""


class Flight:
    """The runs of one recovery, wherever they are."""

    __slots__ = ("_serial", "head", "in_flight", "left", "lost", "order", "peak", "settled", "timers", "urgent")

    def __init__(self) -> None:
        self.head = Run(Stream(), 0, 0, b"", 1, 0, 0, 0)
        """The ring of what is in the network, in the order of the latest transmissions."""
        self.in_flight = 0
        self.settled = 0
        """Packets that were in the network, and are not told of."""
        self.left = 0
        """Packets that wait for their acknowledgement, wherever they are."""
        self.peak = 0
        """What was in flight when the latest packet left: whether the window was used, asked after some came back."""
        self.order = 0
        """That of the next transmission."""
        self.urgent: deque[Run] = deque()
        self.lost: list[tuple[int, int, int, Run]] = []
        """Heap by serial of the stream and number."""
        self.timers: list[tuple[int, int, Run]] = []
        """Heap of the times that runs wait for by themselves."""
        self._serial = 0

    # In the network, or out of it.

    def left_before(self, sent_us: int) -> list[Run]:
        """Return what is in the network and left at that time or before, in that order."""
        found: list[Run] = []
        run = self.head.following
        while run is not self.head and run.sent_us[-1] <= sent_us:
            found.append(run)
            run = run.following
        return found

    def before(self, order: int) -> list[Run]:
        """Return what is in the network and left before the transmission of that order."""
        found: list[Run] = []
        run = self.head.following
        while run is not self.head and run.order < order:
            if run.order + run.count > order:
                self.split(run, run.first + order - run.order)
            found.append(run)
            run = run.following
        return found

    def launch(self, run: Run) -> None:
        """Put a transmission that leaves now into the network."""
        head = self.head
        last = head.preceding
        last.following = run
        run.preceding = last
        run.following = head
        head.preceding = run
        run.state = FLYING
        self.in_flight = self.peak = self.in_flight + run.count

    def unlink(self, run: Run) -> None:
        run.preceding.following = run.following
        run.following.preceding = run.preceding
        self.in_flight -= run.count

    def settle(self, run: Run) -> None:
        """Take a run out of the network whose fate is unknown until the mark tells."""
        if run.state == FLYING:
            self.unlink(run)
            run.state = SETTLED
            self.settled += run.count

    def ground(self, run: Run) -> None:
        """Take a run out of the network, or of what is settled; the caller says where it is from now on."""
        if run.state == FLYING:
            self.unlink(run)
        elif run.state == SETTLED:
            self.settled -= run.count

    def leave(self, run: Run, count: int) -> None:
        """Take the first packets of a run out of everything, all of them or fewer."""
        self.left -= count
        run.stream.left -= count
        if run.state == SETTLED:
            self.settled -= count
        if count == run.count:
            if run.state == FLYING:
                self.unlink(run)
            run.stream.remove(run)
            run.state = OVER
        else:
            if run.state == FLYING:
                self.in_flight -= count
            run.stream.trim(run, count)

    # Leaving again.

    def queue(self, run: Run) -> None:
        """Have a run leave as soon as window and pacing let it."""
        run.state = LOST
        run.again_us = NEVER
        self._serial += 1
        heappush(self.lost, (run.stream.serial, run.first, self._serial, run))

    def urge(self, run: Run) -> None:
        run.state = URGENT
        run.again_us = NEVER
        self.urgent.append(run)

    def next_urgent(self) -> Run | None:
        while self.urgent:
            run = self.urgent.popleft()
            if run.state == URGENT:
                return run
        return None

    def next_lost(self, room: int, serial_max: int) -> Run | None:
        """Take out the lowest run that waits for window and pacing, no more of it than there is room for."""
        while self.lost:
            run = self.lost[0][3]
            if run.state == LOST and run.again_us == NEVER:
                if room <= 0 or run.stream.serial > serial_max:
                    return None
                heappop(self.lost)
                if run.count > room:
                    self.split(run, run.first + room)
                return run
            heappop(self.lost)
        return None

    # Timers of runs.

    def arm(self, run: Run, due_us: int) -> None:
        """Have `pop_due` return a run at that time, unless it leaves or ends before."""
        run.again_us = due_us
        self._serial += 1
        heappush(self.timers, (due_us, self._serial, run))
        if len(self.timers) > 2 * self.left + STALE_MAX:
            self.timers[:] = sorted(entry for entry in self.timers if _is_live(entry))

    def next_due_us(self) -> int:
        timers = self.timers
        while timers:
            if _is_live(timers[0]):
                return timers[0][0]
            heappop(timers)
        return NEVER

    def next_due(self) -> Run | None:
        return self.timers[0][2] if self.next_due_us() < NEVER else None

    def pop_due(self, now_us: int) -> Run | None:
        """Take out a run whose timer has run out."""
        if self.next_due_us() > now_us:
            return None
        run = heappop(self.timers)[2]
        run.again_us = NEVER
        return run

    # Pieces of runs.

    def split(self, run: Run, at: int) -> Run:
        """Cut a run in two and return the second, which is wherever the first is."""
        right = run.stream.split(run, at)
        if run.state == FLYING:
            right.preceding, right.following = run, run.following
            run.following.preceding = right
            run.following = right
        elif run.state == URGENT:
            self.urgent.append(right)
        if run.again_us != NEVER:
            self.arm(right, run.again_us)
        elif run.state == LOST:
            self.queue(right)
        return right

    def only(self, number: int, run: Run | None) -> Run:
        """Return the run of just this packet, cut out of the one it is in."""
        assert run is not None
        if run.first < number:
            run = self.split(run, number)
        if run.count > 1:
            self.split(run, number + 1)
        return run


def _is_live(entry: tuple[int, int, Run]) -> bool:
    due_us, _, run = entry
    return run.again_us == due_us and run.state != OVER
