"""Everything on its way out to one peer: several messages at once under one congestion window.

Messages take turns, a burst of parts each, so that a small one does not wait for a large one. Parts leave for the
first time as the window allows; a part that the receiver asks for leaves at once. `core/flight.py` is not used: it is
made for packets that are acknowledged one by one and keeps their datagrams. Here a mark is confirmed, and the bodies
lie in the message anyway.
"""

from __future__ import annotations

from collections import deque

from fairway.core.congestion import make_controller
from fairway.core.errors import BadMessage, QueueFull
from fairway.core.events import Delivered, DeliveryUnknown, Peer, Refused, Writable
from fairway.core.machine import Buffer
from fairway.protocols.rup import wire
from fairway.protocols.rup.context import Context
from fairway.protocols.rup.grid import SEGMENTS_MAX, Grid
from fairway.protocols.rup.landing import Landing
from fairway.protocols.rup.options import PARTS_MAX
from fairway.protocols.rup.outgoing import Outgoing
from fairway.protocols.rup.tails import Tails

OUTSTANDING_WINDOWS = 4
"""Unconfirmed parts of a message at the most, in windows: while a hole is being repaired the others go on."""

BURSTS_TOGETHER = 4
"""A message's turn is so many system calls long; what comes once per turn and not per call is then cheap."""

IN_FLIGHT_TO_WAIT = 2 * SEGMENTS_MAX
"""With so many parts in flight a burst is sent whole or not yet."""

QUICK_US_MIN = 3_000
"""A repair is not repeated sooner: on a short path the receiver's own work takes longer than the round trip."""
LONG_ROUND_TRIP_US = 10_000

SILENT = "the peer said nothing in time"
TOO_OFTEN = "one part was sent as often as is allowed"
NEVER_SENT = "the address has not proved that it receives, and the three-times limit left no room"


