"""Everything on its way in: takes parts, keeps unfinished messages within their bounds, confirms, requests, delivers.

What becomes of a part, in the order of the questions:

    malformed in itself (start byte, empty, past the total)  dropped, counted
    of a remembered message                                  confirm total, at once
    of a message delivered and not committed (deferred)      arms a confirm up to the start of its last part
    of an unfinished message                                 kept, or a duplicate; arms a confirm, may cause requests
    of a new message                                         within all bounds: begins it; a lone part is delivered

A part that a bound refuses leaves no mark, so its sender repeats it; if its message was begun it arms a confirm like
any other, so that the sender knows that we are here.
"""

from __future__ import annotations

from fairway.core.events import Address, MessageReceived, PartReceived
from fairway.core.machine import Buffer
from fairway.core.receipts import ReceiptSlots
from fairway.core.statistics import RECEIPTS_FULL, REMEMBERED_FULL, TOO_LARGE
from fairway.protocols.rup import wire
from fairway.protocols.rup.context import Context
from fairway.protocols.rup.conversation import Conversation
from fairway.protocols.rup.incoming import Incoming, Memory, cost, grid_fault
from fairway.protocols.rup.remembered import Remembered


class Held:
    """A complete message that was delivered and waits for its commit (deferred)."""

    __slots__ = ("conversation", "duplicates", "identity", "last_start", "serial", "total")

    def __init__(self, conversation: Conversation, identity: bytes, total: int, last_start: int, serial: int) -> None:
        self.serial = serial
        self.conversation = conversation
        self.identity = identity
        self.total = total
        self.last_start = last_start
        self.duplicates = 0


