"""Everything on its way out to one peer: several messages at once under one loss recovery.

Messages take turns, a burst of parts each, so that a small one does not wait for a large one. How many are begun ahead
of the first word about them, the loss recovery decides: a receiver may ignore some in silence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from fairway.core.events import NO_ACKNOWLEDGEMENT, NOT_SENT, Delivered, Peer
from fairway.core.machine import Buffer
from fairway.core.recovery.congestion import make_controller
from fairway.core.recovery.parts import PartRecovery
from fairway.core.recovery.queue import Backlog
from fairway.core.recovery.recovery import Kind
from fairway.core.recovery.runs import NEVER, Run
from fairway.core.recovery.timing import RoundTrip
from fairway.protocols.rup import wire
from fairway.protocols.rup.context import Context
from fairway.protocols.rup.outgoing import SEGMENTS_MAX, Grid, Outgoing

OUTSTANDING_WINDOWS = 4
"""Unconfirmed parts of a message at the most, in windows: while a hole is being repaired the others go on."""
BURSTS_TOGETHER = 4
"""A message's turn is so many system calls long; what comes once per turn and not per call is then cheap."""
IN_FLIGHT_TO_WAIT = 2 * SEGMENTS_MAX
"""With so many parts in flight a burst is sent whole or not yet."""
UNANSWERED_PARTS = 32
"""Parts of a message that leave before the first word about it, if it has more than any that was answered, and more
than half of the window."""

REPEAT_WITHIN_US = 50_000_000
"""A receiver recognises a completed message for 60 s from its latest part: what was not repeated for nearly as long may
be delivered twice, so it is not repeated at all."""

LEFT_BEHIND = "the peer said nothing about this message in time, but confirmed later ones"