class Sender:
    """The sending half of one conversation."""

    __slots__ = (
        "_blocked_us", "_context", "_controller", "_grid", "_heard_us", "_is_full", "_options", "_pumped_in_flight",
        "_queued_bytes", "_round", "_rtt", "_tails", "_under_way", "_waiting", "in_flight", "is_blocked", "peer",
        "serial",
    )  # fmt: skip

    def __init__(self, peer: Peer, context: Context) -> None:
        options = context.options
        self.peer = peer
        self.serial = context.next_serial()
        self._context = context
        self._options = options
        self._controller = make_controller(options.controller, options.window)
        self._grid = Grid(peer.address, context)
        self._rtt = Landing(initial_us=options.rto_initial_us, min_us=options.rto_us_min, max_us=options.rto_us_max)
        self._waiting: deque[Outgoing] = deque()
        self._under_way: dict[bytes, Outgoing] = {}
        self._round: deque[Outgoing] = deque()
        self._tails = Tails()
        self._queued_bytes = 0
        self._is_full = False
        self.in_flight = 0
        self._pumped_in_flight = 0
        """What was in flight after the latest `pump`."""
        self._blocked_us = 0
        self._heard_us = 0
        self.is_blocked = False
        """The three-times limit keeps something back."""

    @property
    def unfinished(self) -> int:
        """Counts the messages without an outcome."""
        return len(self._waiting) + len(self._under_way)

    @property
    def room(self) -> int:
        """Tells how many more messages `queue` takes, as far as their number decides."""
        if self._queued_bytes >= self._options.send_queue_bytes_max:
            return 0
        return max(0, self._options.send_queue_messages_max - self.unfinished)

    # Queueing.

    def check(self, body: Buffer) -> None:
        """Raises `BadMessage` for a message that can never be sent."""
        size, limit = len(body), self._options.message_bytes_max
        if size > limit:
            raise BadMessage(f"a message of {size} bytes is larger than message_bytes_max, which is {limit}")
        if size > PARTS_MAX * self._context.part_bytes_max:
            raise BadMessage(f"a message of {size} bytes takes more than {PARTS_MAX} parts, the most that rup allows")

    def has_room_for(self, body: Buffer) -> bool:
        """Tells whether the queue takes the message; remembers a no, so that `Writable` follows.

        An empty queue takes a message of any size: otherwise one above the bound could never be sent.
        """
        fits = self._queued_bytes + len(body) <= self._options.send_queue_bytes_max or not self.unfinished
        if fits and self.unfinished < self._options.send_queue_messages_max:
            return True
        self._is_full = True
        return False

    def queue(self, token: int, body: Buffer, now_us: int) -> None:
        """Queues a message; `stir` has it sent."""
        if not self.has_room_for(body):
            raise QueueFull(f"{self.unfinished} messages of {self._queued_bytes} bytes wait for this peer already")
        stable = body if isinstance(body, bytes) or (isinstance(body, memoryview) and body.readonly) else bytes(body)
        context = self._context
        identity, serial = context.draw_identity(), context.next_serial()
        self._waiting.append(Outgoing(token, self.peer.address, identity, stable, now_us, serial))
        self._queued_bytes += len(body)
        self._context.statistics.messages_sent += 1

    # Sending.

    def stir(self, now_us: int) -> None:
        """Has `pump` called before the machine's next output: once, however many inputs there are until then."""
        self._context.stirred[self] = now_us

    def pump(self, now_us: int) -> None:
        """Sends what the window and the pacing allow, and says when to try again."""
        was_blocked, self.is_blocked = self.is_blocked, False
        self._start_waiting(now_us)
        room = self._controller.room(self.in_flight, now_us) if self._round else 0
        held = False
        while room > 0 and self._round:
            message = self._round.popleft()
            burst, sendable = self._grid.burst_max(message), self._sendable(message)
            wanted = min(burst, sendable)
            if wanted <= 0:
                message.in_round = False
                continue
            if room < wanted and self._waits_for_burst(wanted):
                self._round.appendleft(message)
                held = True
                break
            count = min(room, sendable, BURSTS_TOGETHER * burst)
            if burst < count < sendable:
                count -= count % burst
            allowed = self._grid.allowed(message, count)
            if allowed == 0:
                self._block(message, was_blocked, now_us)
                break
            self._transmit(message, allowed, now_us)
            room -= allowed
            message.in_round = self._sendable(message) > 0
            if message.in_round:
                self._round.append(message)
        due_us = None
        if self.is_blocked:
            due_us = self._blocked_us + self._options.silence_us
        elif self._round:
            paced_us = None if held else self._controller.next_room_us(self.in_flight, now_us)
            due_us = self._next_landing_us(now_us) if paced_us is None else paced_us
        self._pumped_in_flight = self.in_flight
        self._context.timers.set(self, due_us)

    def _waits_for_burst(self, wanted: int) -> bool:
        """Tells that the window, not the pacing, has no room for a whole burst, and that more will come by itself.

        So many parts in flight bring a confirm by their number, without waiting for the receiver's timer. Sending
        what each confirm frees would cost a call for half a burst.
        """
        in_flight = self.in_flight
        return in_flight >= IN_FLIGHT_TO_WAIT and self._controller.window - in_flight < wanted

    def _next_landing_us(self, now_us: int) -> int | None:
        """Tells when there will be room without a word of the peer because something has landed."""
        if not self._rtt.smoothed_us:
            return None
        landings = [
            left_us for message in self._under_way.values() if (left_us := message.next_landing_us()) is not None
        ]
        return max(now_us, min(landings) + self._rtt.landing_us) + 1 if landings else None

    def wake(self, now_us: int) -> None:
        """Goes on when there is room again without a word of the peer, or gives up what the limit keeps back."""
        self._refuse_blocked(now_us)
        if self._rtt.smoothed_us:
            for message in self._under_way.values():
                self._land(message, now_us)
        self.stir(now_us)

    def _land(self, message: Outgoing, now_us: int) -> None:
        """Takes what must have left the network by now out of the flight."""
        before = message.in_flight
        message.land(now_us - self._rtt.landing_us)
        self.in_flight += message.in_flight - before

    def _start_waiting(self, now_us: int) -> None:
        """Puts waiting messages under way while there is a place."""
        while self._waiting and len(self._under_way) < self._options.messages_under_way_max:
            message = self._waiting.popleft()
            message.begin(self._grid.part_bytes(message), now_us)
            self._under_way[message.identity] = message
            self._enter_round(message)

    def cut_again(self) -> None:
        """Gives the messages under way of which nothing was sent a grid that fits the path."""
        for message in self._under_way.values():
            if message.sent == 0:
                message.cut(self._grid.part_bytes(message))

    def _enter_round(self, message: Outgoing) -> None:
        if not message.in_round and self._sendable(message) > 0:
            message.in_round = True
            self._round.append(message)

    def _sendable(self, message: Outgoing) -> int:
        return message.sendable(OUTSTANDING_WINDOWS * self._options.window)

    def _block(self, message: Outgoing, was_blocked: bool, now_us: int) -> None:
        self._round.appendleft(message)
        self.is_blocked = True
        if not was_blocked:
            self._blocked_us = now_us
            self._context.statistics.amplification_withheld += 1

    def _refuse_blocked(self, now_us: int) -> None:
        """Refuses what was never sent, once the three-times limit has kept it back for too long."""
        if self.is_blocked and self._blocked_us + self._options.silence_us <= now_us:
            for message in [message for message in self._under_way.values() if message.sent == 0]:
                self._give_up(message, NEVER_SENT)
            while self._waiting:
                self._give_up_waiting(NEVER_SENT)

    def _transmit(self, message: Outgoing, count: int, now_us: int) -> None:
        """Sends the next parts of a message."""
        first = message.cursor
        was_waiting = message.is_waiting
        data = self._grid.encode(message, first, count)
        segment_bytes = wire.DATA_HEADER_BYTES + message.part_bytes
        self._context.outbox.answer(self.peer.address, data, segment_bytes, count)
        self._context.statistics.retransmissions += message.note_sent(count, now_us)
        self._controller.sent(count, now_us)
        self.in_flight += count
        if message.cursor == message.part_count:
            self._tails.left(message)
        if not was_waiting:
            self._arm(message)

    def _repeat(self, message: Outgoing, index: int, now_us: int) -> None:
        """Sends one part again, outside the window: its earlier copy has left the network."""
        data = self._grid.encode(message, index, 1)
        self._context.outbox.answer(self.peer.address, data, len(data))
        self._context.statistics.retransmissions += 1
        self._controller.sent(1, now_us)
        message.note_repeat(index, now_us)
        if index == message.part_count - 1:
            self._tails.left(message)

    # What the peer says.

    def confirm(self, identity: bytes, position: int, now_us: int) -> str:
        """Takes a confirm; names the rule that it breaks, or gives an empty string."""
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
        self._heard(message, now_us)
        if index > message.confirmed:
            self._advance(message, index, now_us)
        if message.is_confirmed:
            self._deliver(message)
            self._repair_tails(now_us)
        else:
            self._repair_at_mark(message, now_us)
            self._after_word(message, now_us)
        self.stir(now_us)
        return ""

    def _heard(self, message: Outgoing, now_us: int) -> None:
        self._context.outbox.prove(self.peer.address)
        self._heard_us = message.heard_us = message.timer_us = now_us
        message.quick_repeats = 0

    def _advance(self, message: Outgoing, index: int, now_us: int) -> None:
        """Moves the mark of a message."""
        message_in_flight = message.in_flight
        newly = index - message.confirmed
        was_probing = message.probing
        rtt_us = message.confirm(index, now_us)
        if was_probing:
            message.go_on(from_here=newly == 1)
            self._learn_slowness(message, rtt_us, now_us)
        if rtt_us is not None:
            self._rtt.sample(rtt_us)
            self._context.statistics.rtt_us = self._rtt.smoothed_us
        self.in_flight += message.in_flight - message_in_flight
        # Of several confirms in one turn the later ones would otherwise find the window unused.
        self._controller.acknowledged(newly, self._pumped_in_flight, self._rtt.smoothed_us, now_us)

    def _learn_slowness(self, message: Outgoing, rtt_us: int | None, now_us: int) -> None:
        """Lets the time-out grow towards the time that a repeated part took, and an eighth past it: a time-out of
        exactly a round trip would come just before every confirm."""
        if rtt_us is None and message.probe_sent_us >= 0:
            elapsed_us = now_us - message.probe_sent_us
            self._rtt.ambiguous(elapsed_us + (elapsed_us >> 3))

    def _after_word(self, message: Outgoing, now_us: int) -> None:
        """Goes on with a message after the peer has said something about it."""
        if message.holes and self._rtt.smoothed_us:
            self._land(message, now_us)
        self._enter_round(message)
        self._arm(message)

    def request(self, identity: bytes, position: int, now_us: int) -> str:
        """Takes a request; names the rule that it breaks, or gives an empty string."""
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
        self._heard(message, now_us)
        if self._is_worn_out(message, index):
            self._give_up(message, TOO_OFTEN)
        else:
            self._repair(message, index, now_us)
            self._after_word(message, now_us)
        self.stir(now_us)
        return ""

    def _repair(self, message: Outgoing, index: int, now_us: int) -> None:
        """Sends a part that the receiver misses at once."""
        self._context.statistics.repairs += 1
        self._send_again(message, index, now_us)

    def _send_again(self, message: Outgoing, index: int, now_us: int) -> None:
        """Sends a part that is taken for lost."""
        before = message.in_flight
        if message.probing:
            message.go_on(from_here=False)
        if index >= message.confirmed:
            self._controller.lost(message.sent_us_of(index), now_us)
            message.holes[index] = None
        self.in_flight += message.in_flight - before
        message.repaired_us = now_us
        self._repeat(message, index, now_us)

    def _repair_at_mark(self, message: Outgoing, now_us: int) -> None:
        """Repairs the part at the mark when a confirm shows that its repair, or the request for it, was lost.

        The part left so long ago that it was due before this confirm left. The last part is exempt: it may have
        arrived, and its confirm waits for a commit. Where a round trip is long, other repairs as old as this one are
        repeated with it, because the mark tells only about one at a time and the receiver asks again no sooner than
        after 200 ms; where it is short, the next confirm tells soon, and most of them have arrived.
        """
        index = message.confirmed
        if message.probing or index == message.part_count - 1 or not message.is_waiting or not self._rtt.smoothed_us:
            return
        patience_us = max(QUICK_US_MIN, self._rtt.patient_us * (1 if index in message.repeats else 2))
        if message.sent_us_of(index) >= now_us - patience_us or self._is_worn_out(message, index):
            return
        self._repair(message, index, now_us)
        if self._rtt.smoothed_us < LONG_ROUND_TRIP_US:
            return
        old = [hole for hole in message.holes if message.sent_us_of(hole) < now_us - patience_us]
        for hole in old[:SEGMENTS_MAX]:
            if not self._is_worn_out(message, hole):
                self._repair(message, hole, now_us)

    def _repair_tails(self, now_us: int) -> None:
        """Repairs last parts that were overtaken by those of messages delivered since."""
        for message in self._tails.overtaken():
            if not self._is_worn_out(message, message.confirmed):
                self._repair(message, message.confirmed, now_us)

    def _is_worn_out(self, message: Outgoing, index: int) -> bool:
        times = message.repeats.get(index, (1, 0))[0]
        return times >= self._options.part_transmissions_max

    # Timers.

    def _arm(self, message: Outgoing) -> None:
        """Sets a message's timer: the time-out of what is unconfirmed, or the end of patience."""
        due_us: int | None = None
        if message.is_waiting:
            due_us = min(message.heard_us + self._options.silence_us, message.timer_us + self._patience_us(message))
            quick_us = self._quick_us(message)
            if quick_us is not None:
                due_us = min(due_us, quick_us)
        self._context.timers.set(message, due_us)

    def _patience_us(self, message: Outgoing) -> int:
        """Tells how long to wait for a word: the time-out and, once it is measured, how long a confirm may be held."""
        held_back_us = self._options.confirm_after_us if self._rtt.smoothed_us else 0
        return self._rtt.backed_off_us(message.backoffs + 1) + held_back_us

    def _quick_us(self, message: Outgoing) -> int | None:
        """Tells when to repeat the first unconfirmed part before the time-out, or None.

        A few repairs are always lost with what they repair. While parts flow the next confirm shows it; at the end of
        a message nothing flows, and the receiver is silent until its timer of 20 ms tells where it stands.
        """
        if (
            not self._rtt.smoothed_us
            or message.quick_repeats_left <= 0
            or self._is_worn_out(message, message.confirmed)
        ):
            return None
        wait_us = max(QUICK_US_MIN, 2 * self._rtt.patient_us) << message.quick_repeats
        return max(message.heard_us, message.repaired_us) + wait_us

    def due(self, message: Outgoing, now_us: int) -> None:
        """Does what is due for a message: the end of patience, a time-out, or a repeat before it."""
        if self._under_way.get(message.identity) is not message:
            return
        if message.heard_us + self._options.silence_us <= now_us:
            self._give_up(message, SILENT)
            self._give_up_queued(now_us)
        elif message.is_waiting and message.timer_us + self._patience_us(message) <= now_us:
            self._time_out(message, now_us)
        else:
            quick_us = self._quick_us(message)
            if quick_us is not None and quick_us <= now_us:
                message.quick_repeats += 1
                self._send_again(message, message.confirmed, now_us)
            self._arm(message)
        self.stir(now_us)

    def _give_up_queued(self, now_us: int) -> None:
        """Ends what waited for a peer that is silent about everything: else each would be silent in its turn."""
        since_us = now_us - self._options.silence_us
        if self._heard_us > since_us:
            return
        for message in [message for message in self._under_way.values() if message.sent == 0]:
            if message.queued_us <= since_us:
                self._give_up(message, SILENT)
        while self._waiting and self._waiting[0].queued_us <= since_us:
            self._give_up_waiting(SILENT)

    def _give_up_waiting(self, reason: str) -> None:
        message = self._waiting.popleft()
        self._under_way[message.identity] = message
        self._give_up(message, reason)

    def _time_out(self, message: Outgoing, now_us: int) -> None:
        """Repeats the first unconfirmed part."""
        index, before = message.confirmed, message.in_flight
        if self._is_worn_out(message, index):
            self._give_up(message, TOO_OFTEN)
            return
        self._controller.timed_out(message.sent_us_of(index), now_us)
        message.time_out(now_us)
        self.in_flight += message.in_flight - before
        self._repeat(message, index, now_us)
        self._arm(message)

    # Outcomes.

    def _deliver(self, message: Outgoing) -> None:
        self._end(message, delivered=True)
        self._context.statistics.messages_delivered += 1
        self._context.events.append(Delivered(self.peer, (message.token,)))
        self._say_writable()

    def _give_up(self, message: Outgoing, reason: str) -> None:
        self._end(message, delivered=False)
        if reason is not NEVER_SENT:
            self._context.statistics.messages_unknown += 1
            self._context.events.append(DeliveryUnknown(self.peer, (message.token,), reason))
        else:
            self._context.statistics.messages_refused += 1
            self._context.events.append(Refused(self.peer, (message.token,), reason))
        self._say_writable()

    def _end(self, message: Outgoing, *, delivered: bool) -> None:
        self._tails.ended(message, delivered=delivered)
        del self._under_way[message.identity]
        if message.in_round:
            self._round.remove(message)
        self.in_flight -= message.in_flight
        self._queued_bytes -= message.total
        self._context.timers.set(message, None)

    def _say_writable(self) -> None:
        if self._is_full and self.room:
            self._is_full = False
            self._context.events.append(Writable(self.peer))
