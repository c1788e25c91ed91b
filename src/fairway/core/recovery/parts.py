"""Loss recovery of messages in parts: a stream a message, several at once, and a peer that asks for parts by name.

*What has left the network.* A path keeps the order, more or less. So when a packet arrived that left once, what left
before it has left the network, of all streams, also beyond their marks. A request says that the packet is missing
although a later one has come, so what left before it has arrived, or is asked for as well. What a time-out followed may
all have been lost. While anything asked for is missing, what is older than the time-out has left the network, too.

*Asked for by name.* A request is answered if it can speak of the packet's latest transmission, after the first time
once a round trip. Also a packet below the mark may be asked for (a *stray*); it is in flight until the next word.

*A peer that polls* asks for the next packet that it misses, on its way or not. It is known by a request that comes
sooner than a round trip after the packet first left; what it asked for before that was not lost, so the cut is undone.
From then on a request counts when the packet is older than nearly all acknowledgements are, and not before.

*Ignored streams.* A stream that was never answered although later ones are is withheld; one of a single packet only
where the peer is known to ignore some. It is ignored for one of two reasons. The peer may have had no room: then those
that were ignored leave again ahead of anything new, the oldest first, as many as `slots.py` allows, and each whole: a
single packet would take a slot, which the peer keeps from all others until the rest has come. What left after a packet
that such a peer lacks was ignored as well, and does not wait for a time-out. Or the peer never takes it, because it is
too large: so it seems if it is longer than all that were answered, or if it left several times when there was room.
Then it is *hopeless*: one packet probes for it, outside the window, with a back-off of its own, and new streams do not
wait.

*At the mark nothing stays settled* once something that left later has arrived. Only a probe would have it leave again:
while another stream makes progress there is none, and a probe for each of many streams would take a time-out for each.

*The tail.* No later packet shows that the end of what there is to send was lost, and nobody can ask for it. So the
first probe does not wait for a whole time-out there.
"""

from __future__ import annotations

from collections import deque

from fairway.core.recovery.congestion import Controller
from fairway.core.recovery.evidence import OVERTAKEN_BY, asked_after_us
from fairway.core.recovery.marks import MarkRecovery, probed_us
from fairway.core.recovery.recovery import UNLIMITED, Kind
from fairway.core.recovery.runs import (
    ATTEMPTS_MAX,
    FLYING,
    LOST,
    NEVER,
    OVER,
    SETTLED,
    URGENT,
    Acknowledged,
    Run,
    Stream,
)
from fairway.core.recovery.slots import Slots
from fairway.core.recovery.timing import RoundTrip
from fairway.core.statistics import Statistics

REQUESTS_MAX = 1_024
"""Packets of one stream that wait to leave because they were asked for, and of those acknowledged before."""
AGAIN_US_MIN = 3_000
"""A packet is not retransmitted sooner for being asked for again: on a short path the peer's work takes longer."""


