"""Loss recovery in time: when something is due, what is probed when nothing comes back, and what is given up.

This class is for packets that are acknowledged one by one; `marks.py` adds what a cumulative mark needs, `parts.py`
what messages of several parts need.

*Nothing comes back.* One timer for the whole conversation, from the latest progress: when it runs out, one packet (the
lowest where the peer needs it first, else the one that left first) is probed outside the window, and the time doubles;
from the second time on another packet follows a little later. A probe cuts no window: its acknowledgement tells what
was lost, as `transmissions.py` says. With it a few new packets leave beyond the window, twice as many each time:
perhaps the peer takes none of those that fill it. Their losses cut nothing either. Only the second time-out in a row
has the controller judge the path anew.

Left out: what a packet says, and when a conversation begins and ends. Handshakes, heartbeats and pings are not here.
"""

from __future__ import annotations

from fairway.core.recovery.runs import FLYING, LOST, NEVER, Run, Stream
from fairway.core.recovery.transmissions import UNLIMITED, Kind, Transmissions

__all__ = ["UNLIMITED", "Kind", "Recovery"]

SECOND_PROBE_US = 30_000
"""How much later another packet follows a probe: answers may be held back for 20 ms, and one would do for both."""
SPARE_MAX = 64
"""New packets that leave after a time-out at the most."""


class Recovery(Transmissions):
    """The loss recovery of one conversation."""

    def next_us(self) -> int:
        """Return when `wake` is due."""
        flight, kind = self._flight, self._kind
        due_us = min(self._overdue_us, self._evidence.doubt_us, self._life_us, flight.next_due_us())
        if not flight.left:
            return due_us
        if kind.by_name and (flight.in_flight or flight.settled or self._has_suspects):
            due_us = min(due_us, self._probe_us())
        return min(due_us, self.heard_us + kind.silence_us, self.progress_us + kind.stall_us)

    def gives_up(self, now_us: int) -> bool:
        """Return whether the peer has been silent, or has said nothing new, for too long while something waits."""
        kind = self._kind
        over = now_us >= self.heard_us + kind.silence_us or now_us >= self.progress_us + kind.stall_us
        return over and self._flight.left > 0

    def wake(self, now_us: int) -> list[Run]:
        """Do what is due, and return the packets that are given up."""
        spent: list[Run] = []
        while (run := self._flight.pop_due(now_us)) is not None:
            if self._is_spent(run, now_us):
                spent.append(run)
                self._leave(run, run.count)
            else:
                self._come_due(run, now_us)
        if now_us >= self._evidence.doubt_us:
            self._evidence.conclude()
            self._concluded(now_us)
        elif now_us >= self._overdue_us:
            self._detect(now_us)
        if now_us >= self._life_us:
            spent.extend(self._outlived(now_us))
        flight = self._flight
        waits = flight.in_flight or flight.settled or (self._has_suspects and flight.left)
        if self._kind.by_name and waits and now_us >= self._probe_us():
            self._probe(now_us)
        return spent

    def _concluded(self, now_us: int) -> None:
        self._detect(now_us)

    def _is_spent(self, run: Run, now_us: int) -> bool:
        kind = self._kind
        return len(run.sent_us) >= kind.transmissions_max or now_us >= run.sent_us[0] + kind.life_us

    def _come_due(self, run: Run, now_us: int) -> None:
        """Have a run leave whose own timer has run out."""
        if not self._kind.by_name:
            if run.state == FLYING:
                self._lose(run, now_us, blame=self._time_tells())
            self._flight.urge(run)
        elif self._waits_for_room(run) and now_us < self.progress_us + self.timing.delay_us:
            self._flight.arm(run, now_us + self._alone_us(run.losses - 1))
        else:
            self._have_leave(run)

    def _outlived(self, now_us: int) -> list[Run]:
        """Take off and return what has reached the end of its life."""
        self._life_us = NEVER
        found: list[Run] = []
        for run in [run for stream in self.streams.values() for run in stream.runs()]:
            over_us = run.sent_us[0] + self._kind.life_us
            if over_us <= now_us:
                found.append(run)
                self._leave(run, run.count)
            else:
                self._life_us = min(self._life_us, over_us)
        return found

    def _probe_us(self) -> int:
        """Return when to probe if nothing new comes."""
        timing, kind = self.timing, self._kind
        delay_us = timing.backed_off_us(self._backoffs, kind.backoff_us_max) if self._backoffs else timing.delay_us
        return self._base_us + delay_us + (kind.held_us if timing.smoothed_us else 0)

    def _probe(self, now_us: int) -> None:
        """Retransmit one packet because nothing new came for too long."""
        spoke, self._base_us = self.heard_us > self._base_us, now_us
        run = self._probed()
        if run is None:
            return
        if self._may_be_answered(run, now_us):
            self._base_us = run.sent_us[-1]
            return
        flight, stream = self._flight, run.stream
        self._backoffs += 1
        stream.probed_us = now_us
        self._spare = min(1 << self._backoffs, SPARE_MAX) if self._passes_by else 0
        if self._backoffs == 2 and flight.in_flight > 1 and self.timing.smoothed_us:
            self._blame.timed_out(run.sent_us[-1], now_us)
        self._make_room(run, now_us, spoke=spoke)
        flight.ground(run)
        flight.urge(run)
        highest = stream.highest() if self.is_stalled else run.first
        if highest > run.first:
            # On a path that loses much most probes get no answer: a second one asks for another.
            other = flight.only(highest, stream.find(highest))
            flight.ground(other)
            other.state = LOST
            flight.arm(other, now_us + SECOND_PROBE_US)

    def _may_be_answered(self, run: Run, now_us: int) -> bool:
        """Return whether a packet has just been repaired, so that a probe would come too early."""
        return run.sent_us[-1] + self.timing.delay_us > now_us

    def _make_room(self, run: Run, now_us: int, *, spoke: bool) -> None:
        """Do what else a time-out means; `spoke` says that the peer is there and repeats what is known."""

    def _probed(self) -> Run | None:
        """Choose the packet to probe with."""
        if self._kind.ordered:
            return self._lowest_of(next(iter(self.streams.values()), None))
        run = self._flight.head.following
        return self._flight.next_due() if run is self._flight.head else self._flight.only(run.first, run)

    def _lowest_of(self, stream: Stream | None) -> Run | None:
        lowest = None if stream is None else stream.lowest()
        return None if stream is None or lowest is None else self._flight.only(lowest, stream.find(lowest))
