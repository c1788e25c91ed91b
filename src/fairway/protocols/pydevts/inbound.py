"""The receiving half of a machine: packets and closes in, messages and acks out."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

from fairway.core.events import Address, MessageReceived, MessagesReceived, Receipt
from fairway.core.receipts import ReceiptSlots
from fairway.core.statistics import CLOSING, ENDPOINT_CLOSED, PEERS_FULL, RECEIPTS_FULL, REMEMBERED_FULL
from fairway.core.timers import Deadlines
from fairway.protocols.pydevts import wire
from fairway.protocols.pydevts.conversations import Conversation, ConversationMachine
from fairway.protocols.pydevts.options import PydevtsOptions
from fairway.protocols.pydevts.wire import ACK, CRC_MASK, FAILED, HEADER_BYTES, KEY_MASK


class AckTimer(NamedTuple):
    """Acks that were sent together and are due again together."""

    due_us: int
    conversation: Conversation
    keys: Sequence[int]
    repeats: int


class ReceivingMachine(ConversationMachine):
    """What arrives from all peers. Keys, receipts and their bytes are counted over all of them, and bounded."""

    def __init__(self, options: PydevtsOptions) -> None:
        super().__init__(options)
        self._ack_timers: deque[AckTimer] = deque()
        """Every ack waits the same time, so the first started is the first due."""
        self._memory_due: Deadlines[Address] = Deadlines()
        self._remembered = 0
        self._slots = ReceiptSlots(options)

    # Packets.

    def _receive_packet(
        self, header: int, body: bytes, address: Address, conversation: Conversation | None, now_us: int
    ) -> None:
        key = header & KEY_MASK
        known = conversation is not None and key in conversation.receiver.known
        if (not known or header & FAILED) and crc32(body) != key & CRC_MASK:
            self.statistics.dropped["bad_crc"] += 1
            self._outbox.answer(address, wire.datagram(ACK | FAILED | key), wire.HEADER_BYTES)
        elif conversation is None or not known:
            self._new_message(key, body, address, conversation, now_us)
        else:
            self.statistics.duplicates += 1
            if conversation.receiver.answerable(key):
                self._outbox.answer(address, wire.datagram(ACK | key), wire.HEADER_BYTES)

    def _new_message(
        self, key: int, body: bytes, address: Address, conversation: Conversation | None, now_us: int
    ) -> None:
        refusal = self._refusal(conversation, 1, len(body))
        if refusal is not None:
            self.statistics.dropped[refusal] += 1
            return
        if conversation is None or conversation.closing is not None:
            conversation = self._called(address, None)
        number = conversation.receiver.accept(key, len(body), now_us)
        self._outputs.report(MessageReceived(conversation.peer, number, body))
        self._accepted(conversation, (key,), len(body), now_us)

    def _receive_packets(
        self, data: bytes, segment_bytes: int, address: Address, conversation: Conversation | None, now_us: int
    ) -> bool:
        """Take a super-buffer of packets if all are good, new and in a row; change nothing otherwise."""
        if conversation is not None and conversation.closing is not None:
            return False
        run = wire.packet_run(data, segment_bytes)
        size = segment_bytes - HEADER_BYTES
        if run is None or self._refusal(conversation, len(run.keys), size) is not None:
            return False
        if conversation is None:
            conversation = self._called(address, None)
        first = conversation.receiver.accept_run(run.keys, size, now_us)
        if first is None:
            return False
        self._outputs.report(MessagesReceived(conversation.peer, first, run.bodies))
        self._accepted(conversation, run.keys, size, now_us)
        return True

    def _refusal(self, conversation: Conversation | None, count: int, size: int) -> str | None:
        """Name the reason for which new messages are dropped, or None."""
        if conversation is not None and conversation.closing is not None and not conversation.ended:
            return CLOSING
        if self._is_shut:
            return ENDPOINT_CLOSED
        if not self._slots.fit(count, count * size):
            return RECEIPTS_FULL
        if self._remembered + count > self._options.remembered_max:
            return REMEMBERED_FULL
        if conversation is None and not self._has_room():
            return PEERS_FULL
        return None

    def _accepted(self, conversation: Conversation, keys: Sequence[int], size: int, now_us: int) -> None:
        """Do what follows every delivery: count, and acknowledge unless deferred."""
        self.statistics.messages_received += len(keys)
        self._remembered += len(keys)
        self._slots.take(len(keys), len(keys) * size)
        self.busy(conversation)
        if self._memory_due.get(conversation.address) is None:
            self._memory_due.set(conversation.address, now_us + self._options.remember_us)
        if not self._options.deferred:
            self._acknowledge(conversation, keys, now_us)

    def _acknowledge(self, conversation: Conversation, keys: Sequence[int], now_us: int) -> None:
        """Send first acks and start their timer."""
        conversation.receiver.enter(keys)
        acks = wire.datagram(ACK | keys[0]) if len(keys) == 1 else wire.controls(keys, wire.TYPE_ACK)
        self._outbox.answer(conversation.address, acks, wire.HEADER_BYTES, len(keys))
        self._ack_timers.append(AckTimer(now_us + self._options.repeat_after_us, conversation, keys, 0))

    # Closes and commits.

    def _receive_closes(self, keys: Sequence[int], conversation: Conversation | None) -> None:
        ended = 0
        if conversation is not None:
            before = len(conversation.receiver.known)
            ended = conversation.receiver.closed(keys)
            self._recount(conversation, before)
            self._drop_ended_timers()
        if ended < len(keys):
            self.statistics.dropped["unknown_close"] += len(keys) - ended

    def _drop_ended_timers(self) -> None:
        """Drop the timers of single acks that need no repeat, as far as they come next: one that only finds that out
        when it is due wakes the machine for nothing."""
        timers = self._ack_timers
        while timers:
            _, conversation, keys, _ = timers[0]
            if len(keys) > 1 or conversation.receiver.is_incoming(keys[0]):
                return
            timers.popleft()

    def commit(self, receipt: Receipt, now_us: int) -> None:
        self._now_us = now_us
        conversation = self._conversations.get(receipt.peer.address)
        if conversation is None or not isinstance(receipt.first, int):
            return
        receiver = conversation.receiver
        if receipt.count == 1 and not self._options.deferred and receiver.known:
            entry = receiver.commit(receipt.first)
            if entry is not None:
                self._slots.free(1, entry[1])
            return
        freed = [receiver.commit(number) for number in range(receipt.first, receipt.first + receipt.count)]
        keys = [entry[0] for entry in freed if entry is not None]
        if not keys:
            return
        self._slots.free(len(keys), sum(entry[1] for entry in freed if entry is not None))
        if self._options.deferred:
            self._acknowledge(conversation, keys, now_us)
        elif not receiver.known:
            self._note(conversation)

    def _release(self, conversation: Conversation) -> None:
        before = len(conversation.receiver.known)
        self._slots.free(*conversation.receiver.release())
        self._recount(conversation, before)

    def _recount(self, conversation: Conversation, known_before: int) -> None:
        """Note keys that were forgotten."""
        known = len(conversation.receiver.known)
        if known != known_before:
            self._remembered -= known_before - known
            self._note(conversation)

    # Time.

    def _wake_received(self, now_us: int) -> None:
        while self._ack_timers and self._ack_timers[0].due_us <= now_us:
            self._repeat_acks(self._ack_timers.popleft(), now_us)
        for address in self._memory_due.pop_due(now_us):
            conversation = self._conversations.get(address)
            if conversation is not None:
                self._forget(conversation, now_us)

    def _repeat_acks(self, timer: AckTimer, now_us: int) -> None:
        conversation, receiver = timer.conversation, timer.conversation.receiver
        waiting = [key for key in timer.keys if receiver.is_incoming(key)]
        if not waiting:
            return
        if timer.repeats < self._options.ack_repeats_max:
            acks = wire.controls(waiting, wire.TYPE_ACK)
            self._outbox.answer(conversation.address, acks, wire.HEADER_BYTES, len(waiting))
            due_us = now_us + self._options.repeat_after_us
            self._ack_timers.append(AckTimer(due_us, conversation, waiting, timer.repeats + 1))
            return
        before = len(receiver.known)
        for key in waiting:
            receiver.leave(key)
        self._recount(conversation, before)

    def _forget(self, conversation: Conversation, now_us: int) -> None:
        receiver = conversation.receiver
        before = len(receiver.known)
        receiver.expire(now_us - self._options.remember_us)
        if receiver.arrivals:
            self._memory_due.set(conversation.address, receiver.arrivals[0].first_us + self._options.remember_us)
        self._recount(conversation, before)

    def _restored(self, conversation: Conversation, now_us: int, known_before: int = 0) -> None:
        """Resume the timers of a restored conversation."""
        receiver = conversation.receiver
        self._remembered += len(receiver.known) - known_before
        if receiver.arrivals:
            self._memory_due.set(conversation.address, receiver.arrivals[0].first_us + self._options.remember_us)
        incoming = receiver.all_incoming()
        if incoming:
            self._ack_timers.append(AckTimer(now_us + self._options.repeat_after_us, conversation, incoming, 0))
        self._note(conversation)
