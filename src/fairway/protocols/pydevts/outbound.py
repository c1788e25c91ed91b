"""The sending half of a machine: messages and acks in, packets, closes and outcomes out."""

from __future__ import annotations

from collections.abc import Sequence

from fairway.core.chance import Chance
from fairway.core.events import NOT_SENT, Address, Delivered, DeliveryUnknown, Event, Refused, Writable
from fairway.core.outbox import Outbox
from fairway.core.statistics import Statistics
from fairway.core.timers import Deadlines
from fairway.protocols.pydevts import wire
from fairway.protocols.pydevts.conversation import Conversation, Phase
from fairway.protocols.pydevts.conversations import Conversations
from fairway.protocols.pydevts.identifiers import IDS, Identifiers, RecentUses
from fairway.protocols.pydevts.options import PydevtsOptions
from fairway.protocols.pydevts.sender import Sender
from fairway.protocols.pydevts.wire import CLOSE, FAILED, KEY_MASK


class Outbound:
    """What leaves for all peers."""

    __slots__ = (
        "_chance",
        "_conversations",
        "_events",
        "_options",
        "_outbox",
        "_pacing_due",
        "_packet_due",
        "_recent",
        "_senders",
        "_statistics",
        "ready",
        "unfinished",
    )

    def __init__(
        self,
        options: PydevtsOptions,
        conversations: Conversations,
        outbox: Outbox,
        statistics: Statistics,
        events: list[Event],
        chance: Chance,
    ) -> None:
        self._options = options
        self._conversations = conversations
        self._outbox = outbox
        self._statistics = statistics
        self._events = events
        self._chance = chance
        self._recent = RecentUses(options.reuse_after_us, options.recent_uses_max)
        self._senders = 0
        self.ready: dict[Address, None] = {}
        """Conversations whose queue may have something to send."""
        self._packet_due: Deadlines[Address] = Deadlines()
        self._pacing_due: Deadlines[Address] = Deadlines()
        self.unfinished = 0
        """Messages without an outcome."""

    # The queue.

    def sender(self, conversation: Conversation) -> Sender:
        """Gives the sending side towards a peer, made when it is first needed."""
        if conversation.sender is None:
            first = conversation.first_id if conversation.first_id is not None else self._options.first_id
            if first is None:
                first = self._chance.below(IDS)
            self._senders += 1
            identifiers = Identifiers(first, self._recent, self._senders, self._options.reuse_after_us)
            identifiers.rest(conversation.used_blocks)
            conversation.sender = Sender(self._options, identifiers)
        return conversation.sender

    def queue(self, conversation: Conversation, bodies: list[bytes], tokens: range) -> None:
        """Takes messages for which there is room."""
        self.sender(conversation).queue(bodies, tokens)
        self.unfinished += len(bodies)
        self.ready[conversation.address] = None
        self._conversations.busy(conversation)

    def pump(self, now_us: int) -> None:
        """Sends from the queues what may leave. Done last, so that one call and many fill a batch alike."""
        addresses, self.ready = self.ready, {}
        for address in addresses:
            conversation = self._conversations.get(address)
            if conversation is not None and conversation.sender is not None:
                self._pump_one(conversation, conversation.sender, now_us)

    def _pump_one(self, conversation: Conversation, sender: Sender, now_us: int) -> None:
        address = conversation.address
        while (most := sender.ready(now_us)) > 0:
            for batch in sender.leave(most, now_us):
                self._statistics.messages_sent += batch.count
                self._outbox.answer(address, batch.data, batch.segment_bytes, batch.count)
            if len(sender.flight) and self._packet_due.get(address) is None:
                self._packet_due.set(address, now_us + self._options.repeat_after_us)
        self._pacing_due.set(address, sender.next_ready_us(now_us))

    # Acks.

    def ack(self, header: int, address: Address, conversation: Conversation | None, now_us: int) -> None:
        """Takes one ack."""
        key = header & KEY_MASK
        sender = None if conversation is None else conversation.sender
        number = None if sender is None else sender.find(key)
        if conversation is None or sender is None or number is None:
            self._outbox.answer(address, wire.datagram(CLOSE | key), wire.HEADER_BYTES)
        elif header & FAILED:
            self._repeat_damaged(conversation, sender, number, now_us)
        else:
            key = sender.key_of(number)
            self._outbox.answer(address, wire.datagram(CLOSE | key), wire.HEADER_BYTES)
            self._delivered(conversation, sender, (number,), (key,), now_us)

    def ack_run(self, keys: tuple[int, ...], conversation: Conversation, now_us: int) -> bool:
        """Takes good acks if all belong to open messages; changes nothing otherwise."""
        sender = conversation.sender
        numbers = None if sender is None else sender.find_all(keys)
        if sender is None or numbers is None:
            return False
        closes = wire.controls(keys, wire.TYPE_CLOSE)
        self._outbox.answer(conversation.address, closes, wire.HEADER_BYTES, len(keys))
        self._delivered(conversation, sender, numbers, keys, now_us)
        return True

    def _repeat_damaged(self, conversation: Conversation, sender: Sender, number: int, now_us: int) -> None:
        run = sender.flight.find(number)
        assert run is not None
        if run.transmissions > self._options.packet_repeats_max:
            self._statistics.dropped["repeats_used_up"] += 1
            return
        self._statistics.repairs += 1
        self._repeat(conversation, wire.with_failure(sender.repeat(number, now_us, overdue=False)))

    def _repeat(self, conversation: Conversation, data: bytes) -> None:
        self._statistics.retransmissions += 1
        self._outbox.answer(conversation.address, data, len(data))

    def _delivered(
        self, conversation: Conversation, sender: Sender, numbers: Sequence[int], keys: Sequence[int], now_us: int
    ) -> None:
        tokens = sender.acknowledged(numbers, keys, now_us)
        self._statistics.messages_delivered += len(tokens)
        self._statistics.rtt_us = sender.round_trip.smoothed_us or self._statistics.rtt_us
        self._events.append(Delivered(conversation.peer, tokens))
        self._finished(conversation, sender, len(tokens))

    def _finished(self, conversation: Conversation, sender: Sender, count: int) -> None:
        """Does what follows every outcome: tells of room, and has more sent."""
        self.unfinished -= count
        if sender.starved and conversation.phase is Phase.OPEN:
            sender.starved = False
            self._events.append(Writable(conversation.peer))
        if len(sender):
            self.ready[conversation.address] = None
        else:
            self._conversations.note(conversation)

    def end(self, conversation: Conversation, reason: str) -> None:
        """Give every message to a peer its outcome."""
        sender = conversation.sender
        if sender is None:
            return
        never_sent = sender.take_queue()
        if never_sent:
            self._statistics.messages_refused += len(never_sent)
            self._events.append(Refused(conversation.peer, never_sent, NOT_SENT))
            self._finished(conversation, sender, len(never_sent))
        self._give_up(conversation, sender, sender.flight.waiting(), reason)

    def _give_up(self, conversation: Conversation, sender: Sender, numbers: Sequence[int], reason: str) -> None:
        if numbers:
            tokens = [sender.give_up(number) for number in numbers]
            self._statistics.messages_unknown += len(tokens)
            self._events.append(DeliveryUnknown(conversation.peer, tokens, reason))
            self._finished(conversation, sender, len(tokens))

    # Time.

    def next_due_us(self) -> int | None:
        """Tells when a packet is due again or pacing lets one leave."""
        packet_us, pacing_us = self._packet_due.next_us(), self._pacing_due.next_us()
        if packet_us is None or (pacing_us is not None and pacing_us < packet_us):
            return pacing_us
        return packet_us

    def wake(self, now_us: int) -> None:
        """Repeats packets, ends those that were repeated enough, and has paced ones sent."""
        for address in self._packet_due.pop_due(now_us):
            conversation = self._conversations.get(address)
            if conversation is not None and conversation.sender is not None:
                self._repeat_due(conversation, conversation.sender, now_us)
        for address in self._pacing_due.pop_due(now_us):
            self.ready[address] = None

    def _repeat_due(self, conversation: Conversation, sender: Sender, now_us: int) -> None:
        spent: list[int] = []
        for run in sender.flight.pop_due(now_us):
            if run.transmissions > self._options.packet_repeats_max:
                spent.extend(run.waiting())
                continue
            for number in list(run.waiting()):
                self._repeat(conversation, sender.repeat(number, now_us, overdue=True))
        self._give_up(conversation, sender, spent, "no acknowledgement came in time")
        self._packet_due.set(conversation.address, sender.flight.next_due_us())
