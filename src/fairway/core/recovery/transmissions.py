"""Transmissions: what left, what became of it, and what is lost.

The unit is the *transmission*, with its own rising order, like a packet number of QUIC: a retransmission has a new
order, so "later" always means "left later". A protocol maps each acknowledgement to ranges of packets and, where the
wire says so, to the exact transmission; what follows from it is decided here, for all protocols alike. `recovery.py`
adds what follows from time alone. `flight.py` knows where each packet is, `evidence.py` which transmissions arrived,
`blame.py` which losses cut the window, `timing.py` how long to wait, `congestion.py` how much may be in flight.

*Lost by later acknowledgements.* A packet is lost when three transmissions that left later have been acknowledged, or
when one has and the packet is older than its time-out.

*Only progress counts.* What is newly acknowledged, or first asked for, restarts the timer and ends the back-off.
What repeats known facts restarts nothing; it shows that the peer is there (`heard_us`).

*Packets that are never answered* cost the others nothing: from its second loss on a packet waits for its own doubled
time-out, and neither then nor after it has left again is it in flight, or paced. Otherwise a window full of such
packets would stay so, because nothing that is answered would leave after them. Under a controller that losses do not
cut that begins with the ninth loss: before, three later transmissions show a lost retransmission a round trip after it
left. But with the second for a packet that the peer may not accept (`acceptance.py`). To the controller such a loss is
none: the path has carried the packet, and the peer has dropped it.

*A peer without room* drops packets that it would take later, and which of their timers runs out when there is room
again is random: to a peer that held eight at a time most of them waited while it held none. An acknowledgement shows
that there is room, so with each two of those that were lost again leave, whatever their timers say; and while
acknowledgements come, only so.

*Packets repaired by timer only* (`by_name` off) have a timer each, and leave when it runs out, whatever the window.
That they were overtaken still takes them out of the flight and is told to the controller: it hears of a loss a round
trip after it. A timer that is shorter than the round trip tells it nothing. One that was lost again and again counts in
the window until its end: the peer has no room for it, and what is new would take the room that there is.
"""

from __future__ import annotations

from typing import NamedTuple

from fairway.core.machine import Buffer
from fairway.core.recovery.acceptance import Acceptance
from fairway.core.recovery.blame import Blame
from fairway.core.recovery.congestion import Controller
from fairway.core.recovery.evidence import Evidence
from fairway.core.recovery.flight import Flight
from fairway.core.recovery.runs import FLYING, LOST, NEVER, OVER, Acknowledged, Run, Stream
from fairway.core.recovery.timing import RoundTrip
from fairway.core.statistics import Statistics

UNLIMITED = 1 << 30
STUBBORN = 3
"""Losses of a packet that is repaired by timer only, after which it counts in the window wherever it is."""
RELIEVED_BY_ONE = 2
"""Packets waiting for room that leave for each one acknowledged: one takes its room, one looks for more."""
RELIEVED_MAX = 16
"""Losses of a packet after which only its own timer has it leave again: the peer seems never to take it."""


class Kind(NamedTuple):
    """What a kind of packet is to its recovery."""

    by_name: bool = True
    """Repaired by later acknowledgements and probes; otherwise each packet has its own timer and nothing else."""
    ordered: bool = False
    """The peer needs the lowest packet first, so that one never waits for a back-off of its own."""
    sampled: bool = True
    """Its acknowledgements measure the round trip."""
    bounded: bool = False
    """The peer drops in silence what is above its buffer: the loss of a packet that is larger than all which were
    acknowledged says nothing about the path."""
    held_us: int = 0
    """How long the peer may hold an answer back: what is measured may not show it."""
    backoff_us_max: int = 3_000_000
    life_us: int = NEVER
    """From its first transmission: then it is given up."""
    transmissions_max: int = UNLIMITED
    repeat_within_us: int = NEVER
    """From the latest transmission of its stream: then the peer may have forgotten it, and it is given up rather than
    retransmitted."""
    silence_us: int = NEVER
    """Without a valid word of the peer while something waits: then all is given up."""
    stall_us: int = NEVER
    """Without progress while something waits, likewise; a stream that others have left behind is given up alone."""