class Sender:
    """The sending half of one conversation."""

    __slots__ = (
        "_begun", "_blocked_us", "_context", "_fresh", "_fresh_next", "_grid", "_leader", "_oldest_first", "_options",
        "_outstanding_max", "_recovery", "_round", "_slots", "_under_way", "_waiting", "backlog", "is_blocked", "peer",
        "serial",
    )  # fmt: skip

    def __init__(self, peer: Peer, context: Context) -> None:
        options = context.options
        self.peer = peer
        self.serial = context.next_serial()
        self._context = context
        self._options = options
        self._grid = Grid(peer.address, context)
        self._recovery = PartRecovery(
            Kind(
                held_us=options.confirm_after_us,
                backoff_us_max=options.backoff_us_max,
                repeat_within_us=REPEAT_WITHIN_US,
                silence_us=options.silence_us,
                stall_us=options.stall_us,
            ),
            RoundTrip(initial_us=options.rto_initial_us, min_us=options.rto_us_min, max_us=options.rto_us_max),
            make_controller(options.controller, options.window, options.confirm_after_us),
            context.statistics,
            ahead_max=options.messages_under_way_max,
        )
        self._slots = self._recovery.slots
        self._outstanding_max = OUTSTANDING_WINDOWS * options.window
        self.backlog = Backlog(options, context.outputs, peer)
        self._waiting: deque[Outgoing] = deque()
        self._under_way: dict[bytes, Outgoing] = {}
        self._begun: dict[int, Outgoing] = {}
        """The same messages by the serial of their stream."""
        self._round: deque[Outgoing] = deque()
        self._fresh: deque[Outgoing] = deque()
        """Messages that have something to send: those that the peer has answered, and those it has not."""
        self._leader: Outgoing | None = None
        """Gets every second turn."""
        self._fresh_next = False
        self._oldest_first = False
        self._blocked_us = 0
        self.is_blocked = False
        """The three-times limit keeps something back."""

    # The queue.

    def queue(self, bodies: Sequence[Buffer], token: int, now_us: int, *, equal: bool) -> None:
        """Queue messages. `bytes` and read-only views are not copied: they must not change before the outcome."""
        context = self._context
        for position, body in enumerate(bodies):
            stable = body if isinstance(body, bytes) or _is_stable(body) else bytes(body)
            identity, serial = context.draw_identity(), context.next_serial()
            self._waiting.append(Outgoing(token + position, identity, stable, now_us, serial))
            self.backlog.add(1, len(stable))
        self.mark_ready(now_us)

    # Sending.

    def mark_ready(self, now_us: int) -> None:
        """Have `flush` called before the machine's next output: once, however many inputs there are until then."""
        self._context.outputs.ready[self] = now_us

    def flush(self, now_us: int) -> None:
        was_blocked, self.is_blocked = self.is_blocked, False
        recovery = self._recovery
        self._oldest_first = self._oldest_first or recovery.is_stalled
        # To a peer that stands still the oldest goes before what was lost of others: perhaps it takes nothing else.
        oldest = min(map(_serial, self._round)) if recovery.is_stalled and self._round else NEVER
        self._retransmit_lost(oldest, now_us)
        if self._fresh and self._slots.is_overdrawn:
            self._take_back()
        self._begin_waiting()
        room = recovery.room(now_us) if self._round or self._fresh else 0
        held = False
        while room > 0 and (self._round or self._fresh):
            message = self._next_in_turn(now_us)
            if message is None:
                held = True
                break
            burst = self._grid.burst_max(message) if message.part_count > 1 else 1
            ahead = self._outstanding_max if self.backlog.messages == 1 else self._ahead_of_answer(message)
            sendable = message.sendable(self._outstanding_max, ahead)
            if sendable <= 0:
                message.in_round = False
                continue
            if room < min(burst, sendable) and self._waits_for_burst(min(burst, sendable)):
                self._enter(message, first=True)
                held = True
                break
            message.turn = message.turn or self._turn_max(message, burst)
            count = min(room, sendable, message.turn)
            if burst < count < sendable:
                count -= count % burst
            allowed = self._grid.allowed(message, count)
            if allowed == 0:
                self._block(message, was_blocked, now_us)
                break
            self._transmit(message, allowed, now_us)
            room -= allowed
            message.turn -= allowed
            message.in_round = allowed < sendable
            if message.in_round:
                self._enter(message, first=message.turn > 0)
                self._lead(message)
            # A peer that ignores messages already is not offered more while it takes one.
            self._fresh_next = not message.turn and message.stream.answered and not self._slots.ignored
        if oldest < NEVER:
            self._retransmit_lost(NEVER, now_us)
        recovery.note_tail(now_us, is_tail=not (self._round or self._fresh or self._waiting))
        self._arm(held, now_us)

    def _arm(self, held: bool, now_us: int) -> None:
        """Set the timer; `held` says that what may leave waits for more than room."""
        recovery = self._recovery
        due_us = recovery.next_us()
        if self.is_blocked:
            due_us = min(due_us, self._blocked_us + self._options.silence_us)
        elif ((self._round or self._fresh) and not held) or recovery.has_lost:
            due_us = min(due_us, recovery.next_room_us(now_us))
        elif held and self._slots.left_us + recovery.answer_us > now_us:
            due_us = min(due_us, self._slots.left_us + recovery.answer_us)
        self._context.timers.set(self, due_us if due_us < NEVER else None)

    def _next_in_turn(self, now_us: int) -> Outgoing | None:
        """Take the next message out of the round. One that the peer has answered goes before those that it may not
        want yet, but after a whole turn of it one of those gets its turn. A peer that stood still perhaps takes only
        what it began first: from then on the oldest message is sent to its end. None if only such are there as the peer
        would ignore now."""
        if self._fresh and not self._slots.may_leave(now_us, self._recovery.answer_us):
            begun = min((one for one in (*self._round, *self._fresh) if one.sent), key=_serial, default=None)
            if begun is not None:
                (self._round if begun.stream.answered else self._fresh).remove(begun)
            return begun
        fresh = bool(self._fresh) and (self._fresh_next or not self._round)
        if self._oldest_first and self._round:
            small = self._small() if fresh else None
            if small is not None:
                self._fresh.remove(small)
                return small
            oldest = min(self._round, key=_serial)
            self._round.remove(oldest)
            return oldest
        self._oldest_first = self._oldest_first and bool(self._round)
        return self._fresh.popleft() if fresh else self._round.popleft()

    def _ahead_of_answer(self, message: Outgoing) -> int:
        """Return how many parts of a message leave before the first word about it while others wait.

        The peer may ignore it, above all if it is much longer than any that was answered. One part of each looks for a
        message that is answered at all.
        """
        recovery = self._recovery
        if recovery.is_stalled and not self._slots.longest:
            return 1
        longest = self._slots.longest
        if message.part_count <= longest:
            return longest
        half = 0 if self._slots.hopeless else (recovery.in_flight + recovery.window_room()) // 2
        return max(UNANSWERED_PARTS, min(half, max(SEGMENTS_MAX, 2 * longest)))

    def _turn_max(self, message: Outgoing, burst: int) -> int:
        """Return how many parts a turn has: of a message that needs several no more than a window while one of one part
        waits for its own."""
        most, recovery = BURSTS_TOGETHER * burst, self._recovery
        if message.part_count - message.sent <= most or self._small() is None:
            return most
        return min(most, recovery.in_flight + recovery.window_room())

    def _small(self) -> Outgoing | None:
        """Return the first message of one part that waits for its turn, also behind a large one that does."""
        return next((message for message in self._fresh if message.part_count == 1), None)

    def _enter(self, message: Outgoing, *, first: bool) -> None:
        message.in_round = True
        queue = self._round if message.stream.answered else self._fresh
        if first:
            queue.appendleft(message)
        else:
            queue.append(message)

    def _lead(self, message: Outgoing) -> None:
        """Have every second turn go to one message, until it is sent, and the others to the rest in turn.

        If all took turns alike, messages of one size that were begun together would end together, and a sender who
        queues another for each that is confirmed would have nothing to send for a round trip.
        """
        if self._leader is None or not self._leader.in_round:
            self._leader = message
        if message is self._leader and not message.turn and self._round and self._round[-1] is message:
            self._round.pop()
            self._round.insert(1, message)

    def _waits_for_burst(self, wanted: int) -> bool:
        """Return whether the window, not the pacing, has no room for a whole burst, and more will come by itself.

        So many parts in flight bring a confirm by their number, without waiting for the receiver's timer. Sending
        what each confirm frees would cost a call for half a burst.
        """
        recovery = self._recovery
        return recovery.gathers and recovery.in_flight >= IN_FLIGHT_TO_WAIT and recovery.window_room() < wanted

    def _begin_waiting(self) -> None:
        """Begin waiting messages while the peer may have a slot for them."""
        while self._waiting and len(self._under_way) - self._slots.ignored < self._options.messages_under_way_max:
            message = self._waiting[0]
            if not message.part_count:
                message.cut(self._grid.part_bytes(message))
            if not self._slots.may_begin(message.stream):
                return
            self._waiting.popleft()
            self._under_way[message.identity] = self._begun[message.serial] = message
            self._slots.begin(message.stream)
            self._enter(message, first=False)

    def _take_back(self) -> None:
        """Have messages of several parts wait again of which nothing was sent."""
        for message in reversed([one for one in self._fresh if not one.sent and one.part_count > 1]):
            self._fresh.remove(message)
            message.in_round = False
            del self._under_way[message.identity], self._begun[message.serial]
            self._slots.ended(message.stream)
            self._waiting.appendleft(message)

    def _enter_round(self, message: Outgoing) -> None:
        if not message.in_round and message.sent < message.part_count:
            self._enter(message, first=False)

    def cut_again(self) -> None:
        """Give the messages of which nothing was sent a grid that fits the path."""
        for message in (*self._under_way.values(), *self._waiting):
            if message.sent == 0 and message.part_count:
                message.cut(self._grid.part_bytes(message))

    def _block(self, message: Outgoing, was_blocked: bool, now_us: int) -> None:
        self._enter(message, first=True)
        self.is_blocked = True
        if not was_blocked:
            self._blocked_us = now_us
            self._context.statistics.amplification_withheld += 1

    def _transmit(self, message: Outgoing, count: int, now_us: int) -> None:
        context, first = self._context, message.sent
        data = self._grid.encode(message, first, count)
        context.outbox.answer(self.peer.address, data, wire.DATA_HEADER_BYTES + message.part_bytes, count)
        self._recovery.sent(message.stream, first, count, now_us)
        message.sent = first + count
        self._slots.left(message.stream, first, message.sent)
        context.statistics.messages_sent += not first

    def _retransmit_lost(self, serial_max: int, now_us: int) -> None:
        while (run := self._recovery.next_retransmission(now_us, serial_max)) is not None:
            self._retransmit(run)
        while self._recovery.forgotten:
            self._give_up(self._begun[self._recovery.forgotten.pop().serial], LEFT_BEHIND)

    def _retransmit(self, run: Run) -> None:
        message = self._begun[run.stream.serial]
        self._enter_round(message)
        data = self._grid.encode(message, run.first, run.count)
        segment_bytes = wire.DATA_HEADER_BYTES + message.part_bytes
        self._context.outbox.answer(self.peer.address, data, segment_bytes, run.count)

    # What the peer says.

    def confirm(self, identity: bytes, position: int, now_us: int) -> str:
        """Take a confirm; return the rule that it breaks, or an empty string."""
        message = self._under_way.get(identity)
        if message is None:
            return "unknown_id"
        if position == message.total:
            index = message.part_count
        else:
            index, off = divmod(position, message.part_bytes)
            if position > message.total or off:
                return "above_total" if position > message.total else "off_grid"
        if index > message.sent:
            return "not_sent"
        recovery, stream = self._recovery, message.stream
        self._answered(message, now_us)
        if index > stream.mark:
            # A confirm of the total may have waited for a commit; a message of one part has no other.
            prompt = index < message.part_count or message.part_count == 1
            recovery.acknowledge_to(stream, index, now_us, prompt=prompt)
            self._context.statistics.rtt_us = recovery.timing.smoothed_us
        if index == message.part_count:
            self._deliver(message, now_us)
        else:
            self._enter_round(message)
        self.mark_ready(now_us)
        return ""

    def _answered(self, message: Outgoing, now_us: int) -> None:
        """Take that the peer speaks of a message."""
        self._context.outbox.prove(self.peer.address)
        if not message.stream.answered and message.in_round:
            self._fresh.remove(message)
            self._round.append(message)
        self._recovery.heard(message.stream, now_us)

    def request(self, identity: bytes, position: int, now_us: int) -> str:
        """Take a request; return the rule that it breaks, or an empty string."""
        message = self._under_way.get(identity)
        if message is None:
            return "unknown_id"
        index, off = divmod(position, message.part_bytes)
        if off:
            return "off_grid"
        if index >= message.part_count:
            return "above_total"
        if index >= message.sent:
            return "not_sent"
        self._answered(message, now_us)
        reason = self._recovery.requested(message.stream, index, now_us)
        self._enter_round(message)
        self.mark_ready(now_us)
        return reason

    # Timers.

    def wake(self, now_us: int) -> None:
        """Do what is due, and give up what the peer has been silent about for too long."""
        for run in self._recovery.wake(now_us):
            self._give_up(self._begun[run.stream.serial], LEFT_BEHIND)
        for stream in self._recovery.given_up(now_us):
            self._give_up(self._begun[stream.serial], NO_ACKNOWLEDGEMENT)
            self._refuse_queued(now_us - self._options.silence_us)
        if self.is_blocked and self._blocked_us + self._options.silence_us <= now_us:
            self._refuse_queued(now_us)
        self.mark_ready(now_us)

    def _refuse_queued(self, before_us: int) -> None:
        """End what was queued before that time and never transmitted: it would only wait in its turn."""
        for message in [one for one in self._under_way.values() if not one.sent and one.queued_us <= before_us]:
            self._give_up(message, NOT_SENT)
        while self._waiting and self._waiting[0].queued_us <= before_us:
            message = self._waiting.popleft()
            self._under_way[message.identity] = self._begun[message.serial] = message
            self._give_up(message, NOT_SENT)

    # Outcomes.

    def _deliver(self, message: Outgoing, now_us: int) -> None:
        self._end(message)
        self._report_delivered(message.token)
        self.backlog.settle(1, message.total)
        self._recovery.finished(message.stream, now_us)

    def _report_delivered(self, token: int) -> None:
        """Report that a message was confirmed, together with its neighbours if they were the last that happened."""
        outputs = self._context.outputs
        outputs.statistics.messages_delivered += 1
        reported = outputs.reported
        last = reported[-1] if reported else None
        if isinstance(last, Delivered) and last.peer is self.peer and last.tokens[-1] == token - 1:
            reported[-1] = Delivered(self.peer, range(last.tokens[0], token + 1))
        else:
            outputs.report(Delivered(self.peer, (token,)))

    def _give_up(self, message: Outgoing, reason: str) -> None:
        self._end(message)
        if message.sent:
            self.backlog.unknown((message.token,), message.total, reason)
        else:
            self.backlog.refused((message.token,), message.total)

    def end_all(self, reason: str) -> None:
        for message in list(self._under_way.values()):
            self._give_up(message, reason)
        self._refuse_queued(NEVER)

    def _end(self, message: Outgoing) -> None:
        del self._under_way[message.identity], self._begun[message.serial]
        self._recovery.withdraw(message.stream)
        if message.in_round:
            (self._round if message.stream.answered else self._fresh).remove(message)


def _serial(message: Outgoing) -> int:
    return message.serial


def _is_stable(body: Buffer) -> bool:
    """Return whether parts can be cut from a body where it lies: nobody changes it, and its items are bytes."""
    return (
        isinstance(body, memoryview) and body.readonly and body.c_contiguous and body.format == "B" and body.ndim == 1
    )
