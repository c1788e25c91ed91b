"""Loss recovery: what was transmitted, what became of it, and what leaves again.

The unit is the *transmission*, with its own rising order, like a packet number of QUIC: a retransmission has a new
order, so "later" always means "left later". A protocol maps each acknowledgement to ranges of packets and, where the
wire says so, to the exact transmission; what follows from it is decided here, for all protocols alike.

*Lost by later acknowledgements.* A packet is lost when three transmissions that left later have been acknowledged, or
when one has and the packet is older than its time-out. Where acknowledgements are cumulative, nothing is known of what
lies beyond the mark. So only the packet at the mark can be lost there: when a transmission that left at least three
later moved the mark to it, when three answers in a row repeat the mark, or when the peer asks for it by name. The
packets beyond leave the flight after a time-out (*settled*): they are no longer in the network, arrived or not.
If repairs move the mark only to the next missing packet, each lets two more leave: a peer that has thrown away
everything after a hole is then served as fast as slow start would.

*Nothing comes back.* One timer for the whole conversation, from the latest news: when it runs out, one packet (the
lowest where the peer needs it first, else the one that left first) is probed outside the window, and the time doubles.
A probe cuts no window: its acknowledgement tells what was lost, as above. Only the second time-out in a row has the
controller judge the path anew. An acknowledgement of a packet with several transmissions speaks of none that is younger
than the shortest round trip. If it may still speak of more than one, nothing is concluded for a quarter of a round
trip: acknowledgements of other first transmissions in that time show that the time-out was too short, not a loss.

*Only news counts.* What is newly acknowledged, or asked for the first time, restarts the timer and ends the back-off.
What repeats known facts restarts nothing; it shows that the peer is there (`heard_us`).

*One packet that is never answered* costs the others nothing: its first loss counts against the path until it is lost
again while others arrive, from then on it waits for its own doubled time-out, and meanwhile it is not in flight. A
stream of several packets that was never answered although later ones are is *ignored*: its packets are taken back but
for one that probes.

*Spurious losses.* A loss was none when an earlier transmission is acknowledged after all. When all losses behind a cut
were none, the cut is undone; and from then on a packet that was overtaken waits as long as the late one took.

*Packets repaired by timer only* (`by_name` off) have a timer each, and leave when it runs out, whatever the window.
That they were overtaken still takes them out of the flight and is told to the controller: it hears of a loss a round
trip after it. A timer that is shorter than the round trip tells it nothing.

Left out: what a packet says, and when a conversation begins and ends. Handshakes, heartbeats and pings are not here.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

from fairway.core.machine import Buffer
from fairway.core.recovery.congestion import Controller
from fairway.core.recovery.runs import FLYING, LOST, NEVER, OVER, SETTLED, URGENT, Acknowledged, Run, Stream
from fairway.core.recovery.timing import RoundTrip
from fairway.core.statistics import Statistics

OVERTAKEN_BY = 3
"""Later transmissions acknowledged before a packet counts as lost: reordering by less is common on real paths."""
UNLIMITED = 1 << 30
REQUESTS_MAX = 1_024
"""Packets of one stream that wait to leave because they were asked for, and of those acknowledged before."""
AGAIN_US_MIN = 3_000
"""A packet is not retransmitted sooner for being asked for again: on a short path the peer's work takes longer."""
SECOND_PROBE_US = 30_000
"""How much later: answers may be held back for 20 ms, and one would do for both."""
STALE_MAX = 64
"""Timers that count no more, beyond as many as there are packets, before they are cleared out."""


class Kind(NamedTuple):
    """What a kind of packet is to its recovery."""

    by_name: bool = True
    """Repaired by later acknowledgements and probes; otherwise each packet has its own timer and nothing else."""
    cumulative: bool = False
    """Acknowledged by a mark, below which everything has arrived."""
    ordered: bool = False
    """The peer needs the lowest packet first, so that one never waits for a back-off of its own."""
    sampled: bool = True
    """Its acknowledgements measure the round trip."""
    held_us: int = 0
    """How long the peer may hold an answer back: what is measured may not show it."""
    backoff_us_max: int = 3_000_000
    life_us: int = NEVER
    """From its first transmission: then it is given up."""
    transmissions_max: int = UNLIMITED
    silence_us: int = NEVER
    """Without a valid word of the peer while something waits: then all is given up."""
    stall_us: int = NEVER
    """Without news while something waits, likewise; a stream that others have left behind is given up alone."""