class Transmissions:
    """The transmissions of one conversation, of packets of one kind that are acknowledged one by one."""

    def __init__(
        self,
        kind: Kind,
        timing: RoundTrip,
        controller: Controller | None,
        statistics: Statistics,
        *,
        cumulative: bool = False,
    ) -> None:
        self._kind = kind
        self.timing = timing
        self._controller = controller
        self._statistics = statistics
        self._cumulative = cumulative
        self._flight = Flight()
        self._evidence = Evidence(timing, cumulative=cumulative, doubts=kind.by_name, most_us=kind.backoff_us_max)
        self._blame = Blame(timing, controller, each=kind.by_name and not cumulative)
        self._passes_by = kind.by_name and not kind.ordered
        """Whether others leave although a packet is never answered."""
        self._certain_losses = 1 if controller is None else controller.certain_losses
        self._paces_repairs = kind.ordered and controller is not None and controller.measures and not cumulative
        """Whether what was lost again waits for window and pacing: what is behind it waits at the peer all the same.
        Where packets are delivered as they come, constant traffic of others then found a full queue."""
        self.streams: dict[int, Stream] = {}
        """By serial, oldest first: those that were transmitted and have packets without an acknowledgement."""
        self.progress_us = 0
        """When something new was last learned, or something first waited for it."""
        self.heard_us = 0
        """When the peer last said anything valid, or something first waited for it."""
        self._base_us = 0
        """From when the probe timer counts."""
        self._backoffs = 0
        self._overdue_us = NEVER
        """When the first packet that later ones have overtaken is lost by time."""
        self._life_us = NEVER
        """No packet reaches the end of its life earlier."""
        self._has_suspects = False
        """Whether there was ever one; if only suspects are left, one at a time is probed like any other packet."""
        self._acceptance = Acceptance(bounded=kind.bounded)
        self._stubborn = 0
        """Packets repaired by timer only that were lost again and again."""
        self._judged_us = 0
        """What left before has cut the window by a time-out, or by nothing."""
        self._spare = 0
        """New packets that may leave beyond the window, because nothing comes back."""
        self.forgotten: list[Stream] = []
        """Streams that rested for so long that nothing of them may leave again; the caller takes them off."""

    @property
    def left(self) -> int:
        """Packets that wait for their acknowledgement, wherever they are."""
        return self._flight.left

    @property
    def in_flight(self) -> int:
        """Packets in the network, as far as is known."""
        return self._flight.in_flight

    @property
    def is_stalled(self) -> bool:
        """Whether nothing new came for two time-outs in a row, with what waits for an answer."""
        return self._backoffs > 1

    @property
    def has_lost(self) -> bool:
        """Whether something waits to be retransmitted for window or pacing only."""
        return bool(self._flight.lost or self._flight.urgent)

    # What leaves.

    def room(self, now_us: int) -> int:
        """Return how many new packets may leave now."""
        return max(self._spare, self._room(now_us))

    def _room(self, now_us: int) -> int:
        """Return how many packets window and pacing let leave now."""
        held = self._flight.in_flight + self._stubborn
        return UNLIMITED if self._controller is None else self._controller.room(held, now_us)

    def next_room_us(self, now_us: int) -> int:
        """Return when time alone lets the next packet leave; `NEVER` if only an acknowledgement can."""
        held = self._flight.in_flight + self._stubborn
        due_us = None if self._controller is None else self._controller.next_room_us(held, now_us)
        return NEVER if due_us is None else due_us

    @property
    def gathers(self) -> bool:
        """Whether to wait until the window has room for a whole burst."""
        return self._controller is None or self._controller.gathers

    def window_room(self) -> int:
        """Return how many packets the window lets leave, pacing left aside."""
        return UNLIMITED if self._controller is None else self._controller.window - self._flight.in_flight

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
        flight = self._flight
        run = Run(stream, first, count, data, segment_bytes, token, now_us, flight.order)
        flight.order += count
        self._spare = max(0, self._spare - count)
        stream.add(run)
        if not stream.left:
            self.streams[stream.serial] = stream
            stream.progress_us = stream.probed_us = now_us
            stream.mark = stream.mark or first
        stream.left += count
        if not flight.left:
            self.progress_us = self.heard_us = now_us
        flight.left += count
        stream.left_us = now_us
        self._life_us = min(self._life_us, now_us + self._kind.life_us)
        self._launch(run, now_us)

    def _launch(self, run: Run, now_us: int) -> None:
        """Put a transmission that leaves now into the network."""
        if not (self._flight.in_flight or self._flight.settled):
            self._base_us = now_us
        # A timer that is shorter than the round trip repairs nothing: the packet is still on its way.
        certain = len(run.sent_us) == 1 or (not self._is_suspect(run) if self._kind.by_name else self._time_tells())
        if self._controller is not None and certain:
            run.departure = self._controller.sent(run.count, self._flight.in_flight, now_us)
        self._flight.launch(run)
        if not self._kind.by_name:
            delay_us = self.timing.backed_off_us(len(run.sent_us) - 1, self._kind.backoff_us_max)
            self._flight.arm(run, min(now_us + delay_us, run.sent_us[0] + self._kind.life_us))

    def next_retransmission(self, now_us: int, serial_max: int = NEVER) -> Run | None:
        """Return packets that must leave again now, the most urgent and the lowest first; None if nothing may.

        Of streams above `serial_max` only what is urgent.
        """
        flight = self._flight
        if not (flight.lost or flight.urgent):
            return None
        while (run := flight.next_urgent() or flight.next_lost(self._room(now_us), serial_max)) is not None:
            if now_us - run.stream.left_us <= self._kind.repeat_within_us:
                self._retransmit(run, now_us)
                return run
            if run.stream not in self.forgotten:
                self.forgotten.append(run.stream)
        return None

    def _retransmit(self, run: Run, now_us: int) -> None:
        flight = self._flight
        run.stream.left_us = now_us
        run.sent_us.append(now_us)
        run.orders.append(flight.order - (run.first - run.base))
        flight.order += run.count
        self._statistics.retransmissions += run.count
        self._launch(run, now_us)
        if self._is_suspect(run):
            self._has_suspects = True
            self._flight.ground(run)
            run.state = LOST
            self._flight.arm(run, now_us + self._alone_us(run.losses - self._certain(run) + 1))

    def _is_suspect(self, run: Run) -> bool:
        """Return whether the peer may never answer a run: it was lost again and again while others arrived."""
        return self._passes_by and run.losses > self._certain(run)

    def _certain(self, run: Run) -> int:
        """Return how many losses of a run are the path's; of one that the peer may ignore only the first."""
        return 1 if self._acceptance.may_refuse(run) else self._certain_losses

    def _waits_alone(self, run: Run) -> bool:
        """Return whether a run that was lost waits for a timer of its own."""
        return self._is_suspect(run)

    def _backed_off_us(self, run: Run) -> int:
        """Return how long that timer is."""
        return self._alone_us(run.losses - self._certain(run))

    def _alone_us(self, backoffs: int) -> int:
        """Return the time-out of a packet that the peer may never answer: there may be hundreds of them."""
        return self.timing.backed_off_us(backoffs, self.timing.max_us)

    # What comes back.

    def left_in_order(self, stream: Stream, first: int, count: int) -> list[Acknowledged]:
        """Return these packets if they left before all others in flight, in this order, and once; else nothing.

        Then their acknowledgements overtake nothing, and a range of them does what they do one by one.
        """
        found: list[Acknowledged] = []
        run = self._flight.head.following
        while count > 0 and run.stream is stream and run.first == first and len(run.sent_us) == 1:
            found.append(Acknowledged(run, first, min(count, run.count)))
            first += run.count
            count -= run.count
            run = run.following
        return found if count <= 0 and self._evidence.doubt_us == NEVER and not self.has_lost else []

    def acknowledge_one(self, stream: Stream, number: int, now_us: int) -> Run | None:
        """Take the acknowledgement of a packet that left on its own, once, and is in flight; None if it is no such.

        The usual case by the shortest way; `acknowledge` does the same for all others.
        """
        run = stream.single(number)
        if run is None or run.state != FLYING or len(run.sent_us) > 1 or self._evidence.doubt_us != NEVER:
            return None
        flight = self._flight
        flight.unlink(run)
        stream.remove(run)
        run.state = OVER
        stream.left -= 1
        flight.left -= 1
        if not stream.left:
            del self.streams[stream.serial]
        self._acceptance.taken(run)
        self._evidence.take_one(run)
        if self._kind.sampled:
            self._evidence.sample_one(run.sent_us[0], now_us)
        if self._controller is not None:
            self._controller.delivered(
                1,
                run.departure,
                run.orders[0] + run.first - run.base,
                flight.in_flight,
                now_us - run.sent_us[0],
                now_us,
            )
        self._progress(stream, 1, now_us)
        return run

    def acknowledge(
        self, stream: Stream, first: int, count: int, now_us: int, transmission: int = -1, *, prompt: bool = True
    ) -> list[Acknowledged]:
        """Take the acknowledgement of a range and return those packets of it that waited for one.

        `transmission` says which one of a retransmitted packet arrived, where the protocol can tell. An answer that is
        not `prompt` may have waited at the peer, and measures no round trip.
        """
        pieces: list[Acknowledged] = []
        number, end, total, certain = first, first + count, 0, True
        while number < end:
            run = stream.find(number)
            if run is None:
                self._blame.acknowledged_again(number)
                number += 1
                continue
            if number > run.first:
                run = self._flight.split(run, number)
            some = min(end - number, run.count)
            certain = self._take_off(run, some, now_us, transmission) and certain
            pieces.append(Acknowledged(run, number, some))
            total += some
            number += some
        if pieces:
            if certain and self._evidence.doubt_us != NEVER:
                self._evidence.clear_doubt(pieces[0].run)
            if self._kind.sampled:
                self._evidence.sample(pieces, transmission, now_us, prompt=prompt)
            if self._controller is not None:
                self._tell_delivered(self._controller, pieces, transmission, now_us, prompt=prompt)
            self._progress(stream, total, now_us)
        return pieces

    def _tell_delivered(
        self, controller: Controller, pieces: list[Acknowledged], transmission: int, now_us: int, *, prompt: bool
    ) -> None:
        """Take what arrived out of the network, and tell the controller unless it knows, or does not ask."""
        latest, order, total, sure, repaired = pieces[0].run, -1, 0, -1, False
        for run, first, count in pieces:
            last = run.orders[-1] + first - run.base + count - 1
            order = max(order, last)
            if run.orders[-1] > latest.orders[-1]:
                latest = run
            if not run.landed:
                total += count
            if len(run.sent_us) > 1:
                repaired = True
            else:
                sure = max(sure, last)
        landed = self._land(sure)
        if self._cumulative:  # a mark tells of what left together as of one
            order = 0 if latest.departure is None else latest.departure.order
        if not controller.measures:
            return
        early = not self._kind.by_name and not self._time_tells()  # the timer was: the first transmission arrived
        only = early or transmission == len(latest.sent_us) - 1 or self._is_latest(latest)
        waited = self._cumulative and repaired  # a mark waits for what was retransmitted below it
        sent_us = latest.sent_us[0 if early else -1]
        rtt_us = now_us - sent_us if only and not waited else latest.sent_us[0] - now_us
        least_us = self.timing.least_us
        if rtt_us > least_us + (least_us >> 2) and not (prompt and self._left_at_once(pieces[-1])):
            rtt_us = -rtt_us  # an upper bound: short it shows that there is no queue, long it shows nothing
        if not prompt and len(latest.sent_us) == 1 and latest.departure is not None:
            controller.waited(order, now_us - latest.sent_us[0])
        certain = landed >= 0 or (len(latest.sent_us) > 1 and self._is_latest(latest))
        departure = latest.departure if certain else None
        controller.delivered(total + max(0, landed), departure, order, self._flight.in_flight, rtt_us, now_us)

    def _is_latest(self, run: Run) -> bool:
        """Return whether an acknowledgement of a run can only speak of its latest transmission."""
        return len(run.sent_us) == 1

    def _left_at_once(self, piece: Acknowledged) -> bool:
        """Return whether the peer cannot have held back the answer to these packets."""
        return True

    def _land(self, order: int) -> int:
        """Take that the transmission of that order arrived; return how many others that shows to have arrived before
        it, or -1 if it is not progress."""
        return 0

    def _take_off(self, run: Run, count: int, now_us: int, transmission: int) -> bool:
        """Take the first packets of a run off as acknowledged; return whether it is certain which transmission was."""
        at = self._evidence.take(run, count, now_us, transmission)
        self._acceptance.taken(run)
        if run.losses and at <= 0:
            order, age_us = run.orders[0] + run.first - run.base, now_us - run.sent_us[0]
            if at == 0:
                self._blame.spurious(run.cut, count, order, age_us)
            elif count == 1:
                self._blame.repaired(run.first, run.cut, order, age_us)
        self._leave(run, count)
        return at >= 0

    def _leave(self, run: Run, count: int) -> None:
        """Take the first packets of a run out of everything."""
        if run.losses >= STUBBORN and not self._kind.by_name:
            self._stubborn -= count
        self._flight.leave(run, count)
        if not run.stream.left:
            self.streams.pop(run.stream.serial, None)

    def _progress(self, stream: Stream, count: int, now_us: int) -> None:
        """Take that something was newly acknowledged."""
        self._learned(stream, now_us)
        if self._controller is not None:
            self._controller.acknowledged(count, self._flight.peak, self.timing.smoothed_us, now_us)
        self._detect(now_us)
        if self._passes_by and self._flight.timers:
            self._relieve(RELIEVED_BY_ONE * count, now_us)

    def _relieve(self, count: int, now_us: int) -> None:
        """Have so many packets that wait for room leave now: the peer has some."""
        for _ in range(count):
            run = self._next_relieved(now_us)
            if run is None:
                return
            run.again_us = NEVER
            self._have_leave(run)

    def _have_leave(self, run: Run) -> None:
        """Have a run leave that waited by itself."""
        if self._is_suspect(run):
            run.losses += 1
            self._flight.urge(run)
        elif self.is_stalled:
            self._flight.urge(run)
        else:
            self._flight.queue(run)

    def _next_relieved(self, now_us: int) -> Run | None:
        run = self._flight.next_due()
        return run if run is not None and self._may_be_relieved(run, now_us) else None

    def _may_be_relieved(self, run: Run, now_us: int) -> bool:
        is_waiting = run.again_us != NEVER and self._waits_for_room(run)
        return is_waiting and run.sent_us[-1] + self.timing.smoothed_us <= now_us

    def _waits_for_room(self, run: Run) -> bool:
        """Return whether a run was lost again, and the peer may have had no room for it."""
        return self._passes_by and run.state == LOST and 1 < run.losses <= RELIEVED_MAX

    def _learned(self, stream: Stream, now_us: int) -> None:
        if self._backoffs > 1 and self._passes_by:
            self._judged_us = now_us
        self.progress_us = self.heard_us = self._base_us = stream.progress_us = stream.probed_us = now_us
        self._backoffs = self._spare = 0

    def damaged(self, stream: Stream, number: int, now_us: int) -> Run | None:
        """Take that a packet arrived damaged and return it to leave again now; None if it left as often as is allowed.

        That is no loss and cuts nothing: the path carried the packet.
        """
        self.heard_us = now_us
        run = stream.find(number)
        if run is None or len(run.sent_us) >= self._kind.transmissions_max:
            return None
        run = self._flight.only(number, run)
        self._flight.ground(run)
        self._statistics.repairs += 1
        self._retransmit(run, now_us)
        return run

    # What is lost.

    def _detect(self, now_us: int) -> None:
        """Find out what is lost by later acknowledgements."""
        self._overdue_us = NEVER
        head, top = self._flight.head, self._evidence.top[-1]
        run = head.following
        if run is head or run.orders[-1] >= top:
            return
        line, timing, reordered_us = self._line(), self.timing, self._blame.reordered_us()
        while run is not head:
            order = run.orders[-1] + run.first - run.base
            if order >= top:
                break
            following, sent_us = run.following, run.sent_us[-1]
            at_once = self._told_at_once(run)
            held_us = self._held_us(run)
            due_us = sent_us + max(timing.delay_us + held_us, reordered_us) if self._kind.by_name else NEVER
            if order < line and at_once:
                overtaken_us = sent_us + reordered_us if reordered_us else now_us
                if overtaken_us <= now_us:
                    if line - order < run.count:
                        following = self._flight.split(run, run.first + line - order)
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

    def _line(self) -> int:
        """Return the order below which three later transmissions are acknowledged."""
        return self._evidence.top[0]

    def _told_at_once(self, run: Run) -> bool:
        """Return whether the arrival of a run is acknowledged without delay, so that silence means loss."""
        return True

    def _held_us(self, run: Run) -> int:
        """Return for how long the peer may hold back the answer to a run."""
        return 0 if self._told_at_once(run) else self._kind.held_us

    def _lose_by_time(self, run: Run, now_us: int) -> None:
        self._lose(run, now_us, blame=self._time_tells())

    def _time_tells(self) -> bool:
        """Return whether a time-out speaks of a loss: the round trip is known, and shorter.

        Of a timer that does not follow the round trip, only where nearly all of them are.
        """
        timing = self.timing
        late_us = timing.smoothed_us if self._kind.by_name else timing.late_us
        return 0 < timing.smoothed_us <= late_us < timing.delay_us

    def _lose(self, run: Run, now_us: int, *, blame: bool, at_once: bool = False) -> None:
        """Take a run for lost; it leaves again when window and pacing let it, or when its own time has come.

        `at_once` it does not wait for the window: it takes the place of the transmission that was lost. But what is
        lost again may have run over a queue together with others, and would again; losses do not slow `model` down.
        """
        flight, cut = self._flight, False
        flight.ground(run)
        run.state = LOST
        run.losses += 1
        sure = self._passes_by and self._told_at_once(run) and (blame or self._time_tells())
        ignored = sure and self._acceptance.may_refuse(run)
        if self._controller is not None:
            if ignored:
                self._controller.delivered(run.count, None, 0, flight.in_flight, 0, now_us)
            else:
                self._controller.missed(run.count)
        if run.losses == 1 and blame and not ignored and run.sent_us[0] >= self._judged_us:
            cut = self._blame.lost(run, now_us)
        elif run.losses > 1:
            if sure:
                self._acceptance.refused(run.count, self.timing.smoothed_us, now_us)
            self._blame.absolve(run.cut, run.count)
            run.cut = 0
        if not self._kind.by_name:
            self._stubborn += run.count if run.losses == STUBBORN else 0
            return
        if cut and not at_once:
            # The flight is larger than the new window: without this one the repair would wait until it is not.
            if run.count > 1:
                flight.split(run, run.first + 1)
            flight.urge(run)
            return
        if self._waits_alone(run):
            again_us = run.sent_us[-1] + self._backed_off_us(run)
            if again_us > now_us:
                flight.arm(run, again_us)
                return
        if at_once:
            self._statistics.repairs += run.count
        if at_once and not (run.losses > 1 and self._paces_repairs):
            flight.urge(run)
        else:
            flight.queue(run)

    def withdraw(self, stream: Stream) -> list[Run]:
        """Take everything of a stream off and return it."""
        runs = stream.runs()
        for run in runs:
            self._leave(run, run.count)
        return runs