class Receiver:
    """The receiving half of a machine, for all its peers."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._options = context.options
        self._statistics = context.statistics
        self._outbox = context.outbox
        self._timers = context.timers
        self.remembered = Remembered()
        self._held: dict[tuple[Address, bytes], Held] = {}
        self.incoming_count = 0
        self.memory = Memory(context.options)
        self._slots = ReceiptSlots(context.options)

    # Parts, one by one.

    def answers_duplicate(self, address: Address, header: wire.Headed, now_us: int) -> bool:
        """Deal with a part of a message that is complete; return whether it was one."""
        identity = header.identity
        total = self.remembered.total(address, identity)
        if total is not None:
            if max(total, ~total) != header.total:
                self._context.drop("total_differs")
                return True
            self._statistics.duplicates += 1
            self.remembered.renew(address, identity, now_us + self._options.remember_us)
            if total >= 0:
                self._outbox.answer(address, wire.control(wire.CONFIRM, identity, total), wire.CONTROL_BYTES)
            return True
        held = self._held.get((address, identity)) if self._held else None
        if held is None:
            return False
        if held.total != header.total:
            self._context.drop("total_differs")
        else:
            self._statistics.duplicates += 1
            self._arm_held(held, now_us)
        return True

    def _arm_held(self, held: Held, now_us: int) -> None:
        """Arm the confirm that a message waiting for its commit gets; an empty one gets none."""
        if held.total == 0:
            return
        held.duplicates += 1
        if held.duplicates >= self._options.confirm_every_parts:
            self._confirm_held(held)
        elif self._timers.get(held) is None:
            self._timers.set(held, now_us + self._options.confirm_after_us)

    def _confirm_held(self, held: Held) -> None:
        """Confirm a message that waits for its commit up to the start of its last part."""
        held.duplicates = 0
        self._timers.set(held, None)
        address = held.conversation.peer.address
        self._outbox.answer(address, wire.control(wire.CONFIRM, held.identity, held.last_start), wire.CONTROL_BYTES)

    def refusal(self, conversation: Conversation | None, header: wire.Headed, size: int) -> str:
        """Name the rule that keeps a new message from beginning with this part, or return an empty string."""
        options, total = self._options, header.total
        is_whole = size == total
        is_spooled = 0 < options.spool_above_bytes < total and not is_whole
        if total > options.message_bytes_max:
            return TOO_LARGE
        if header.position + size < total and (fault := grid_fault(header.position, size, total)):
            return fault
        if self.incoming_count + len(self.remembered) + len(self._held) >= options.remembered_max:
            return REMEMBERED_FULL
        if is_whole:
            return "" if self._slots.fit_alone(total) else RECEIPTS_FULL
        if self.incoming_count >= options.incoming_messages_max:
            return "incoming_full"
        if conversation is not None and len(conversation.incoming) >= options.incoming_messages_per_peer_max:
            return "incoming_full"
        is_kept = not is_spooled or header.position + size == total
        return "memory_full" if is_kept and not self.memory.admits(conversation, cost(size, 1)) else ""

    def begin(self, conversation: Conversation, header: wire.Headed, data: Buffer, now_us: int) -> None:
        """Begin a message that nothing refuses with one of its parts."""
        body = wire.body(data)
        if len(body) == header.total:
            self._deliver(conversation, header.identity, body, header.total, now_us)
            if self._options.deferred:
                held = Held(conversation, header.identity, header.total, 0, self._context.next_serial())
                self._hold(held, now_us + self._options.confirm_after_us)
            else:
                self._finish(conversation.peer.address, header.identity, header.total, now_us)
            return
        message = Incoming(conversation, header.identity, header.total, self._options, self._context.next_serial())
        conversation.incoming[header.identity] = message
        self.incoming_count += 1
        self.memory.begin(message)
        self._keep(message, header.position, body, now_us)

    def part(self, message: Incoming, header: wire.Headed, data: Buffer, now_us: int) -> None:
        position = header.position
        size = len(data) - wire.DATA_HEADER_BYTES
        reason = message.fault(position, size, header.total)
        if reason:
            self._context.drop(reason)
        elif message.is_duplicate(position):
            self._statistics.duplicates += 1
            # Its sender has not heard how far we are.
            self._after_arrival(message, now_us, at_once=position < message.mark)
        elif reason := self._part_refusal(message, position, size):
            self._context.drop(reason)
            message.heard_us = now_us
            self._after_arrival(message, now_us, at_once=False)
        else:
            self._keep(message, position, wire.body(data), now_us)

    def _part_refusal(self, message: Incoming, position: int, size: int) -> str:
        """Return the name of the bound that keeps a new part out, or an empty string."""
        parts = message.parts
        if (
            message.part_bytes
            and parts.gaps >= self._options.gaps_max
            and parts.makes_gap(position // message.part_bytes)
        ):
            return "too_many_gaps"
        if message.would_complete(position, size) and not self._slots.fit_alone(self._slot_bytes(message)):
            return RECEIPTS_FULL
        return "" if message.spooled or self.memory.lets_grow(message, cost(size, 1)) else "memory_full"

    def _slot_bytes(self, message: Incoming) -> int:
        return 0 if message.spooled else message.total

    def _keep(self, message: Incoming, position: int, body: bytes, now_us: int) -> None:
        """Keep a new part, and with the first that shows the grid also the last part that was kept aside."""
        held_before = message.held_bytes
        at_once = False
        if message.part_bytes == 0 and position + len(body) == message.total:
            message.keep_last(position, body, now_us)
        else:
            if message.part_bytes == 0:
                self._learn_grid(message, len(body))
            index = position // message.part_bytes
            message.requests.arrived(index, now_us)
            at_once = self._add(message, index, body, now_us)
        message.heard_us = now_us
        self.memory.count(message, held_before)
        self._after_arrival(message, now_us, at_once=at_once)

    def _learn_grid(self, message: Incoming, part_bytes: int) -> None:
        fits = message.learn_grid(part_bytes)
        message.requests.grid_known()
        if message.last_position < 0:
            return
        last_us = message.last_us
        last = message.take_last()
        if fits:
            self._add(message, message.part_count - 1, last, last_us)
        else:
            self._context.drop("off_grid")

    def _add(self, message: Incoming, index: int, body: bytes, now_us: int) -> bool:
        """Keep a part or, when the message is spooled, report it."""
        if message.spooled:
            self._spool(message, index, body)
        return message.add(index, body, now_us)

    def _spool(self, message: Incoming, first: int, body: bytes) -> None:
        identity, offset = message.identity.decode("ascii"), first * message.part_bytes
        event = PartReceived(message.conversation.peer, identity, offset, message.total, body)
        self._context.outputs.report(event)

    def _after_arrival(self, message: Incoming, now_us: int, *, at_once: bool) -> None:
        """Deliver a complete message; otherwise ask for what is missing and confirm what is here."""
        message.conversation.heard_us = now_us
        is_due = message.count_arrivals(1, now_us)
        if message.is_complete:
            self._complete(message, now_us)
            return
        self._request(message, message.requests.new(message.parts, now_us))
        if is_due or at_once:
            self._confirm(message)
        self._timers.set(message, message.due_us())

    def _request(self, message: Incoming, indices: list[int]) -> None:
        for index in indices:
            position = index * message.part_bytes
            self._outbox.answer(
                message.address, wire.control(wire.REQUEST, message.identity, position), wire.CONTROL_BYTES
            )

    def _confirm(self, message: Incoming) -> None:
        message.confirmed()
        self._outbox.answer(
            message.address, wire.control(wire.CONFIRM, message.identity, message.mark), wire.CONTROL_BYTES
        )

    # Parts in bursts.

    def burst(self, message: Incoming, data: memoryview, segment_bytes: int, row: int, rows: int, now_us: int) -> int:
        """Take the datagrams of a super-buffer, from `row` on, that are new parts above all others; count them.

        `rows` datagrams from there on are whole. Takes none when one by one something else could happen than being
        kept, and asking for what is missing below: the end of the message, a bound.
        """
        part_bytes, parts, total = message.part_bytes, message.parts, message.total
        if part_bytes == 0 or part_bytes != segment_bytes - wire.DATA_HEADER_BYTES:
            return 0
        first = wire.part_position(data, row * segment_bytes) // part_bytes
        if first < parts.top or (first > parts.top and parts.gaps >= self._options.gaps_max):
            return 0
        count = min(rows, total // part_bytes - first, message.part_count - 1 - parts.count)
        if count < 2:
            return 0
        if not message.spooled and not self.memory.lets_grow(message, cost(count * part_bytes, count)):
            return 0
        count = self._context.bursts.leading_matches(data, part_bytes, row, count, message.identity, total, first)
        if count:
            self._keep_burst(message, first, count, data, row, now_us)
        return count

    def _keep_burst(self, message: Incoming, first: int, count: int, data: Buffer, row: int, now_us: int) -> None:
        """Keep new parts above all others."""
        bursts = self._context.bursts
        if message.spooled:
            self._spool(message, first, bursts.bodies(data, message.part_bytes, row, count))
        else:
            self.memory.reserve(message)
            held_before = message.held_bytes
            message.put_burst(first, count, data, row, bursts)
            self.memory.count(message, held_before)
        message.conversation.heard_us = now_us
        ahead = min(count, self._options.request_after_parts) if self._may_ask(message, first) else 0
        for index in range(first, first + ahead):
            self._count_burst(message, index, 1, now_us)
        if ahead < count:
            self._count_burst(message, first + ahead, count - ahead, now_us)
        self._timers.set(message, message.due_us())

    def _may_ask(self, message: Incoming, first: int) -> bool:
        """Return whether the first few of new parts from `first` on may show that something below is missing."""
        if len(message.requests) >= self._options.requests_open_max:
            return False
        return first > message.parts.top or not message.requests.is_idle(message.parts)

    def _count_burst(self, message: Incoming, first: int, count: int, now_us: int) -> None:
        """Note new parts above all others, of which only the first can cause requests, with a confirm
        wherever one is due on the way."""
        parts = message.parts
        in_order = first == parts.mark
        # What an unproved address may get grows with each part: the requests for the first few may use it up.
        self._outbox.received(message.address, count * (wire.DATA_HEADER_BYTES + message.part_bytes))
        parts.add(first, count, now_us)
        if parts.gaps:
            self._request(message, message.requests.new(parts, now_us))
        leaving = message.count_burst(count, now_us)
        if leaving:
            marks = [first + after for after in leaving] if in_order else [parts.mark] * len(leaving)
            confirms = [wire.control(wire.CONFIRM, message.identity, mark * message.part_bytes) for mark in marks]
            # All are allowed: each answers at least one part, which is longer.
            self._outbox.answer(message.address, b"".join(confirms), wire.CONTROL_BYTES, len(confirms))

    # Completion and commit.

    def _complete(self, message: Incoming, now_us: int) -> None:
        self._remove(message)
        self._deliver(message.conversation, message.identity, message.body(), self._slot_bytes(message), now_us)
        if self._options.deferred:
            held = Held(message.conversation, message.identity, message.total, message.last_start, message.serial)
            self._hold(held, message.confirm_due_us or now_us)
        else:
            self._finish(message.address, message.identity, message.total, now_us)

    def _remove(self, message: Incoming) -> None:
        del message.conversation.incoming[message.identity]
        self.memory.end(message)
        self.incoming_count -= 1
        self._timers.set(message, None)

    def _forget(self, message: Incoming) -> None:
        self._remove(message)
        message.let_go()

    def _deliver(self, conversation: Conversation, identity: bytes, body: bytes, slot_bytes: int, now_us: int) -> None:
        """Report a complete message, for which there is a slot."""
        conversation.receipts[identity] = slot_bytes
        conversation.heard_us = now_us
        self._slots.take(1, slot_bytes)
        self._statistics.messages_received += 1
        self._context.outputs.report(MessageReceived(conversation.peer, identity.decode("ascii"), body))

    def _hold(self, held: Held, confirm_due_us: int) -> None:
        """Keep what is known of a message that was delivered until its commit."""
        self._held[held.conversation.peer.address, held.identity] = held
        if held.total:
            self._timers.set(held, confirm_due_us)

    def _finish(self, address: Address, identity: bytes, total: int, now_us: int) -> None:
        """Remember a message and confirm all of it."""
        self._remember(address, identity, total, now_us)
        self._outbox.answer(address, wire.control(wire.CONFIRM, identity, total), wire.CONTROL_BYTES)

    def _remember(self, address: Address, identity: bytes, total: int, now_us: int, *, silent: bool = False) -> None:
        self.remembered.add(address, identity, total, now_us + self._options.remember_us, silent=silent)
        if self._timers.get(self.remembered) is None:
            self._timers.set(self.remembered, self.remembered.next_us())

    def commit(self, conversation: Conversation, identity: bytes, now_us: int) -> None:
        """Free the slot of a message and, when deferred, confirm it."""
        size = conversation.receipts.pop(identity, None)
        if size is None:
            return
        self._slots.free(1, size)
        address = conversation.peer.address
        held = self._held.pop((address, identity), None)
        if held is not None:
            self._timers.set(held, None)
            self._finish(address, identity, held.total, now_us)

    def held_total(self, address: Address, identity: bytes) -> int | None:
        held = self._held.get((address, identity))
        return None if held is None else held.total

    def restore(self, address: Address, identity: bytes, total: int, now_us: int) -> None:
        self._remember(address, identity, total, now_us)

    def forget_conversation(self, conversation: Conversation, now_us: int) -> None:
        """Drop what is unfinished and free the slots; what was delivered is still recognised."""
        for message in list(conversation.incoming.values()):
            self._forget(message)
        address = conversation.peer.address
        for identity, size in conversation.receipts.items():
            self._slots.free(1, size)
            held = self._held.pop((address, identity), None)
            if held is not None:
                self._timers.set(held, None)
                self._remember(address, identity, held.total, now_us, silent=True)
        conversation.receipts.clear()

    # Timers.

    def held_due(self, held: Held) -> None:
        """Send the confirm that duplicates of a message waiting for its commit have armed."""
        if self._held.get((held.conversation.peer.address, held.identity)) is held:
            self._confirm_held(held)

    def due(self, message: Incoming, now_us: int) -> None:
        if message.conversation.incoming.get(message.identity) is not message:
            return
        if message.heard_us + self._options.unfinished_us <= now_us:
            self._forget(message)
            return
        again = message.requests.again(now_us)
        self._request(message, again + message.requests.new(message.parts, now_us))
        if message.confirm_due_us is not None and message.confirm_due_us <= now_us:
            message.stood_still()
            self._confirm(message)
        self._timers.set(message, message.due_us())

    def expire(self, now_us: int) -> None:
        self.remembered.expire(now_us)
        self._timers.set(self.remembered, self.remembered.next_us())
