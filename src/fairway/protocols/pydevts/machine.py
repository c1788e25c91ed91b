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

Answers to a datagram: (new: not remembered; known: remembered; held: handed over, deferred, not committed)

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
from fairway.core.machine import Buffer, Transmit, path_allows
from fairway.core.outputs import Outputs
from fairway.core.pings import Pings
from fairway.core.random_source import RandomSource
from fairway.core.recovery.queue import owned
from fairway.core.recovery.runs import NEVER
from fairway.core.refusals import (
    TOO_LARGE_FOR_PATH,
    already_open,
    endpoint_closed,
    no_flags,
    no_such_peer,
    send_queue_full,
    still_closing,
    too_large,
    too_many_peers,
    too_many_pings,
)
from fairway.core.timers import Deadlines
from fairway.protocols.pydevts import snapshot as stored
from fairway.protocols.pydevts import wire
from fairway.protocols.pydevts.conversations import Conversation, Conversations
from fairway.protocols.pydevts.identifiers import IDS
from fairway.protocols.pydevts.inbound import Inbound
from fairway.protocols.pydevts.options import PydevtsOptions
from fairway.protocols.pydevts.outbound import Outbound
from fairway.protocols.pydevts.wire import ACK, HEADER_BYTES, KEY_MASK, TYPE_SHIFT