class Recovery:
    """The loss recovery of one conversation, for packets of one kind."""

    __slots__ = (
        "_again", "_backoffs", "_base_us", "_cumulative", "_cuts", "_doubt_order", "_doubt_sent_us", "_doubt_us",
        "_finals", "_finished", "_head", "_holes", "_ignored", "_kind", "_life_us", "_losses", "_lost", "_order",
        "_overdue_us", "_peak", "_probes_begun", "_sampled_us", "_serial", "_settled", "_statistics", "_tolerance_us",
        "_top", "_top_sent_us", "_urgent", "controller", "heard_us", "in_flight", "is_tail", "left", "news_us",
        "rewound", "streams", "timing",
    )  # fmt: skip

    def __init__(  # noqa: PLR0915  # each of these is told what it is
        self, kind: Kind, timing: RoundTrip, controller: Controller | None, statistics: Statistics
    ) -> None:
        self._kind = kind
        self._cumulative = kind.cumulative
        self.timing = timing
        self.controller = controller
        self._statistics = statistics
        self.streams: dict[int, Stream] = {}
        """By serial, oldest first: those that were transmitted and have packets without an acknowledgement."""
        self.rewound: list[Stream] = []
        """Streams that the peer ignores: all packets but the one at the mark count as never transmitted."""
        self.is_tail = False
        """Whether there is nothing more to send, and the end of what was sent is told at once: no later packet will
        show that it was lost, so the first probe does not wait for a whole time-out."""
        self.left = 0
        """Packets that wait for their acknowledgement, wherever they are."""
        self.in_flight = 0
        self._settled = 0
        self._holes = 0
        """Packets that the peer has asked for and not acknowledged. While there are any, a mark hides what arrives, and
        what is older than the time-out has left the network."""
        self._peak = 0
        """What was in flight when the latest packet left: whether the window was used, asked after some came back."""
        self._order = 0
        self._top = [-1] * OVERTAKEN_BY
        """The highest acknowledged orders, ascending."""
        self._finals = [-1] * OVERTAKEN_BY
        """The same of packets that were the last of their stream."""
        self._head = Run(Stream(), 0, 0, b"", 1, 0, 0, 0)
        """The flight: a ring of runs in the order of their latest transmissions."""
        self._urgent: list[Run] = []
        self._lost: list[tuple[int, int, int, Run]] = []
        """Heap by serial of the stream and number: the lowest leaves first."""
        self._again: list[tuple[int, int, Run]] = []
        """Heap of timers that runs have for themselves."""
        self._serial = 0
        self._ignored: dict[int, Run] = {}
        """By serial of its stream, the one packet that probes for an ignored stream."""
        self._finished = [-1] * OVERTAKEN_BY
        """The highest serials of streams that were acknowledged whole, ascending."""
        self.news_us = 0
        """When something new was last learned, or something first waited for it."""
        self.heard_us = 0
        """When the peer last said anything valid, or something first waited for it."""
        self._base_us = 0
        """From when the probe timer counts."""
        self._backoffs = 0
        self._probes_begun = False
        """Whether the latest probe was meant for a stream that the peer has answered."""
        self._overdue_us = NEVER
        """When the first packet that later ones have overtaken is lost by time."""
        self._life_us = NEVER
        """No packet reaches the end of its life earlier."""
        self._doubt_us = NEVER
        self._doubt_order = self._doubt_sent_us = -1
        """A transmission that was perhaps acknowledged, and when to conclude that it was."""
        # When the transmission left that was sampled last, and the latest one that is acknowledged.
        self._sampled_us = self._top_sent_us = -1
        self._cuts = 1
        self._losses = 0
        """Losses since the latest cut that have not turned out to be none."""
        self._tolerance_us = 0
        """By how much more than a round trip an acknowledgement may be late without a loss, as far as was seen."""

    # What leaves.

    def room(self, now_us: int) -> int:
        """Return how many packets window and pacing let leave now."""
        return UNLIMITED if self.controller is None else self.controller.room(self.in_flight, now_us)

    def next_room_us(self, now_us: int) -> int:
        """Return when time alone lets the next packet leave; `NEVER` if only an acknowledgement can."""
        due_us = None if self.controller is None else self.controller.next_room_us(self.in_flight, now_us)
        return NEVER if due_us is None else due_us

    def window_room(self) -> int:
        """Return how many packets the window lets leave, pacing left aside."""
        return UNLIMITED if self.controller is None else self.controller.window - self.in_flight

    @property
    def is_stalled(self) -> bool:
        """Whether nothing new came for two time-outs in a row, with what waits for an answer."""
        return self._backoffs > 1

    @property
    def has_lost(self) -> bool:
        """Whether something waits to be retransmitted for window or pacing only."""
        return bool(self._lost or self._urgent)

    def left_in_order(self, stream: Stream, first: int, count: int) -> bool:
        """Return whether these packets left before all others in flight, in this order, and once.

        Then their acknowledgements overtake nothing, and a range of them does what they do one by one.
        """
        run = self._head.following
        while count > 0 and run.stream is stream and run.first == first and len(run.sent_us) == 1:
            first += run.count
            count -= run.count
            run = run.following
        return count <= 0 and self._doubt_us == NEVER and not self.has_lost

    def sent(
        self,
        stream: Stream,
        first: int,
        count: int,
        now_us: int,
        data: Buffer = b"",
        segment_bytes: int = 1,
        token: int = 0,
    ) -> None:
        """Take new packets that leave now; numbers must be higher than all before."""
        run = Run(stream, first, count, data, segment_bytes, token, now_us, self._order)
        self._order += count
        if count == 1:
            stream.add_single(run)
        else:
            stream.add(run)
        if not stream.left:
            self.streams[stream.serial] = stream
            stream.news_us = stream.probed_us = now_us
            if self._cumulative and not stream.mark:
                stream.mark = first
        stream.left += count
        if not self.left:
            self.news_us = self.heard_us = now_us
        self.left += count
        self._life_us = min(self._life_us, now_us + self._kind.life_us)
        self._launch(run, now_us)

    def _launch(self, run: Run, now_us: int) -> None:
        """Put a transmission that leaves now into the flight."""
        if not self.in_flight and not self._settled:
            self._base_us = now_us
        head = self._head
        last = head.preceding
        last.following = run
        run.preceding = last
        run.following = head
        head.preceding = run
        run.state = FLYING
        self.in_flight = self._peak = self.in_flight + run.count
        if self.controller is not None:
            self.controller.sent(run.count, now_us)
        if not self._kind.by_name:
            delay_us = self.timing.backed_off_us(len(run.sent_us) - 1, self._kind.backoff_us_max)
            self._arm(run, min(now_us + delay_us, run.sent_us[0] + self._kind.life_us))

    def next_retransmission(self, now_us: int) -> Run | None:
        """Return packets that must leave again now, the most urgent and the lowest first; None if nothing may."""
        while self._urgent:
            run = self._urgent.pop(0)
            if run.state == URGENT:
                self._retransmit(run, now_us)
                return run
        while self._lost:
            run = self._lost[0][3]
            if run.state == LOST and run.again_us == NEVER:
                room = self.room(now_us)
                if room <= 0:
                    return None
                heappop(self._lost)
                if run.count > room:
                    self._split(run, run.first + room)
                self._retransmit(run, now_us)
                return run
            heappop(self._lost)
        return None

    def _retransmit(self, run: Run, now_us: int) -> None:
        run.sent_us.append(now_us)
        run.orders.append(self._order - (run.first - run.base))
        self._order += run.count
        if run.asked:
            run.asked = False
            run.stream.asked -= 1
        self._statistics.retransmissions += run.count
        if run.stream.serial in self._ignored:
            self._probe_ignored(run, now_us)
        else:
            self._launch(run, now_us)

    def _probe_ignored(self, run: Run, now_us: int) -> None:
        """Keep the probe of an ignored stream out of the flight: what is never answered must not fill the window."""
        run.state = LOST
        run.losses += 1
        self._arm(run, now_us + self.timing.backed_off_us(run.losses - 1, self._kind.backoff_us_max))

    # What comes back.

    def heard(self, stream: Stream, now_us: int) -> None:
        """Take a valid word of the peer about a stream; the first one is news."""
        self.heard_us = now_us
        if stream.strays:
            self._land_strays(stream)
        if not stream.answered:
            self._learned(stream, now_us)

    def acknowledge_one(self, stream: Stream, number: int, now_us: int) -> Run | None:
        """Take the acknowledgement of a packet that left on its own, once, and is in flight; None if it is no such.

        The usual case by the shortest way; `acknowledge` does the same for all others.
        """
        run = stream.single(number)
        if run is None or run.state != FLYING or len(run.sent_us) > 1 or self._doubt_us != NEVER:
            return None
        self._unlink(run)
        stream.remove(run)
        run.state = OVER
        stream.left -= 1
        self.left -= 1
        if not stream.left:
            del self.streams[stream.serial]
        order, top, timing = run.orders[0] + run.first - run.base, self._top, self.timing
        if order > top[-1]:
            del top[0]
            top.append(order)
        else:
            self._raise_top(order, 1, top)
        sent_us = run.sent_us[0]
        if self._kind.sampled and sent_us != self._sampled_us:
            self._sampled_us = sent_us
            timing.sample(now_us - sent_us)
        timing.settled(0, 1)
        self._news(stream, 1, now_us)
        return run

    def acknowledge(
        self, stream: Stream, first: int, count: int, now_us: int, transmission: int = -1, *, sampled: bool = True
    ) -> list[Acknowledged]:
        """Take the acknowledgement of a range and return those packets of it that waited for one.

        `transmission` says which one of a retransmitted packet arrived, where the protocol can tell.
        """
        pieces: list[Acknowledged] = []
        number, end, total, clean = first, first + count, 0, True
        while number < end:
            run = stream.find(number)
            if run is None:
                number += 1
                continue
            if number > run.first:
                run = self._split(run, number)
            some = min(end - number, run.count)
            clean = self._take_off(run, some, now_us, transmission) and clean
            pieces.append(Acknowledged(run, number, some))
            total += some
            number += some
        if pieces:
            if clean and self._doubt_us != NEVER and pieces[0].run.orders[-1] < self._doubt_order:
                self._doubt_us = NEVER
            if self._kind.sampled:
                self._sample(pieces, transmission, now_us, prompt=sampled)
            self._news(stream, total, now_us)
        return pieces

    def acknowledge_to(self, stream: Stream, mark: int, now_us: int, *, sampled: bool = True) -> list[Acknowledged]:
        """Take that everything below `mark` has arrived, and return what that acknowledges."""
        before, stream.mark = stream.mark, mark
        stream.same = 0
        pieces = self.acknowledge(stream, before, mark - before, now_us, sampled=sampled)
        if not pieces:
            self._news(stream, 0, now_us)
        repaired = bool(pieces) and all(len(piece.run.sent_us) > 1 for piece in pieces)
        stream.burst = stream.burst + mark - before if repaired else 0
        self._judge_mark(stream, now_us)
        return pieces

    def _take_off(self, run: Run, count: int, now_us: int, transmission: int) -> bool:
        """Take the first packets of a run off as acknowledged; return whether it is certain which transmission was."""
        at = self._which(run, now_us) if transmission < 0 else transmission
        alone, least_us = len(run.sent_us) == 1, self.timing.least_us
        certain = transmission >= 0 or alone or (at <= run.sure and (least_us > 0 or run.sure > 0))
        offset = run.first - run.base
        sent = at if certain else run.sure
        order = run.orders[sent] + offset + count - 1
        self._raise_top(order, count, self._top)
        self._top_sent_us = max(self._top_sent_us, run.sent_us[sent])
        if run.first + count > run.stream.last:
            self._raise_top(order, 1, self._finals)
        if not certain and run.orders[at] + offset > self._top[-1]:
            self._doubt_order = max(self._doubt_order, run.orders[at] + offset)
            self._doubt_sent_us = run.sent_us[at]
            self._doubt_us = now_us + ((least_us or now_us - run.sent_us[0]) >> 2)
        if run.cut and certain and at == 0:
            self._spurious(run, count, now_us - run.sent_us[at])
        self.timing.settled(at if certain or least_us else 0, count)
        self._leave(run, count)
        return certain

    def _which(self, run: Run, now_us: int) -> int:
        """Return the latest transmission that an acknowledgement may speak of; the first before any measurement.

        But a mark that waits for one retransmission after the other may never measure anything. And a little less than
        the shortest round trip is jitter.
        """
        least_us = self.timing.least_us
        at = len(run.sent_us) - 1
        if not least_us:
            return at if self._cumulative and not run.sure else min(run.sure, at)
        least_us -= least_us >> 3  # some air for jitter
        while at and now_us - run.sent_us[at] < least_us:
            at -= 1
        return at

    def _leave(self, run: Run, count: int) -> None:
        """Take the first packets of a run out of everything."""
        stream = run.stream
        stream.left -= count
        self.left -= count
        if run.state == FLYING and count == run.count:
            self._unlink(run)
        elif run.state == FLYING:
            self.in_flight -= count
        elif run.state == SETTLED:
            self._settled -= count
        whole = count == run.count
        stream.trim(run, count)
        if whole:
            run.state = OVER
            stream.asked -= run.asked
            run.asked = False
            self._holes -= run.named
            run.named = False
        if not stream.left:
            self.streams.pop(stream.serial, None)
            self._ignored.pop(stream.serial, None)

    def _raise_top(self, order: int, count: int, top: list[int]) -> None:
        if order <= top[0]:
            return
        for one in range(order, order - min(count, OVERTAKEN_BY), -1):
            if one > top[0] and one not in top:
                top[0] = one
                top.sort()

    def _sample(self, pieces: list[Acknowledged], transmission: int, now_us: int, *, prompt: bool) -> None:
        """Measure the round trip; what left together gives one sample, that of the first to come back.

        A mark waits for every packet below it, so where one of them was retransmitted, the time of the last packet is
        only an upper bound, as it is where the answer may have waited (not `prompt`): it may lower the estimate.
        """
        timing = self.timing
        several = self._cumulative and len(pieces) > 1
        waited = not prompt or (several and any(len(piece.run.sent_us) > 1 for piece in pieces))
        for run, _, _ in pieces[-1:] if self._cumulative else pieces:
            at = self._which(run, now_us) if transmission < 0 else transmission
            elapsed_us = now_us - run.sent_us[at]
            first = at == 0 and (len(run.sent_us) == 1 or timing.least_us > 0)
            if transmission >= 0 or (first and not waited):
                if run.sent_us[at] != self._sampled_us:
                    self._sampled_us = run.sent_us[at]
                    timing.sample(elapsed_us)
            elif first:
                if elapsed_us < (timing.smoothed_us or timing.delay_us):
                    timing.bound(elapsed_us)
            elif not run.losses:
                elapsed_us = now_us - run.sent_us[0]
                timing.ambiguous(elapsed_us + (elapsed_us >> 3), self._kind.backoff_us_max)

    def _news(self, stream: Stream, count: int, now_us: int) -> None:
        """Take that something was newly acknowledged."""
        self._learned(stream, now_us)
        if self.controller is not None:
            self.controller.acknowledged(count, self._peak, self.timing.smoothed_us, now_us)
        self._detect(now_us)

    def _learned(self, stream: Stream, now_us: int) -> None:
        self.news_us = self.heard_us = self._base_us = stream.news_us = stream.probed_us = now_us
        self._backoffs = 0
        if not stream.answered:
            stream.answered = True
            self._release(stream, now_us)

    def _release(self, stream: Stream, now_us: int) -> None:
        """Let a stream that was ignored go on: its probe has arrived, or is as lost as any other packet."""
        probe = self._ignored.pop(stream.serial, None)
        if probe is not None and probe.state == LOST and probe.again_us != NEVER:
            self._queue(probe)

    def finished(self, stream: Stream, now_us: int) -> None:
        """Take that a stream was acknowledged whole: a peer that had no place for another may have one now."""
        if stream.serial > self._finished[0]:
            self._finished[0] = stream.serial
            self._finished.sort()
        if self._ignored:
            run = next(iter(self._ignored.values()))
            due_us = max(now_us, run.sent_us[-1] + self.timing.smoothed_us)
            if run.state == LOST and due_us < run.again_us != NEVER:
                self._arm(run, due_us)

    # What is lost.

    def _detect(self, now_us: int) -> None:
        """Find out what is lost by later acknowledgements."""
        # A mark is told late, but the end of a stream at once, or after its commit, for which others wait as well.
        top, line = self._top[-1], self._finals[0] if self._cumulative else self._top[0]
        self._overdue_us = NEVER
        head, timing = self._head, self.timing
        run = head.following
        while run is not head:
            order = run.orders[-1] + run.first - run.base
            if order >= top:
                if self._holes:
                    self._settle_old(now_us)
                break
            following, sent_us = run.following, run.sent_us[-1]
            due_us = sent_us + timing.delay_us + self._kind.held_us if self._kind.by_name else NEVER
            if order < line and self._is_overtaken(run):
                overtaken_us = sent_us + timing.smoothed_us + self._tolerance_us if self._tolerance_us else now_us
                if overtaken_us <= now_us:
                    if line - order < run.count:
                        following = self._split(run, run.first + line - order)
                    self._lose(run, now_us, blame=True, at_once=True)
                    run = following
                    continue
                due_us = min(due_us, overtaken_us)
            if due_us <= now_us:
                self._lose_by_time(run, now_us)
            else:
                self._overdue_us = min(self._overdue_us, due_us)
                if order >= line:
                    break
            run = following

    def _is_overtaken(self, run: Run) -> bool:
        """Return whether acknowledgements of three later transmissions mean that a run is lost."""
        return not self._cumulative or run.first == run.stream.mark == run.stream.last

    def _is_unheard(self, stream: Stream) -> bool:
        """Return whether a stream of several packets may be one that the peer ignores."""
        return self._cumulative and not stream.answered and stream.mark < stream.last < NEVER

    def _lose_by_time(self, run: Run, now_us: int) -> None:
        stream = run.stream
        if not self._cumulative:
            self._lose(run, now_us, blame=self._time_tells())
        elif self._is_unheard(stream):
            self._ignore(stream, now_us)
        else:
            self._settle(run)
            if run.first == stream.mark:
                self._lose(self._only(stream.mark, run), now_us, blame=False)

    def _lose(self, run: Run, now_us: int, *, blame: bool, at_once: bool = False) -> None:
        """Take a run for lost; it leaves again when window and pacing let it, or when its own time has come.

        `at_once` it does not wait for the window: it takes the place of the transmission that was lost.
        """
        self._ground(run)
        run.state = LOST
        run.losses += 1
        cut = False
        if run.losses == 1 and blame:
            cut = self.controller is not None and self.controller.lost(run.sent_us[0], now_us)
            if cut:
                self._cuts += 1
                self._losses = 0
            self._losses += run.count
            run.cut = self._cuts
        elif run.losses == 2:
            self._absolve(run, run.count)
        if not self._kind.by_name:
            return
        if cut and not at_once:
            # The flight is larger than the new window: without this one the repair would wait until it is not.
            if run.count > 1:
                self._split(run, run.first + 1)
            self._urge(run)
            return
        if run.losses > 1 and not self._kind.ordered:
            again_us = run.sent_us[-1] + self.timing.backed_off_us(run.losses - 1, self._kind.backoff_us_max)
            if again_us > now_us:
                self._arm(run, again_us)
                return
        if at_once:
            self._statistics.repairs += run.count
            self._urge(run)
        else:
            self._queue(run)

    def _queue(self, run: Run) -> None:
        """Have a lost run leave as soon as window and pacing let it."""
        run.again_us = NEVER
        self._serial += 1
        heappush(self._lost, (run.stream.serial, run.first, self._serial, run))

    def _urge(self, run: Run) -> None:
        """Have a run leave now, whatever window and pacing say."""
        run.again_us = NEVER
        run.state = URGENT
        self._urgent.append(run)

    def _settle(self, run: Run) -> None:
        """Take a run out of the flight whose fate is unknown until the mark tells."""
        if run.state == FLYING:
            self._unlink(run)
            run.state = SETTLED
            self._settled += run.count

    def _ground(self, run: Run) -> None:
        """Take a run out of the flight or of what is settled."""
        if run.state == FLYING:
            self._unlink(run)
        elif run.state == SETTLED:
            self._settled -= run.count

    def _spurious(self, run: Run, count: int, age_us: int) -> None:
        """Take that the first transmission of packets which were taken for lost had arrived, at that age."""
        smoothed_us = self.timing.smoothed_us
        late_us = age_us - smoothed_us
        self._tolerance_us = min(smoothed_us, max(self._tolerance_us, late_us + (late_us >> 2), smoothed_us >> 3))
        self._absolve(run, count)

    def _absolve(self, run: Run, count: int) -> None:
        """Take back what the loss of packets has done to the window; the cut itself when no other loss is behind it."""
        if run.cut == self._cuts:
            self._losses -= count
            if not self._losses and self.controller is not None:
                self.controller.undo()

    def _judge_mark(self, stream: Stream, now_us: int) -> None:
        """Take the packets at a mark that just moved for lost if what moved it left later than they did."""
        number, end = stream.mark, stream.mark + max(1, stream.burst)
        left_us = now_us - self.timing.smoothed_us - self._tolerance_us
        while number < end and stream.mark != stream.last:
            run = stream.find(number)
            overtaken = run is not None and run.sent_us[-1] <= left_us and self._overtaken(run)
            if run is None or (not overtaken and len(run.sent_us) == 1):
                return
            if overtaken and run.state in (FLYING, SETTLED):
                at_mark = number == stream.mark
                if run.first + run.count > (number + 1 if at_mark else end):
                    self._split(run, number + 1 if at_mark else end)
                run.sure = len(run.sent_us)
                self._statistics.repairs += 0 if at_mark else run.count
                certain = run.order + OVERTAKEN_BY <= self._top[-1]
                self._lose(run, now_us, blame=at_mark and certain, at_once=at_mark)
            number = run.first + run.count

    def _overtaken(self, run: Run) -> bool:
        """Return whether what was acknowledged left three packets later than the run, or a quarter of a round trip.

        With a small window a retransmission may leave less than three packets later.
        """
        top = self._top[-1]
        late_us = self.timing.least_us >> 2
        return run.order + OVERTAKEN_BY <= top or (run.order < top and run.sent_us[-1] + late_us < self._top_sent_us)

    def repeated(self, stream: Stream, now_us: int) -> None:
        """Take an answer to a later packet that repeats the mark; three in a row ask for the packet at the mark."""
        run = stream.find(stream.mark)
        self.heard_us = now_us
        if run is None or stream.left < 2 or run.state not in (FLYING, SETTLED):
            return
        timing = self.timing
        if now_us - run.sent_us[-1] < timing.least_us or (len(run.sent_us) > 1 and not timing.smoothed_us):
            return
        stream.same += 1
        if stream.same >= OVERTAKEN_BY:
            stream.same = 0
            run = self._only(stream.mark, run)
            run.sure = len(run.sent_us)
            self._lose(run, now_us, blame=True, at_once=True)

    def requested(self, stream: Stream, number: int, now_us: int) -> str:
        """Take that the peer asks for a packet by name; return why that is dropped, or an empty string.

        It is answered if it can speak of the packet's latest transmission, and after the first time once a round trip.
        """
        below = number < stream.mark
        run = self._stray(stream, number, now_us) if below else stream.find(number)
        if run is None:
            return "requests_full" if below else ""
        if run.state in (LOST, URGENT):
            run = self._only(number, run)
            self._named(run, now_us)
            if run.again_us != NEVER:
                self._queue(run)
            return ""
        age_us, timing = now_us - run.sent_us[-1], self.timing
        if age_us < timing.least_us or (run.named and age_us < max(timing.smoothed_us, AGAIN_US_MIN)):
            return "request_too_soon"
        if stream.asked >= REQUESTS_MAX:
            return "requests_full"
        if not below:
            self._settle_to(stream, number + 1)
            run = self._only(number, stream.find(number))
        self._named(run, now_us)
        run.asked = True
        run.sure = len(run.sent_us)
        stream.asked += 1
        self._statistics.repairs += 1
        self._lose(run, now_us, blame=not below)
        if run.again_us != NEVER:
            self._queue(run)
        self._detect(now_us)
        return ""

    def _named(self, run: Run, now_us: int) -> None:
        """Take that the peer asks for a packet: the first time it is news, unless it was acknowledged before."""
        if not run.named and run.first >= run.stream.mark:
            self._holes += 1
            self._learned(run.stream, now_us)
        run.named = True

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

    def _land_strays(self, stream: Stream) -> None:
        """Take out of the flight what was acknowledged and sent again, now that the peer has spoken since."""
        for run in stream.strays.values():
            if run.state in (FLYING, SETTLED):
                self._ground(run)
                run.state = OVER

    def damaged(self, stream: Stream, number: int, now_us: int) -> Run | None:
        """Take that a packet arrived damaged and return it to leave again now; None if it left as often as is allowed.

        That is no loss and cuts nothing: the path carried the packet.
        """
        self.heard_us = now_us
        run = stream.find(number)
        if run is None or len(run.sent_us) >= self._kind.transmissions_max:
            return None
        run = self._only(number, run)
        self._ground(run)
        self._statistics.repairs += 1
        self._retransmit(run, now_us)
        return run

    def _settle_to(self, stream: Stream, number: int) -> None:
        """Take what left before packet `number` did out of the flight: that one has come, so the others have landed."""
        later = stream.find(number)
        if later is None:
            return
        line = later.orders[0] + number - later.base
        run = self._head.following
        while run is not self._head and run.order <= line:
            following = run.following
            if run.stream is stream:
                if run.first + run.count > number + 1:
                    following = self._split(run, number + 1)
                self._settle(run)
            run = following

    def _ignore(self, stream: Stream, now_us: int) -> None:
        """Take back all packets of a stream that the peer ignores but the one at the mark, which probes for it."""
        probe = self._only(stream.mark, stream.find(stream.mark))
        if stream.left > 1 or stream.serial not in self._ignored:
            self.rewound.append(stream)
        for run in stream.runs():
            if run is not probe:
                self._leave(run, run.count)
        self._ground(probe)
        self._ignored[stream.serial] = probe
        self._probe_ignored(probe, probe.sent_us[-1])
        if probe.again_us <= now_us:
            self._urge(probe)

    # Time.

    def next_us(self) -> int:
        """Return when `wake` is due."""
        due_us = min(self._overdue_us, self._doubt_us, self._life_us)
        if self._kind.by_name and (self.in_flight or self._settled):
            due_us = min(due_us, self._probe_us())
        if self._again:
            due_us = min(due_us, self._next_again_us())
        if self.left:
            due_us = min(due_us, self.heard_us + self._kind.silence_us, self.news_us + self._kind.stall_us)
        return due_us

    def gives_up(self, now_us: int) -> bool:
        """Return whether the peer has been silent, or has said nothing new, for too long while something waits."""
        kind = self._kind
        return self.left > 0 and (now_us >= self.heard_us + kind.silence_us or now_us >= self.news_us + kind.stall_us)

    def given_up(self, now_us: int) -> list[Stream]:
        """Return the streams that are given up because the peer is; those begun later get their own time."""
        if not self.gives_up(now_us):
            return []
        silent = now_us >= self.heard_us + self._kind.silence_us
        before_us = now_us - (self._kind.silence_us if silent else self._kind.stall_us)
        over = [stream for stream in self.streams.values() if stream.since_us <= before_us]
        kept = [stream.since_us for stream in self.streams.values() if stream.since_us > before_us]
        self.heard_us = min(kept, default=now_us)
        self.news_us = max(self.news_us, self.heard_us)
        return over

    def wake(self, now_us: int) -> list[Run]:
        """Do what is due, and return the packets that are given up."""
        spent: list[Run] = []
        while self._next_again_us() <= now_us:
            run = heappop(self._again)[2]
            run.again_us = NEVER
            if self._is_spent(run, now_us):
                spent.append(run)
                self._leave(run, run.count)
            else:
                self._come_due(run, now_us)
        if now_us >= self._doubt_us:
            self._doubt_us = NEVER
            self._raise_top(self._doubt_order, 1, self._top)
            self._top_sent_us = max(self._top_sent_us, self._doubt_sent_us)
            self._detect(now_us)
            for stream in list(self.streams.values()) if self._cumulative else ():
                self._judge_mark(stream, now_us)
        elif now_us >= self._overdue_us:
            self._detect(now_us)
        if now_us >= self._life_us:
            spent.extend(self._outlived(now_us))
        if self._kind.by_name and (self.in_flight or self._settled) and now_us >= self._probe_us():
            self._probe(now_us)
        return spent

    def _probe_us(self) -> int:
        """Return when to probe if nothing new comes: after the time-out, or sooner for a lost tail."""
        timing = self.timing
        delay_us = timing.backed_off_us(self._backoffs, self._kind.backoff_us_max)
        if timing.smoothed_us:
            delay_us += self._kind.held_us
        due_us = self._base_us + delay_us
        if self.is_tail and not self._backoffs and timing.least_us:
            round_trip_us = timing.smoothed_us + max(timing.smoothed_us >> 3, timing.variation_us)
            # The end may have left long after the latest news, and is not late before its own round trip.
            left_us = max(self._base_us, self._head.preceding.sent_us[-1])
            due_us = min(due_us, left_us + max(AGAIN_US_MIN, 2 * round_trip_us))
        return due_us

    def _is_spent(self, run: Run, now_us: int) -> bool:
        kind, stream = self._kind, run.stream
        if len(run.sent_us) >= kind.transmissions_max or now_us >= run.sent_us[0] + kind.life_us:
            return True
        return stream.serial < self._finished[0] and now_us >= stream.news_us + kind.stall_us

    def _come_due(self, run: Run, now_us: int) -> None:
        """Have a run leave whose own timer has run out."""
        if not self._kind.by_name:
            if run.state == FLYING:
                self._lose(run, now_us, blame=self._time_tells())
            self._urge(run)
        elif self.is_stalled or run.stream.serial in self._ignored:
            self._urge(run)
        else:
            self._queue(run)

    def _time_tells(self) -> bool:
        """Return whether a time-out speaks of a loss: the round trip is known, and shorter."""
        return 0 < self.timing.smoothed_us < self.timing.delay_us

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

    def _probe(self, now_us: int) -> None:
        """Retransmit one packet because nothing new came for too long."""
        spoke, self._base_us = self.heard_us > self._base_us, now_us
        run = self._probed()
        if run is None:
            return
        if not self.is_tail and run.sent_us[-1] + self.timing.delay_us > now_us:
            self._base_us = run.sent_us[-1]  # it has just been repaired, which may still be answered
            return
        self._backoffs += 1
        run.stream.probed_us = now_us
        if self._backoffs == 2 and self.in_flight > 1 and self.timing.smoothed_us and self.controller is not None:
            self.controller.timed_out(run.sent_us[-1], now_us)
            self._cuts += 1
        if self._cumulative and (self._lost or spoke):
            self._settle_old(now_us)
        stream = run.stream
        if self._is_unheard(stream) and (self.timing.smoothed_us or self._backoffs > 1):
            self._ignore(stream, now_us)
        self._ground(run)
        self._urge(run)
        highest = stream.highest() if self.is_stalled else run.first
        if highest > run.first:
            # On a path that loses much most probes get no answer: a second one asks for another.
            other = self._only(highest, stream.find(highest))
            self._ground(other)
            other.state = LOST
            self._arm(other, now_us + SECOND_PROBE_US)

    def _settle_old(self, now_us: int) -> None:
        """Take what is older than the time-out out of the flight: others need the room, and it is no longer there."""
        run, delay_us = self._head.following, self.timing.delay_us
        while run is not self._head and run.sent_us[-1] + delay_us <= now_us:
            following = run.following
            self._settle(run)
            run = following
        if run is not self._head and self._holes:
            self._overdue_us = min(self._overdue_us, run.sent_us[-1] + delay_us)

    def _probed(self) -> Run | None:
        """Choose the packet to probe with."""
        if not self._cumulative and not self._kind.ordered:
            run = self._head.following
            return None if run is self._head else self._only(run.first, run)
        waiting = [stream for stream in self.streams.values() if stream.serial not in self._ignored]
        # In turn one that the peer has begun, first of all, and one that it may ignore or whose answer was lost.
        self._probes_begun = not self._probes_begun
        turn = [stream for stream in waiting if stream.answered is self._probes_begun]
        stream = min(turn or waiting or self.streams.values(), key=_probed_us, default=None)
        lowest = None if stream is None else stream.lowest()
        return None if stream is None or lowest is None else self._only(lowest, stream.find(lowest))

    # Timers of single runs.

    def _arm(self, run: Run, due_us: int) -> None:
        run.again_us = due_us
        self._serial += 1
        heappush(self._again, (due_us, self._serial, run))
        if len(self._again) > 2 * self.left + STALE_MAX:
            self._again[:] = sorted(entry for entry in self._again if _is_live(entry))

    def _next_again_us(self) -> int:
        heap = self._again
        while heap:
            if _is_live(heap[0]):
                return heap[0][0]
            heappop(heap)
        return NEVER

    # The ring of what is in flight, and pieces of runs.

    def _unlink(self, run: Run) -> None:
        run.preceding.following = run.following
        run.following.preceding = run.preceding
        self.in_flight -= run.count

    def _split(self, run: Run, at: int) -> Run:
        """Cut a run in two and return the second, which is wherever the first is."""
        right = run.stream.split(run, at)
        if run.state == FLYING:
            right.preceding, right.following = run, run.following
            run.following.preceding = right
            run.following = right
        elif run.state == URGENT:
            self._urgent.append(right)
        if run.again_us != NEVER:
            self._arm(right, run.again_us)
        elif run.state == LOST:
            self._queue(right)
        return right

    def _only(self, number: int, run: Run | None) -> Run:
        """Return the run of just this packet, cut out of the one it is in."""
        assert run is not None
        if run.first < number:
            run = self._split(run, number)
        if run.count > 1:
            self._split(run, number + 1)
        return run

    # The end.

    def withdraw(self, stream: Stream) -> list[Run]:
        """Take everything of a stream off and return it."""
        runs = stream.runs()
        for run in runs:
            self._leave(run, run.count)
        self._land_strays(stream)
        for run in stream.strays.values():
            run.state = OVER
        return runs


def _is_live(entry: tuple[int, int, Run]) -> bool:
    due_us, _, run = entry
    return run.again_us == due_us and run.state != OVER


def _probed_us(stream: Stream) -> int:
    return stream.probed_us
