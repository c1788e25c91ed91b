"""Everything on its way out to one peer: several messages at once under one congestion window.

Messages take turns, a burst of parts each, so that a small one does not wait for a large one. Parts leave for the
first time as the window allows; a part that the receiver asks for leaves at once. `core/flight.py` is not used: it is
made for packets that are acknowledged one by one and keeps their datagrams. Here a mark is confirmed, and the bodies
lie in the message anyway.
"""

from __future__ import annotations

from collections import deque

from fairway.core.congestion import make_controller
from fairway.core.events import NOT_SENT, DeliveryUnknown, Peer, Refused, Writable
from fairway.core.machine import Buffer
from fairway.protocols.rup import wire
from fairway.protocols.rup.backlog import Backlog
from fairway.protocols.rup.context import Context
from fairway.protocols.rup.grid import SEGMENTS_MAX, Grid
from fairway.protocols.rup.outgoing import Outgoing
from fairway.protocols.rup.patience import QUICK_US_MIN, Patience
from fairway.protocols.rup.tails import Tails

OUTSTANDING_WINDOWS = 4
"""Unconfirmed parts of a message at the most, in windows: while a hole is being repaired the others go on."""

BURSTS_TOGETHER = 4
"""A message's turn is so many system calls long; what comes once per turn and not per call is then cheap."""

IN_FLIGHT_TO_WAIT = 2 * SEGMENTS_MAX
"""With so many parts in flight a burst is sent whole or not yet."""

SILENT = "the peer said nothing in time"
TOO_OFTEN = "one part was sent as often as is allowed"