class PydevtsMachine:
    """All pydevts conversations of one endpoint."""

    name: ClassVar[str] = "pydevts"

    def __init__(self, options: PydevtsOptions, random_source: RandomSource) -> None:
        self._options = options
        self._outputs: Outputs[Conversation] = Outputs(options)
        self._outbox = self._outputs.outbox
        self.statistics = self._outputs.statistics
        self.events = self._outputs.events
        self._conversations = Conversations(options, self._outputs)
        self._inbound = Inbound(options, self._conversations, self._outputs)
        self._outbound = Outbound(options, self._conversations, self._outputs, random_source)
        self._random_source = random_source
        self._pings_due: Deadlines[Conversation] = Deadlines()
        self._flushing: deque[tuple[int, Conversation]] = deque()
        self._now_us = 0
        self._body_bytes_max = wire.BODY_BYTES_MAX

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
        for datagram in wire.split(data, segment_bytes):
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
            self._inbound.packet(header, wire.body(data), address, conversation, self._now_us)
        elif kind == wire.TYPE_ACK:
            self._outbound.ack(header, address, conversation, self._now_us)
            self._close_if_flushed(conversation)
        elif conversation is None or conversation.pings is None or not self._ping_answered(conversation, header):
            self._inbound.closes((header & KEY_MASK,), conversation)

    def _ping_answered(self, conversation: Conversation, header: int) -> bool:
        """Take a close; return whether it answers a ping."""
        assert conversation.pings is not None
        ping = conversation.pings.find(header & KEY_MASK)
        if ping is not None:
            conversation.pings.answered(ping, self._now_us)
            due_us = conversation.pings.next_us()
            self._pings_due.set(conversation, None if due_us == NEVER else due_us)
        return ping is not None

    def _receive_run(
        self, data: bytes, address: Address, conversation: Conversation | None, segment_bytes: int
    ) -> bool:
        """Take a super-buffer as a whole if everything in it is plain; changes nothing otherwise."""
        if data[0] == wire.TYPE_PACKET:
            taken = segment_bytes >= HEADER_BYTES and self._inbound.packet_run(
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
            taken = self._outbound.ack_run(keys, conversation, self._now_us)
            self._close_if_flushed(conversation)
            return taken
        if kind == wire.TYPE_CLOSE and not (conversation.pings and conversation.pings.waiting):
            self._inbound.closes(keys, conversation)
            return True
        return False

    # What the application asks for.

    def connect(self, address: Address, now_us: int) -> int:
        if self._conversations.shut:
            raise endpoint_closed()
        known = self._conversations.get(address)
        if known is None and not self._conversations.has_room():
            raise too_many_peers(self._options.peers_max)
        if known is not None and known.closing is not None and not known.ended:
            raise still_closing(address)
        self._now_us = now_us
        token = self._outputs.token()
        conversation = self._conversations.called(address, token)
        self._conversations.name(conversation)
        return token

    def send(
        self, peer: Peer, body: Buffer, now_us: int, *, flags: int | None = None, answers: int | None = None
    ) -> int:
        if flags is not None or answers is not None:
            raise no_flags(self.name)
        conversation = self._open(peer)
        _check_size(len(body), self._body_bytes_max)
        if not self._outbound.sender(conversation).backlog.accepts(len(body)):
            raise send_queue_full(peer.address)
        return self._queue(conversation, (bytes(body),), now_us, equal=True).start

    def send_many(self, peer: Peer, bodies: Sequence[Buffer], now_us: int) -> range:
        conversation = self._open(peer)
        sizes = list(map(len, bodies))
        largest = max(sizes, default=0)
        _check_size(largest, self._body_bytes_max)
        count = self._outbound.sender(conversation).backlog.accepts_of(sizes)
        if not count:
            return self._outputs.tokens(0)
        return self._queue(conversation, owned(bodies[:count]), now_us, equal=min(sizes) == largest)

    def _queue(self, conversation: Conversation, bodies: Sequence[bytes], now_us: int, *, equal: bool) -> range:
        self._now_us = now_us
        tokens = self._outputs.tokens(len(bodies))
        self._outbound.queue(conversation, bodies, tokens.start, now_us, equal=equal)
        return tokens

    def limit_datagrams(self, datagram_bytes: int, *, fragments: bool) -> None:
        if not fragments:
            self._body_bytes_max = path_allows(self._body_bytes_max, datagram_bytes, wire.HEADER_BYTES)

    def _open(self, peer: Peer) -> Conversation:
        conversation = self._conversations.get(peer.address)
        if conversation is None or conversation.peer != peer or conversation.closing is not None:
            raise no_such_peer(self.name, peer)
        return conversation

    def _known(self, peer: Peer) -> Conversation:
        """Return what is known of an address, also after the end of its conversation."""
        conversation = self._conversations.get(peer.address)
        if conversation is None or conversation.peer != peer:
            raise no_such_peer(self.name, peer)
        return conversation

    def ping(self, peer: Peer, now_us: int) -> int:
        """Send an ack that belongs to nothing; every peer answers it with a close."""
        conversation = self._open(peer)
        pings = conversation.pings = conversation.pings or Pings(self._outputs, peer, self._options.ping_timeout_us)
        if len(pings) >= self._options.pings_max:
            raise too_many_pings(self._options.pings_max, peer.address)
        self._now_us = now_us
        token = self._outputs.token()
        # The crc is not 0, which would speak for every message with its id.
        key = wire.key(self._random_source.below(IDS), 1 + self._random_source.below(wire.CRC_MASK))
        while pings.find(key) is not None:
            key = wire.key((key >> 32) + 1 & 0xFFFF, key & wire.CRC_MASK)
        pings.start(token, key, now_us)
        self._pings_due.set(conversation, pings.next_us())
        self._outbox.answer(peer.address, wire.datagram(ACK | key), HEADER_BYTES)
        return token

    def _end_pings(self, conversation: Conversation, reason: str) -> None:
        if conversation.pings is not None:
            conversation.pings.end(reason)

    def commit(self, receipt: Receipt, now_us: int) -> None:
        self._now_us = now_us
        conversation = self._conversations.get(receipt.peer.address)
        if conversation is not None:
            self._inbound.commit(receipt, conversation, now_us)

    # The end.

    def close(self, peer: Peer | None, now_us: int) -> None:
        if peer is not None:
            conversation = self._known(peer)
            if conversation.ended:
                raise no_such_peer(self.name, peer)
            self._now_us = now_us
            self._begin_close(conversation, CloseReason.LOCAL)
            return
        self._now_us = now_us
        self._conversations.shut = True
        for conversation in self._conversations.all():
            self._begin_close(conversation, CloseReason.SHUT_DOWN)

    def _begin_close(self, conversation: Conversation, reason: CloseReason) -> None:
        if conversation.closing is not None:
            return
        conversation.closing = reason
        if conversation.sender is not None:
            conversation.sender.backlog.close()
        self._flushing.append((self._now_us + self._options.flush_us, conversation))
        self._close_if_flushed(conversation)

    def _close_if_flushed(self, conversation: Conversation | None) -> None:
        if conversation is None or conversation.closing is None or conversation.ended or conversation.unfinished:
            return
        self._end(conversation, conversation.closing)

    def _end(self, conversation: Conversation, reason: CloseReason) -> None:
        """Give every token that is left its outcome, then report the end."""
        conversation.ended = True
        self._end_pings(conversation, reason)
        self._outbound.end(conversation, reason, self._now_us)
        self._inbound.end(conversation)
        self.statistics.conversations_closed += 1
        self._outputs.report(Closed(conversation.peer, reason))
        self._conversations.note(conversation)

    def unreachable(self, address: Address, reason: str, now_us: int) -> None:
        conversation = self._conversations.get(address)
        if conversation is not None and not conversation.answered:
            self._now_us = now_us
            self._end_pings(conversation, reason)
            self._outbound.end(conversation, reason, now_us)
            self._close_if_flushed(conversation)

    # Time and outputs.

    def wake(self, now_us: int) -> None:
        self._now_us = now_us
        self._outbound.wake(now_us)
        self._inbound.wake(now_us)
        for conversation in self._pings_due.pop_due(now_us):
            if conversation.pings is not None and conversation.pings.waiting:
                conversation.pings.expire(now_us)
                due_us = conversation.pings.next_us()
                self._pings_due.set(conversation, None if due_us == NEVER else due_us)
        self._conversations.wake(now_us)
        for _ in range(len(self._flushing)):
            due_us, conversation = self._flushing.popleft()
            self._close_if_flushed(conversation)
            if conversation.closing is not None and not conversation.ended:
                if due_us <= now_us:
                    self._end(conversation, conversation.closing)
                else:
                    self._flushing.append((due_us, conversation))

    def transmits(self) -> list[Transmit]:
        if self._outputs.ready:
            self._outbound.flush()
        return self._outbox.take()

    def next_deadline_us(self) -> int | None:
        if self._outputs.ready:
            self._outbound.flush()
        flushing_us = self._flushing[0][0] if self._flushing else None
        earliest_us = self._conversations.next_due_us(self._now_us)
        for due_us in (
            self._outbound.next_due_us(), self._inbound.next_due_us(), self._pings_due.next_us(), flushing_us,
        ):  # fmt: skip
            if due_us is not None and (earliest_us is None or due_us < earliest_us):
                earliest_us = due_us
        return earliest_us

    def room(self, peer: Peer) -> int:
        conversation = self._open(peer)
        sender = conversation.sender
        return self._options.send_queue_messages_max if sender is None else sender.backlog.room()

    def unfinished(self) -> int:
        return self._outputs.unfinished

    # What survives a restart.

    def peers(self) -> list[Peer]:
        return self._conversations.peers()

    def snapshot(self, peer: Peer, committing: Sequence[Receipt] = ()) -> bytes:
        conversation = self._known(peer)
        numbers = {
            receipt.first + position
            for receipt in committing
            if receipt.peer == peer and isinstance(receipt.first, int)
            for position in range(receipt.count)
        }
        return stored.encode(stored.take(conversation, numbers, self._now_us, self._options))

    def snapshot_in_pieces(self, peer: Peer, committing: Sequence[Receipt]) -> tuple[bytes, bytes]:
        """Return how far the numbers have come, and the keys of the messages that are about to be committed."""
        conversation = self._known(peer)
        ours = [receipt for receipt in committing if receipt.peer == peer]
        state, added = stored.take_in_pieces(conversation, ours, self._now_us)
        return stored.encode(state), stored.encode(added)

    def restore(self, snapshot: bytes, now_us: int) -> Peer:
        state = stored.decode(snapshot)
        known = self._conversations.get(state.address)
        if known is not None:
            return self._restore_more(state, known, now_us)
        self._now_us = now_us
        conversation = self._conversations.add(state.address)
        conversation.answered = True
        stored.give(state, conversation, now_us)
        if state.named:
            self._conversations.name(conversation)
        self._inbound.restored(conversation, now_us)
        return conversation.peer

    def _restore_more(self, state: stored.Snapshot, conversation: Conversation, now_us: int) -> Peer:
        """Add the keys of a further piece to a conversation that was restored just now."""
        before = len(conversation.receiver.known)
        if not stored.add(state, conversation, now_us):
            raise already_open(state.address)
        self._inbound.restored(conversation, now_us, before)
        return conversation.peer


def _check_size(body_bytes: int, limit: int) -> None:
    if body_bytes > limit:
        raise too_large("pydevts", body_bytes, limit, "" if limit == wire.BODY_BYTES_MAX else TOO_LARGE_FOR_PATH)