class PartRecovery(MarkRecovery):
    """The loss recovery of several messages in parts."""

    def __init__(
        self,
        kind: Kind,
        timing: RoundTrip,
        controller: Controller | None,
        statistics: Statistics,
        *,
        ahead_max: int = UNLIMITED,
    ) -> None:
        super().__init__(kind, timing, controller, statistics)
        self.slots = Slots(ahead_max)
        self._is_tail = False
        """Whether there is nothing more to send."""
        self._probes_begun = False
        """Whether the latest probe was meant for a stream that the peer has answered."""
        self._asks = False
        """Whether the peer has ever asked for a packet."""
        self._polls = False
        """Whether the peer asks for packets that it cannot miss yet."""
        self._polled_us = 0
        """The youngest packet by which that was judged."""
        self._front = -1
        """What left before the transmission of that order has left the network: it arrived, or a later one did."""
        self._doubted = 0
        """What left before, by order, was followed by a time-out: much of it may have been lost."""
        self._aged: deque[tuple[int, int]] = deque()
        """Packets that were settled because they are old, by order, and how many: arrived only if a later one did."""
        self._missed = 0
        """Those of them that were asked for since."""
        self._holes = 0
        """Packets that the peer has asked for and not acknowledged."""
        self._ignored: dict[int, Run] = {}
        """By serial of its stream, the one packet that probes for an ignored stream."""
        self._late: deque[tuple[int, Run]] = deque()
        """Runs that were settled because they are old, in the order of the transmission that was."""
        self._commit_us = 0
        """How long the peer's application takes for a message before its end is acknowledged."""
        self._finished = [-1] * OVERTAKEN_BY
        """The highest serials of streams that were acknowledged whole, ascending."""

    @property
    def answer_us(self) -> int:
        """How long the first answer to the stream that left last takes: many packets are answered without delay."""
        smoothed_us = self.timing.smoothed_us
        held_us = 0 if self.slots.many_left else self._kind.held_us
        return smoothed_us + max(smoothed_us >> 3, AGAIN_US_MIN) + held_us

    # What the peer says.

    def acknowledge_to(self, stream: Stream, mark: int, now_us: int, *, prompt: bool = True) -> list[Acknowledged]:
        pieces = super().acknowledge_to(stream, mark, now_us, prompt=prompt)
        if pieces and not prompt:
            self._take_commit(pieces[-1].run, now_us)
        return pieces

    def _take_commit(self, run: Run, now_us: int) -> None:
        """Measure how much longer than a round trip the end of a stream took. Of one that left again it is not known
        which was answered, and it may have waited for room: there two time-outs are believed at the most."""
        timing = self.timing
        took_us = now_us - run.sent_us[0] - timing.smoothed_us
        if len(run.sent_us) > 1:
            took_us = min(took_us, 2 * timing.delay_us)
        self._commit_us = min(max(self._commit_us - (self._commit_us >> 3), took_us), self._kind.backoff_us_max)

    def _held_us(self, run: Run) -> int:
        is_end = run.stream.last > 0 and self._told_at_once(run)
        return self._commit_us if is_end else super()._held_us(run)

    def heard(self, stream: Stream, now_us: int) -> None:
        """Take a valid word of the peer about a stream, before what it says; the first one is progress."""
        self.heard_us = now_us
        if stream.strays:
            self._land_strays(stream)
        if not stream.answered:
            self._learned(stream, now_us)

    def _learned(self, stream: Stream, now_us: int) -> None:
        super()._learned(stream, now_us)
        if not stream.answered:
            stream.answered = True
            self.slots.answered(stream)
            probe = self._heed(stream)
            if probe is not None and probe.state == LOST and probe.again_us != NEVER:
                self._flight.queue(probe)
            self._release(stream)

    def requested(self, stream: Stream, number: int, now_us: int) -> str:
        """Take that the peer asks for a packet by name; return why that is dropped, or an empty string."""
        flight, timing, below = self._flight, self.timing, number < stream.mark
        self._asks = True
        run = self._stray(stream, number, now_us) if below else stream.find(number)
        if run is None:
            return "requests_full" if below else ""
        if run.state in (LOST, URGENT):
            run = flight.only(number, run)
            self._named(run, now_us)
            if run.again_us != NEVER:
                flight.queue(run)
            return ""
        age_us = now_us - run.sent_us[-1]
        if 8 * age_us < 7 * (timing.least_us or timing.smoothed_us) and len(run.sent_us) == 1:
            if not self._polls and self._controller is not None:
                self._controller.undo()
            self._polled_us = min(age_us, self._polled_us) if self._polls else age_us
            self._polls = True
        elif self._polls and 0 < timing.least_us <= self._polled_us:
            self._polls = False  # it only seemed so by a round trip that was measured too long
        if not timing.smoothed_us and not below:  # where all is asked for, nothing is measured
            timing.bound(min(now_us - run.sent_us[0], timing.delay_us))
        if age_us < timing.least_us or (run.named and age_us < max(timing.smoothed_us, AGAIN_US_MIN)):
            return "request_too_soon"
        if stream.requested >= REQUESTS_MAX:
            return "requests_full"
        run = run if below else flight.only(number, run)
        due_us = run.sent_us[-1] + timing.late_us + self._kind.held_us
        if below or due_us <= now_us or not self._polls:
            self._believe(run, now_us)
        elif run.again_us == NEVER:
            flight.arm(run, due_us)
        return ""

    def _believe(self, run: Run, now_us: int) -> None:
        """Take a packet for lost because the peer asks for it."""
        stream, below = run.stream, run.first < run.stream.mark
        order = run.orders[0] + run.first - run.base
        landed = -1 if below else self._settle_before(order, stream)
        if landed >= 0 and order >= self._doubted and not self._polls and self._controller is not None:
            rtt_us = 0 if run.named else asked_after_us(run, self.timing.least_us, now_us)
            departed = 0 if run.departure is None else run.departure.order
            self._controller.delivered(landed, run.departure, departed, self._flight.in_flight, rtt_us, now_us)
        self._named(run, now_us)
        run.requested = True
        run.sure = len(run.sent_us)
        stream.requested += 1
        self._statistics.repairs += 1
        self._lose(run, now_us, blame=not below)
        if run.again_us != NEVER:
            self._flight.queue(run)
        if self.slots.is_full:
            self._ignore_after(order, now_us)
        self._detect(now_us)

    def _named(self, run: Run, now_us: int) -> None:
        """Take that the peer asks for a packet: the first time it is progress, unless it was acknowledged before."""
        if not run.named and run.first >= run.stream.mark:
            self._holes += 1
            if run.landed and run.order >= self._front:  # it was not told yet
                run.landed = False
                self._missed += 1
            self._learned(run.stream, now_us)
        run.named = True

    def _is_latest(self, run: Run) -> bool:
        return run.sure == len(run.sent_us) - 1 if self._asks and not self._polls else super()._is_latest(run)

    def _left_at_once(self, piece: Acknowledged) -> bool:
        """Return whether more left soon after these packets: with its arrival the answer would not have waited."""
        following, last_us = piece.run.stream.find(piece.first + piece.count), piece.run.sent_us[-1]
        return following is not None and following.sent_us[0] - last_us <= max(AGAIN_US_MIN, self.timing.least_us >> 2)

    def _land(self, order: int) -> int:
        if self._polls:  # which transmission arrived is a guess where the peer asks for what is under way
            return -1 if self._holes else 0
        return self._settle_before(order)

    def _settle_before(self, order: int, stream: Stream | None = None) -> int:
        """Take out of the flight what left before a transmission, of all streams or of one; return how much of it
        arrived and was not told of, or -1 if nothing is new."""
        if order <= self._front and not self._polls:
            return -1
        self._front, landed = order, 0
        while self._aged and self._aged[0][0] < order:
            landed += self._aged.popleft()[1]
        for run in self._flight.before(order):
            # Others the peer may have ignored; the end of a stream it may have had no room for.
            if run.stream.answered and stream in (None, run.stream) and not self._told_at_once(run):
                self._flight.settle(run)
                landed += self._landed(run)
        missed = min(landed, self._missed)
        self._missed -= missed
        return landed - missed

    def _landed(self, run: Run) -> int:
        """Return how many packets of a run, which has left the network, the controller is to be told of."""
        if run.landed or self._polls or run.order < self._doubted:
            return 0
        run.landed = True
        return run.count

    def _detect(self, now_us: int) -> None:
        super()._detect(now_us)
        if self._late:
            self._lose_late(now_us)
        if self._holes:
            for old in self._flight.left_before(now_us - self.timing.delay_us):
                self._lose_by_time(old, now_us)
            run = self._flight.head.following
            if run is not self._flight.head:
                self._overdue_us = min(self._overdue_us, run.sent_us[-1] + self.timing.delay_us)
        if self._ignored:
            self._offer_ignored(now_us)

    def _stray(self, stream: Stream, number: int, now_us: int) -> Run | None:
        """Return a run for a packet that was acknowledged and is asked for all the same; None if there are too many."""
        strays = stream.strays
        run = strays.get(number)
        if run is None and len(strays) >= REQUESTS_MAX:
            # Those that have landed are kept only to tell when they may leave again.
            again_us = max(self.timing.smoothed_us, AGAIN_US_MIN)
            for old in [one for one in strays.values() if one.state == OVER and one.sent_us[-1] + again_us <= now_us]:
                del strays[old.first]
        if run is None and len(strays) < REQUESTS_MAX:
            run = strays[number] = Run(stream, number, 1, b"", 1, 0, -NEVER, -1)
            run.state = OVER
        return run

    def _is_stray(self, run: Run) -> bool:
        return run.stream.strays.get(run.first) is run

    def _land_strays(self, stream: Stream) -> None:
        """Take out of the flight what was acknowledged and sent again, now that the peer has spoken since."""
        for run in stream.strays.values():
            if run.state in (FLYING, SETTLED):
                self._flight.ground(run)
                run.state = OVER

    def _leave(self, run: Run, count: int) -> None:
        stream, whole = run.stream, count == run.count
        super()._leave(run, count)
        if whole:
            stream.requested -= run.requested
            self._holes -= run.named
            run.requested = run.named = False
        if not stream.left:
            self._heed(stream)

    def _retransmit(self, run: Run, now_us: int) -> None:
        if run.requested:
            run.requested = False
            run.stream.requested -= 1
        if run.stream.serial in self._ignored:
            self._count_attempt(run, now_us)
        super()._retransmit(run, now_us)
        if self._is_stray(run):  # whoever asked may be gone, and nothing else would end its flight
            self._flight.arm(run, now_us + self.timing.delay_us)
        if run.stream.serial in self._ignored:
            self._flight.ground(run)
            self._probe_ignored(run, now_us)

    # Streams that the peer ignores.

    def _settle_old(self, now_us: int) -> None:
        if not self._flight.settled:
            self._late.clear()
        for run in self._flight.left_before(now_us - self.timing.delay_us):
            if self._is_unheard(run.stream):
                self._ignore(run.stream, now_us)
            else:
                self._flight.settle(run)
                self._late.append((run.order, run))

    def _lose_late(self, now_us: int) -> None:
        """Take what was settled for its age, and stands at a mark, for lost once something that left later arrived."""
        late, top = self._late, self._evidence.top[-1]
        while late and late[0][0] < top:
            run = late.popleft()[1]
            if run.state == SETTLED and run.first == run.stream.mark and run.order < top:
                self._lose(self._flight.only(run.first, run), now_us, blame=False)

    def finished(self, stream: Stream, now_us: int) -> None:
        """Take that a stream was acknowledged whole: a peer that had no slot for another may have one now."""
        if stream.serial > self._finished[0]:
            self._finished[0] = stream.serial
            self._finished.sort()
        if self._ignored:
            self._offer_ignored(now_us)

    def _offer_ignored(self, now_us: int) -> None:
        """Have ignored streams leave again if the peer has room, the oldest first."""
        slots = self.slots
        if slots.ahead <= 0 or not slots.is_free(now_us):
            return
        for probe in [probe for _, probe in sorted(self._ignored.items()) if self._leaves_whole(probe.stream, now_us)]:
            self._offer(probe, now_us)
            if slots.ahead <= 0 or not slots.is_free(now_us):
                return

    def _leaves_whole(self, stream: Stream, now_us: int) -> bool:
        """Return whether an ignored stream leaves again whole: also a hopeless one before it is given up, because the
        probes of one may always come when another has the slot."""
        waits_us, stall_us = now_us - stream.progress_us, self._kind.stall_us
        may_be_taken = not stream.is_hopeless or (waits_us > stall_us // 4 and stream.last < self.slots.longest)
        return may_be_taken and waits_us < stall_us

    def _offer(self, probe: Run, now_us: int) -> None:
        """Have a stream that the peer ignored leave again whole."""
        self._count_attempt(probe, now_us)
        self._heed(probe.stream)
        self._release(probe.stream)
        self._flight.queue(probe)

    def _count_attempt(self, probe: Run, now_us: int) -> None:
        """Count that an ignored stream leaves while the peer has room for it, as far as is known."""
        slots, stream = self.slots, probe.stream
        if slots.is_free(now_us):
            was_hopeless = stream.is_hopeless
            stream.attempts += 1 if slots.has_open or slots.offered else 3
            slots.hopeless += stream.is_hopeless - was_hopeless

    def _heed(self, stream: Stream) -> Run | None:
        """Take that a stream is ignored no more, or gone; return its probe."""
        probe = self._ignored.pop(stream.serial, None)
        if probe is not None:
            self.slots.heed(stream)
        return probe

    def _is_unheard(self, stream: Stream) -> bool:
        """Return whether a stream may be one that the peer ignores: one of a single packet where it does that."""
        return not stream.answered and (stream.last > 0 or self.slots.is_bounded)

    def _judge_mark(self, stream: Stream, now_us: int) -> None:
        if self._holes and not self._polls:  # the peer says what it misses beyond the mark
            stream.burst = 0
        super()._judge_mark(stream, now_us)
        if self._flight.settled:
            self._unsettle_mark(stream, now_us)

    def _unsettle_mark(self, stream: Stream, now_us: int) -> None:
        """Have what is settled at the mark leave again, a time-out after its last transmission."""
        run = stream.find(stream.mark)
        if run is None or run.state != SETTLED:
            return
        run = self._flight.only(stream.mark, run)
        due_us = run.sent_us[-1] + self.timing.delay_us
        if due_us <= now_us:
            self._lose(run, now_us, blame=False)
        else:
            self._flight.ground(run)
            run.state = LOST
            self._flight.arm(run, due_us)

    def _lose(self, run: Run, now_us: int, *, blame: bool, at_once: bool = False) -> None:
        if run.stream.last == 0 and self._is_unheard(run.stream):
            self._ignore(run.stream, now_us)
        else:
            super()._lose(run, now_us, blame=blame, at_once=at_once)

    def _lose_by_time(self, run: Run, now_us: int) -> None:
        if self._is_unheard(run.stream):
            self._ignore(run.stream, now_us)
        else:
            if landed := self._landed(run):
                self._aged.append((run.order, landed))
            super()._lose_by_time(run, now_us)

    def _ignore(self, stream: Stream, now_us: int) -> None:
        """Withhold all packets of a stream that the peer ignores but the one at the mark, which probes for it."""
        if stream.serial in self._ignored:
            return
        probe = self._flight.only(stream.mark, stream.find(stream.mark))
        stream.withheld = [run for run in stream.runs() if run is not probe]
        carried = sum(run.count for run in stream.runs() if run.state == FLYING)
        for run in stream.withheld:
            self._leave(run, run.count)
        self._flight.ground(probe)
        self._ignored[stream.serial] = probe
        if 0 < self.slots.longest <= stream.last:  # before the first answer the peer may as well be gone
            stream.attempts += ATTEMPTS_MAX if not self.slots.is_bounded else 0 if stream.behind else 3
        self.slots.ignore(stream, now_us)
        if self._controller is not None and stream.is_hopeless:  # the path is not to blame
            self._controller.delivered(carried, None, 0, self._flight.in_flight, 0, now_us)
        self._probe_ignored(probe, probe.sent_us[-1])
        if probe.again_us <= now_us:
            self._flight.urge(probe)

    def _ignore_after(self, order: int, now_us: int) -> None:
        """Take streams for ignored that left after a packet which is missing: the peer had no slot for them. What of
        them arrives after the repair would only have the next ones ignored in turn."""
        for stream in list(self.streams.values()):
            if self._is_unheard(stream) and not stream.ignored:
                run = stream.find(stream.mark)
                if run is not None and run.state == FLYING and run.order > order:
                    self._ignore(stream, now_us)

    def _release(self, stream: Stream) -> None:
        """Have what was withheld leave again. The peer may still acknowledge the transmissions before."""
        for run in stream.withheld:
            run.losses += 1
            stream.add(run)
            stream.left += run.count
            self._flight.left += run.count
            self._flight.queue(run)
        stream.withheld = []

    def _probe_ignored(self, run: Run, sent_us: int) -> None:
        """Keep the probe of an ignored stream out of the flight: what is never answered must not fill the window."""
        run.state = LOST
        run.losses += 1
        self._flight.arm(run, sent_us + self._alone_us(run.losses - 1))

    def _come_due(self, run: Run, now_us: int) -> None:
        if self._is_stray(run):
            self._land_strays(run.stream)
        elif run.stream.serial in self._ignored:
            if self._backoffs or run.stream.is_hopeless:
                self._flight.urge(run)  # where nothing comes back, this may be the one that has a slot
            elif self.slots.ahead > 0:
                self._offer(run, now_us)
            else:  # one that was offered may still be answered
                self._flight.arm(run, now_us + self.timing.delay_us)
        elif run.state in (FLYING, SETTLED):
            self._believe(run, now_us)
        else:
            super()._come_due(run, now_us)

    # Time.

    def note_tail(self, now_us: int, *, is_tail: bool) -> None:
        """Take whether there is nothing more to send. A tail begins when there was something before."""
        if is_tail and not self._is_tail:
            self._base_us = max(self._base_us, now_us)
        self._is_tail = is_tail

    def given_up(self, now_us: int) -> list[Stream]:
        """Return the streams that are given up because the peer is; those begun later get their own time."""
        if not self.gives_up(now_us):
            return []
        silent = now_us >= self.heard_us + self._kind.silence_us
        before_us = now_us - (self._kind.silence_us if silent else self._kind.stall_us)
        over = [stream for stream in self.streams.values() if stream.since_us <= before_us]
        kept = [stream.since_us for stream in self.streams.values() if stream.since_us > before_us]
        self.heard_us = min(kept, default=now_us)
        self.progress_us = max(self.progress_us, self.heard_us)
        return over

    def _is_spent(self, run: Run, now_us: int) -> bool:
        """Return whether a packet is given up: also one of a stream that three later ones have left behind."""
        left_behind = run.stream.serial < self._finished[0] and now_us >= run.stream.progress_us + self._kind.stall_us
        return not self._is_stray(run) and (left_behind or super()._is_spent(run, now_us))

    def _probe_us(self) -> int:
        due_us, timing = super()._probe_us(), self.timing
        if not self._is_tail or self._backoffs or not timing.least_us:
            return due_us
        round_trip_us = timing.smoothed_us + max(timing.smoothed_us >> 3, timing.variation_us)
        # The end may have left long after the latest progress, and is not late before its own round trip.
        left_us = max(self._base_us, self._flight.head.preceding.sent_us[-1])
        return min(due_us, left_us + max(AGAIN_US_MIN, 2 * round_trip_us))

    def _may_be_answered(self, run: Run, now_us: int) -> bool:
        return not self._is_tail and super()._may_be_answered(run, now_us)

    def _make_room(self, run: Run, now_us: int, *, spoke: bool) -> None:
        super()._make_room(run, now_us, spoke=spoke)
        self._doubted = self._flight.order
        if self._is_unheard(run.stream) and (self.timing.smoothed_us or self.is_stalled):
            self._ignore(run.stream, now_us)
        if self.slots.has_open:  # then that is what the peer waits for
            self._spare = 0
        elif not self.slots.longest:
            self.slots.widen(self._spare)

    def _probed(self) -> Run | None:
        """Choose in turn from what the peer has begun, first of all, and from what it may ignore; before all, what was
        acknowledged and is asked for again, because a window of one may never have room for it."""
        for stream in self.streams.values():
            for run in stream.strays.values():
                if run.state == LOST:
                    return run
        waiting = [stream for stream in self.streams.values() if stream.serial not in self._ignored]
        self._probes_begun = not self._probes_begun
        turn = [stream for stream in waiting if stream.answered is self._probes_begun]
        return self._lowest_of(min(turn or waiting or self.streams.values(), key=probed_us, default=None))

    def withdraw(self, stream: Stream) -> list[Run]:
        """Take everything of a stream off and return it."""
        self._release(stream)
        runs = super().withdraw(stream)
        self.slots.ended(stream)
        self._land_strays(stream)
        for run in stream.strays.values():
            run.state = OVER
        return runs