class Sender:
    """The sending half of one conversation."""

    __slots__ = (
        "_blocked_us", "_context", "_controller", "_grid", "_heard_us", "_options", "_outstanding_max", "_patience",
        "_pumped_in_flight", "_round", "_rtt", "_spoken_of", "_tails", "_under_way", "_waiting", "backlog",
        "in_flight", "is_blocked", "peer", "serial",
    )  # fmt: skip

    def __init__(self, peer: Peer, context: Context) -> None:
        options = context.options
        self.peer = peer
        self.serial = context.next_serial()
        self._context = context
        self._options = options
        self._controller = make_controller(options.controller, options.window)
        self._grid = Grid(peer.address, context)
        self._outstanding_max = OUTSTANDING_WINDOWS * options.window
        self._patience = Patience(options)
        self._rtt = self._patience.rtt
        self.backlog = Backlog(context)
        self._waiting = self.backlog.waiting
        self._under_way: dict[bytes, Outgoing] = {}
        self._round: deque[Outgoing] = deque()
        self._spoken_of: dict[Outgoing, None] = {}
        """Messages that the peer has said something about since the latest `pump`."""
        self._tails = Tails()
        self.in_flight = 0
        self._pumped_in_flight = 0
        """What was in flight after the latest `pump`."""
        self._blocked_us = 0
        self._heard_us = 0
        self.is_blocked = False
        """The three-times limit keeps something back."""

    def queue(self, token: int, body: Buffer, now_us: int) -> None:
        """Queues a message for which the backlog has room; `stir` has it sent."""
        stable = body if isinstance(body, bytes) or _is_stable(body) else bytes(body)
        context = self._context
        identity, serial = context.draw_identity(), context.next_serial()
        self.backlog.add(Outgoing(token, self.peer.address, identity, stable, now_us, serial))
        context.statistics.messages_sent += 1

    # Sending.

    def stir(self, now_us: int) -> None:
        """Has `pump` called before the machine's next output: once, however many inputs there are until then."""
        self._context.stirred[self] = now_us

    def pump(self, now_us: int) -> None:
        """Sends what the window and the pacing allow, and says when to try again."""
        was_blocked, self.is_blocked = self.is_blocked, False
        if self._spoken_of:
            self._go_on()
        self._start_waiting(now_us)
        room = self._controller.room(self.in_flight, now_us) if self._round else 0
        held = False
        while room > 0 and self._round:
            message = self._round.popleft()
            sendable = message.sendable(self._outstanding_max)
            burst = self._grid.burst_max(message) if message.part_count > 1 else 1
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
            message.in_round = allowed < sendable
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

    def _go_on(self) -> None:
        """Takes up again what the peer has said something about: once a turn, however much it said."""
        for message in self._spoken_of:
            self._enter_round(message)
            self._context.timers.set(message, self._patience.due_us(message))
        self._spoken_of.clear()

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
        return max(now_us, min(landings) + self._rtt.rto_us) + 1 if landings else None

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
        message.land(now_us - self._rtt.rto_us)
        self.in_flight += message.in_flight - before

    def _start_waiting(self, now_us: int) -> None:
        """Puts waiting messages under way while there is a place."""
        while self._waiting and len(self._under_way) < self._options.messages_under_way_max:
            message = self._waiting.popleft()
            message.begin(self._grid.part_bytes(message), now_us)
            self._under_way[message.identity] = message
            message.in_round = True
            self._round.append(message)

    def cut_again(self) -> None:
        """Gives the messages under way of which nothing was sent a grid that fits the path."""
        for message in self._under_way.values():
            if message.sent == 0:
                message.cut(self._grid.part_bytes(message))

    def _enter_round(self, message: Outgoing) -> None:
        if not message.in_round and message.sendable(self._outstanding_max) > 0:
            message.in_round = True
            self._round.append(message)

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
                self._give_up(message, NOT_SENT)
            while self._waiting:
                self._give_up_waiting(NOT_SENT)

    def _transmit(self, message: Outgoing, count: int, now_us: int) -> None:
        """Sends the next parts of a message."""
        context = self._context
        was_waiting = message.is_waiting
        data = self._grid.encode(message, message.cursor, count)
        context.outbox.answer(self.peer.address, data, wire.DATA_HEADER_BYTES + message.part_bytes, count)
        context.statistics.retransmissions += message.note_sent(count, now_us)
        self._controller.sent(count, now_us)
        self.in_flight += count
        if message.cursor == message.part_count:
            self._tails.left(message)
        if not was_waiting:
            context.timers.set(message, self._patience.due_us(message))

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
        if message.confirmed == message.part_count:
            self._deliver(message)
            self._repair_tails(now_us)
        else:
            if message.repeats or message.oldest_us < now_us - QUICK_US_MIN:
                self._repair_at_mark(message, now_us)
            self._after_word(message, now_us)
        self._context.stirred[self] = now_us
        return ""

    def _heard(self, message: Outgoing, now_us: int) -> None:
        self._context.outbox.prove(self.peer.address)
        self._heard_us = message.heard_us = message.timer_us = now_us
        message.quick_repeats = 0

    def _advance(self, message: Outgoing, index: int, now_us: int) -> None:
        """Moves the mark of a message."""
        rtt, before = self._rtt, message.in_flight
        newly = index - message.confirmed
        was_probing = message.probing
        rtt_us = message.confirm(index, now_us)
        if was_probing:
            message.go_on(from_here=newly == 1)
            self._learn_slowness(message, rtt_us, now_us)
        if rtt_us is not None:
            rtt.sample(rtt_us)
            self._context.statistics.rtt_us = rtt.smoothed_us
        self.in_flight += message.in_flight - before
        # Of several confirms in one turn the later ones would otherwise find the window unused.
        self._controller.acknowledged(newly, self._pumped_in_flight, rtt.smoothed_us, now_us)

    def _learn_slowness(self, message: Outgoing, rtt_us: int | None, now_us: int) -> None:
        """Lets the time-out grow towards the time that a repeated part took, and an eighth past it: a time-out of
        exactly a round trip would come just before every confirm."""
        if rtt_us is None and message.probe_sent_us >= 0:
            elapsed_us = now_us - message.probe_sent_us
            self._rtt.ambiguous(elapsed_us + (elapsed_us >> 3))

    def _after_word(self, message: Outgoing, now_us: int) -> None:
        """Has `pump` go on with a message about which the peer has said something."""
        if message.holes and self._rtt.smoothed_us:
            self._land(message, now_us)
        self._spoken_of[message] = None

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
        if self._patience.is_worn_out(message, index):
            self._give_up(message, TOO_OFTEN)
        else:
            before = message.in_flight
            message.overtaken(index)
            self.in_flight += message.in_flight - before
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
        arrived, and its confirm waits for a commit. Other repairs as old as this one are repeated with it: the mark
        tells only about one at a time, and the receiver asks again no sooner than after 200 ms. Most of them have
        arrived, but at 5 % loss one in ten has not, and each would cost a round trip of its own.
        """
        index = message.confirmed
        if message.probing or index == message.part_count - 1 or not message.is_waiting or not self._rtt.smoothed_us:
            return
        patience_us = self._patience.repair_us(repeated=index in message.repeats)
        if message.sent_us_of(index) >= now_us - patience_us or self._patience.is_worn_out(message, index):
            return
        self._repair(message, index, now_us)
        # Once each: that a part is still missing after two repairs is rare, and the mark will tell.
        old = [hole for hole in message.holes if message.was_repaired_once_before(hole, now_us - patience_us)]
        for hole in old[:SEGMENTS_MAX]:
            self._repair(message, hole, now_us)

    def _repair_tails(self, now_us: int) -> None:
        """Repairs last parts that were overtaken by those of messages delivered since."""
        for message in self._tails.overtaken():
            if not self._patience.is_worn_out(message, message.confirmed):
                self._repair(message, message.confirmed, now_us)

    # Timers.

    def due(self, message: Outgoing, now_us: int) -> None:
        """Does what is due for a message: the end of patience, a time-out, or a repeat before it."""
        if self._under_way.get(message.identity) is not message:
            return
        if message.heard_us + self._options.silence_us <= now_us:
            self._give_up(message, SILENT)
            self._give_up_queued(now_us)
        elif message.is_waiting and self._patience.time_out_us(message) <= now_us:
            self._time_out(message, now_us)
        else:
            quick_us = self._patience.quick_us(message)
            if quick_us is not None and quick_us <= now_us:
                message.quick_repeats += 1
                self._send_again(message, message.confirmed, now_us)
            self._context.timers.set(message, self._patience.due_us(message))
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
        if self._patience.is_worn_out(message, index):
            self._give_up(message, TOO_OFTEN)
            return
        self._controller.timed_out(message.sent_us_of(index), now_us)
        message.time_out(now_us)
        self.in_flight += message.in_flight - before
        self._repeat(message, index, now_us)
        self._context.timers.set(message, self._patience.due_us(message))

    # Outcomes.

    def _deliver(self, message: Outgoing) -> None:
        self._context.statistics.messages_delivered += 1
        self._context.report_delivered(self.peer, message.token)
        self._end(message, delivered=True)

    def _give_up(self, message: Outgoing, reason: str) -> None:
        if message.sent:
            self._context.statistics.messages_unknown += 1
            self._context.events.append(DeliveryUnknown(self.peer, (message.token,), reason))
        else:
            self._context.statistics.messages_refused += 1
            self._context.events.append(Refused(self.peer, (message.token,), NOT_SENT))
        self._end(message, delivered=False)

    def end_all(self, reason: str) -> None:
        """End everything without an outcome: nobody receives there."""
        for message in list(self._under_way.values()):
            self._give_up(message, reason)
        while self._waiting:
            self._give_up_waiting(reason)

    def _end(self, message: Outgoing, *, delivered: bool) -> None:
        self._tails.ended(message, delivered=delivered)
        del self._under_way[message.identity]
        self._spoken_of.pop(message, None)
        if message.in_round:
            self._round.remove(message)
        self.in_flight -= message.in_flight
        self._context.timers.set(message, None)
        # A timer that is cleared may keep the message for a while, but not its body.
        message.body = b""
        if self.backlog.ended(message):
            self._context.events.append(Writable(self.peer))


def _is_stable(body: Buffer) -> bool:
    """Tells whether parts can be cut from a body where it lies: nobody changes it, and its items are bytes in a row."""
    return (
        isinstance(body, memoryview) and body.readonly and body.c_contiguous and body.format == "B" and body.ndim == 1
    )
