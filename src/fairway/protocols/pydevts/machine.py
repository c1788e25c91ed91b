"""pydevts as a state machine: single-datagram messages without a connection.

A message is sent as one packet and stays *open* until its ack comes; then a close tells the peer to stop repeating the
ack. Both repeat on one fixed timer: every three seconds, ten times. A receiver knows a message by its *key* (id and
crc) and remembers the key for forty seconds, so that late duplicates are acknowledged and not delivered again; a
sender uses no id again with the same crc for two minutes, so that a new message is never taken for a duplicate.

    timer       runs                              when it is over
    packet      3 s from each transmission        repeat; after 10 repeats the outcome is unknown
    ack         3 s from each timed one           repeat; after 10 repeats stop waiting for the close
    memory      40 s from the first arrival       forget the key, unless incoming or not committed
    pacing      as the controller says            send more of the queue
    flush       33 s from `close`                 end what is left
    ping        3 s                               no answer
    silence     120 s with nothing remembered     forget the address, but for how far its numbers had come

Answers to a datagram: (new: not remembered; known: remembered; held: delivered, deferred, not committed)

    packet      success 0, known        success 0 or 1, new, good CRC    success 1, known, good CRC    checked, bad CRC
                ack 0; held: nothing    deliver; ack 0 or at commit      ack 0; held: nothing          ack 1
    ack 0       open: close             else: close
    ack 1       open: packet again      else: close
    close       incoming: stop          else: nothing

Every duration is fixed, so acks, flushes and pings each wait in a plain queue: what was started first is due first.
Left out: acks for many messages in one datagram, adaptive timers and repair ahead of the timer, because the protocol
has no such thing. The controller hears of overtaken messages early all the same (`core/recovery`). When a packet ends
as unknown and nothing ever came from its peer, all other sends to it end with it. A conversation is opened by our
`connect` or by the first good message from an address, and reported as `Connected` in both cases.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import ClassVar

from fairway.core.errors import MalformedDatagram
from fairway.core.events import Address, Closed, CloseReason, Peer, Receipt
from fairway.core.machine import Buffer, split
from fairway.core.pings import Pings
from fairway.core.random_source import RandomSource
from fairway.core.recovery.runs import NEVER
from fairway.core.refusals import already_open, no_such_peer
from fairway.core.timers import Deadlines
from fairway.protocols.pydevts import snapshot as stored
from fairway.protocols.pydevts import wire
from fairway.protocols.pydevts.conversations import Conversation
from fairway.protocols.pydevts.identifiers import IDS, Identifiers, RecentUses
from fairway.protocols.pydevts.inbound import ReceivingMachine
from fairway.protocols.pydevts.options import PydevtsOptions
from fairway.protocols.pydevts.sender import Sender
from fairway.protocols.pydevts.wire import ACK, CLOSE, FAILED, HEADER_BYTES, KEY_MASK, TYPE_SHIFT


class PydevtsMachine(ReceivingMachine):
    """All pydevts conversations of one endpoint."""

    name: ClassVar[str] = "pydevts"

    def __init__(self, options: PydevtsOptions, random_source: RandomSource) -> None:
        super().__init__(options)
        self._recent = RecentUses(options.reuse_after_us, options.recent_uses_max)
        self._senders = 0
        self._random_source = random_source
        self._pings_due: Deadlines[Conversation] = Deadlines()
        self._flushing: deque[tuple[int, Conversation]] = deque()

    def _sender(self, conversation: Conversation) -> Sender:
        if conversation.sender is None:
            first = conversation.first_id if conversation.first_id is not None else self._options.first_id
            if first is None:
                first = self._random_source.below(IDS)
            self._senders += 1
            identifiers = Identifiers(first, self._recent, self._senders, self._options.reuse_after_us)
            identifiers.rest(conversation.used_blocks)
            conversation.sender = Sender(self, conversation, self._options, identifiers, self._outputs)
        return conversation.sender

    def _flush(self, ready: Conversation, now_us: int) -> None:
        self._now_us = max(self._now_us, now_us)
        if ready.sender is not None and self._conversations.get(ready.address) is ready:
            due_us = ready.sender.flush(now_us)
            self._deadlines.set(ready.address, None if due_us == NEVER else due_us)

    # Arrivals.

    def receive(self, data: Buffer, address: Address, now_us: int, segment_bytes: int | None = None) -> None:
        self._now_us = now_us
        self.statistics.bytes_received += len(data)
        self._outbox.received(address, len(data))
        if segment_bytes is None or len(data) <= segment_bytes:
            self._receive_one(data, address)
            return
        conversation = self._conversations.get(address)
        whole = len(data) - len(data) % segment_bytes
        if whole > segment_bytes and self._receive_run(bytes(data[:whole]), address, conversation, segment_bytes):
            data = data[whole:]
        for datagram in split(data, segment_bytes):
            self._receive_one(datagram, address)

    def _receive_one(self, data: Buffer, address: Address) -> None:
        self.statistics.datagrams_received += 1
        try:
            header = wire.header(data)
        except MalformedDatagram as malformed:
            self.statistics.dropped[malformed.reason] += 1
            return
        conversation = self._conversations.get(address)
        if conversation is not None:
            conversation.answered = True
        kind = header >> TYPE_SHIFT
        if kind == wire.TYPE_PACKET:
            self._receive_packet(header, wire.body(data), address, conversation, self._now_us)
        elif kind == wire.TYPE_ACK:
            self._ack(header, address, conversation)
            self._close_if_flushed(conversation)
        elif conversation is None or conversation.pings is None or not self._ping_answered(conversation, header):
            self._receive_closes((header & KEY_MASK,), conversation)

    def _ping_answered(self, conversation: Conversation, header: int) -> bool:
        """Take a close; return whether it answers a ping."""
        assert conversation.pings is not None
        ping = conversation.pings.find(header & KEY_MASK)
        if ping is not None:
            conversation.pings.answered(ping, self._now_us)
            self._arm_pings(conversation, conversation.pings)
        return ping is not None

    def _arm_pings(self, conversation: Conversation, pings: Pings) -> None:
        due_us = pings.next_us()
        self._pings_due.set(conversation, None if due_us == NEVER else due_us)

    def _receive_run(
        self, data: bytes, address: Address, conversation: Conversation | None, segment_bytes: int
    ) -> bool:
        """Take a super-buffer as a whole if everything in it is plain; change nothing otherwise."""
        if data[0] == wire.TYPE_PACKET:
            taken = segment_bytes >= HEADER_BYTES and self._receive_packets(
                data, segment_bytes, address, conversation, self._now_us
            )
        else:
            taken = segment_bytes == HEADER_BYTES and self._control_run(data, conversation)
        if taken:
            if conversation is not None:
                conversation.answered = True
            self.statistics.batches += 1
            self.statistics.datagrams_received += len(data) // segment_bytes
        return taken

    def _control_run(self, data: bytes, conversation: Conversation | None) -> bool:
        kind = data[0]
        keys = None if conversation is None else wire.control_keys(data, kind)
        if conversation is None or keys is None:
            return False
        if kind == wire.TYPE_ACK:
            taken = conversation.sender is not None and conversation.sender.acknowledge_run(keys, self._now_us)
            if taken:
                self._resume(conversation)
            self._close_if_flushed(conversation)
            return taken
        if kind == wire.TYPE_CLOSE and not (conversation.pings and conversation.pings.waiting):
            self._receive_closes(keys, conversation)
            return True
        return False

    def _ack(self, header: int, address: Address, conversation: Conversation | None) -> None:
        key = header & KEY_MASK
        sender = None if conversation is None else conversation.sender
        number = None if sender is None else sender.find(key)
        if conversation is None or sender is None or number is None:
            self._outbox.answer(address, wire.datagram(CLOSE | key), HEADER_BYTES)
        elif header & FAILED:
            sender.damaged(number, self._now_us)
        else:
            sender.acknowledge(number, self._now_us)
            self._resume(conversation)

    def _resume(self, conversation: Conversation) -> None:
        """Do what follows every outcome: have more sent, or let the conversation be idle."""
        if conversation.unfinished:
            self._outputs.ready[conversation] = self._now_us
        else:
            self._note(conversation)

    # What the application asks for.

    def ping(self, peer: Peer, now_us: int) -> int:
        """Send an ack that belongs to nothing; every peer answers it with a close."""
        conversation = self._open(peer)
        options = self._options
        pings = conversation.pings or Pings(self._outputs, peer, options.ping_timeout_us, options.pings_max)
        token = pings.token()
        conversation.pings = pings
        self._now_us = now_us
        # The crc is not 0, which would speak for every message with its id.
        key = wire.key(self._random_source.below(IDS), 1 + self._random_source.below(wire.CRC_MASK))
        while pings.find(key) is not None:
            key = wire.key((key >> 32) + 1 & 0xFFFF, key & wire.CRC_MASK)
        pings.start(token, key, now_us)
        self._arm_pings(conversation, pings)
        self._outbox.answer(peer.address, wire.datagram(ACK | key), HEADER_BYTES)
        return token

    # The end.

    def _close(self, conversation: Conversation, reason: CloseReason, now_us: int) -> None:
        self._now_us = now_us
        if conversation.sender is not None:
            conversation.sender.backlog.close()
        self._flushing.append((now_us + self._options.flush_us, conversation))
        self._close_if_flushed(conversation)

    def _close_if_flushed(self, conversation: Conversation | None) -> None:
        if conversation is None or conversation.closing is None or conversation.ended or conversation.unfinished:
            return
        self._end(conversation, conversation.closing)

    def _end(self, conversation: Conversation, reason: CloseReason) -> None:
        """Give every token that is left its outcome, then report the end."""
        conversation.ended = True
        self._end_tokens(conversation, reason)
        self._release(conversation)
        self.statistics.conversations_closed += 1
        self._outputs.report(Closed(conversation.peer, reason))
        self._note(conversation)

    def _end_tokens(self, conversation: Conversation, reason: str) -> None:
        if conversation.pings is not None:
            conversation.pings.end(reason)
        if conversation.sender is not None:
            conversation.sender.end(reason)
            self._resume(conversation)

    def unreachable(self, address: Address, reason: str, now_us: int) -> None:
        conversation = self._conversations.get(address)
        if conversation is not None and not conversation.answered:
            self._now_us = now_us
            self._end_tokens(conversation, reason)
            self._close_if_flushed(conversation)

    # Time and outputs.

    def wake(self, now_us: int) -> None:
        self._now_us = now_us
        for address in self._deadlines.pop_due(now_us):
            conversation = self._conversations.get(address)
            if conversation is not None and conversation.sender is not None:
                if conversation.sender.wake(now_us, answered=conversation.answered):
                    self._resume(conversation)
                self._outputs.ready[conversation] = now_us
        self._wake_received(now_us)
        for conversation in self._pings_due.pop_due(now_us):
            if conversation.pings is not None and conversation.pings.waiting:
                conversation.pings.expire(now_us)
                self._arm_pings(conversation, conversation.pings)
        self._wake_idle(now_us)
        for _ in range(len(self._flushing)):
            due_us, conversation = self._flushing.popleft()
            self._close_if_flushed(conversation)
            if conversation.closing is not None and not conversation.ended:
                if due_us <= now_us:
                    self._end(conversation, conversation.closing)
                else:
                    self._flushing.append((due_us, conversation))

    def next_deadline_us(self) -> int | None:
        earliest_us = super().next_deadline_us()
        for due_us in (
            self._next_idle_us(self._now_us), self._memory_due.next_us(), self._pings_due.next_us(),
            self._ack_timers[0].due_us if self._ack_timers else None,
            self._flushing[0][0] if self._flushing else None,
        ):  # fmt: skip
            if due_us is not None and (earliest_us is None or due_us < earliest_us):
                earliest_us = due_us
        return earliest_us

    def room(self, peer: Peer) -> int:
        conversation = self._open(peer)
        sender = conversation.sender
        return self._options.send_queue_messages_max if sender is None else sender.backlog.room()

    # What survives a restart.

    def _recall(self, peer: Peer) -> Conversation:
        """Return what is known of an address, also after the end of its conversation."""
        conversation = self._conversations.get(peer.address)
        if conversation is None or conversation.peer != peer:
            raise no_such_peer(self.name, peer)
        return conversation

    def snapshot(self, peer: Peer, committing: Sequence[Receipt] = ()) -> bytes:
        conversation = self._recall(peer)
        return stored.encode(stored.take(conversation, committing, self._now_us, self._options))

    def snapshot_in_pieces(self, peer: Peer, committing: Sequence[Receipt]) -> tuple[bytes, bytes]:
        """Return how far the numbers have come, and the keys of the messages that are about to be committed."""
        state, added = stored.take_in_pieces(self._recall(peer), committing, self._now_us)
        return stored.encode(state), stored.encode(added)

    def restore(self, snapshot: bytes, now_us: int) -> Peer:
        state = stored.decode(snapshot)
        known = self._conversations.get(state.address)
        if known is not None:  # a further piece of a conversation that was restored just now
            before = len(known.receiver.known)
            if not stored.add(state, known, now_us):
                raise already_open(state.address)
            self._restored(known, now_us, before)
            return known.peer
        self._now_us = now_us
        conversation = self._add(state.address)
        conversation.answered = True
        stored.give(state, conversation, now_us)
        if state.named:
            self._prove(conversation)
        self._restored(conversation, now_us)
        return conversation.peer
