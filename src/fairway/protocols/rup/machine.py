"""The rup machine: messages of any size in parts, repaired by request.

Theory. A message is cut into parts of equal size, each of which says where it belongs, so parts may come in any order
and a message begins with whichever comes first. The receiver tells two things. A *confirm* is a mark: everything below
has arrived; it opens the sender's window and, at the total, ends the message. A *request* names one missing part; the
sender answers it as soon as its window allows, so a hole is repaired about a round trip after later parts overtook it,
however many holes there are. The sender's own timers (`core/recovery`) are only for when nothing new comes back.

    timer                  for                                              runs
    confirm, 20 ms         the mark reaches the sender soon                 from the first unconfirmed arrival
    request, 10 ms         a hole with fewer than three parts beyond it     from the first part beyond
    request again          a lost request or repair: 1.5 round trips (200   from the request
                           ms before one is measured), three times, then
                           doubling up to 3 s
    forget, 30 s           unfinished messages of a sender that is gone     from the last new part
    remember, 60 s         recognising late duplicates                      from delivery or commit, and the last part
    tail, 2 round trips    the end of what there is to send is lost         from the latest progress
    time-out               nothing new: one part probes; doubles up to 1 s  from the latest progress
    silence, 10 s          a peer that is gone: all sends end as unknown    from the latest word
    stall, 60 s            a peer that says nothing new, likewise           from the latest progress
    idle, 60 s             conversations that the peer began                from the last part or word

The first parts of a conversation are confirmed more often than every 64, so are those of a sender that seems to stand
still (`feedback.py`), and a confirm leaves at once when a hole closes or a duplicate shows that one was lost: all are
"within 20 ms", and a small window does not stand still for those 20 ms.

What is said to a sender only marks it ready; it sends when the machine is asked for outputs. So all confirms of a turn
make one run of whole bursts, and bursts are what a large message costs: a few Python calls for each 54 parts.

Conversations: rup has none on the wire. Here an address that our application names is one until it is closed; an
address that sends us a message is one until it was idle for a minute. Completed ids outlive both.

Left out: a ping (nothing in rup asks without sending a message), a close on the wire, and probing for a path's MTU: the
datagram budget is an option, and whoever owns the socket says when a path takes less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from fairway.core.conversations import ConnectionlessMachine
from fairway.core.errors import MalformedDatagram, NotSupported
from fairway.core.events import Address, Closed, CloseReason, Connected, Peer, Receipt
from fairway.core.machine import Buffer
from fairway.core.random_source import RandomSource
from fairway.core.refusals import no_such_peer, too_large
from fairway.core.statistics import CLOSING, ENDPOINT_CLOSED, PEERS_FULL
from fairway.protocols.rup import wire
from fairway.protocols.rup.context import Context
from fairway.protocols.rup.conversation import Conversation
from fairway.protocols.rup.incoming import Incoming
from fairway.protocols.rup.options import PARTS_MAX, RupOptions
from fairway.protocols.rup.outgoing import PART_BYTES_MIN
from fairway.protocols.rup.receiver import Held, Receiver
from fairway.protocols.rup.remembered import decode_snapshot, encode_snapshot
from fairway.protocols.rup.sender import Sender

BURST_ROWS_MIN = 4
"""Fewer datagrams are taken faster one by one."""


class RupMachine(ConnectionlessMachine[Conversation]):
    """One rup endpoint with all its peers."""

    name: ClassVar[str] = "rup"

    def __init__(self, options: RupOptions, random_source: RandomSource) -> None:
        super().__init__(options)
        self._fits_always = 0  # parts may be too many for a message of any size
        self._context = Context(options, random_source, self._outputs, self._deadlines)
        self._options = options
        self._receiver = Receiver(self._context)
        self._conversations: dict[Address, Conversation] = self._table

    def _at(self, address: Address) -> Conversation | None:
        return self._conversations.get(address)

    def _has_room(self) -> bool:
        return len(self._conversations) < self._options.peers_max

    def _sender(self, conversation: Conversation) -> Sender:
        return conversation.sender

    def _flush(self, ready: Sender, now_us: int) -> None:
        ready.flush(now_us)

    # Datagrams.

    def receive(self, data: Buffer, address: Address, now_us: int, segment_bytes: int | None = None) -> None:
        self.statistics.bytes_received += len(data)
        if segment_bytes is None or segment_bytes <= 0 or len(data) <= segment_bytes:
            self.statistics.datagrams_received += 1
            self._receive_one(data, address, now_us)
            return
        self.statistics.datagrams_received += -(-len(data) // segment_bytes)
        view = memoryview(data)
        words = wire.controls(view) if segment_bytes == wire.CONTROL_BYTES else None
        if words is None:
            self._receive_batch(view, address, now_us, segment_bytes)
        else:
            self._receive_words(words, address, now_us)

    def _receive_batch(self, data: memoryview, address: Address, now_us: int, segment_bytes: int) -> None:
        """Take bursts as a whole where that changes nothing, and the other datagrams one by one."""
        row, rows = 0, len(data) // segment_bytes
        is_whole = True
        while row < rows:
            taken = 0
            if rows - row >= BURST_ROWS_MIN:
                taken = self._receive_burst(data, address, now_us, segment_bytes, row, rows - row)
            if taken == 0:
                start = row * segment_bytes
                self._receive_one(data[start : start + segment_bytes], address, now_us)
                # The first part of a message and its last one are never part of a burst.
                is_whole = is_whole and row in {0, rows - 1}
            row += taken or 1
        if rows * segment_bytes < len(data):
            self._receive_one(data[rows * segment_bytes :], address, now_us)
        if is_whole and rows >= BURST_ROWS_MIN:
            self.statistics.batches += 1

    def _receive_burst(
        self, data: memoryview, address: Address, now_us: int, segment_bytes: int, row: int, rows: int
    ) -> int:
        """Take the leading datagrams that continue one message; count them, and take none if in doubt."""
        conversation = self._conversations.get(address)
        if conversation is None or not conversation.incoming or conversation.is_blocked:
            return 0
        message = conversation.incoming.get(wire.part_identity(data, row * segment_bytes))
        if message is None:
            return 0
        return self._receiver.burst(message, data, segment_bytes, row, rows, now_us)

    def _receive_one(self, data: Buffer, address: Address, now_us: int) -> None:
        self._context.outbox.received(address, len(data))
        try:
            header = wire.header(data)
        except MalformedDatagram as malformed:
            self._context.drop(malformed.reason)
            return
        conversation = self._conversations.get(address)
        if header.kind == wire.DATA:
            self._receive_part(header, data, address, conversation, now_us)
        else:
            self._receive_word(conversation, header.kind, header.identity, header.position, now_us)
        if conversation is not None and conversation.is_blocked:
            conversation.sender.mark_ready(now_us)

    def _receive_part(
        self, header: wire.Headed, data: Buffer, address: Address, conversation: Conversation | None, now_us: int
    ) -> None:
        """Find out what a part belongs to; the order of the questions is that of `receiver.py`."""
        size = len(data) - wire.DATA_HEADER_BYTES
        reason = _part_fault(header, size)
        if reason:
            self._context.drop(reason)
            return
        if conversation is not None:
            conversation.answered = True
        message = None if conversation is None else conversation.incoming.get(header.identity)
        if message is not None:
            self._receiver.part(message, header, data, now_us)
            return
        if self._receiver.answers_duplicate(address, header, now_us):
            return
        reason = self._shuts_out(conversation) or self._receiver.refusal(conversation, header, size)
        if reason:
            self._context.drop(reason)
            return
        if conversation is None:
            conversation = self._begin(address, now_us)
            conversation.answered = True
            self._outputs.report(Connected(conversation.peer, None))
        self._receiver.begin(conversation, header, data, now_us)

    def _shuts_out(self, conversation: Conversation | None) -> str:
        """Name what keeps new messages of this conversation out, or return an empty string."""
        if conversation is not None and conversation.closing is not None:
            return CLOSING
        if self._is_shut:
            return ENDPOINT_CLOSED
        return PEERS_FULL if conversation is None and not self._has_room() else ""

    def _receive_words(self, words: list[tuple[int, bytes, int]], address: Address, now_us: int) -> None:
        """Take requests and confirms, one after another."""
        self._context.outbox.received(address, len(words) * wire.CONTROL_BYTES)
        for kind, identity, position in words:
            self._receive_word(self._conversations.get(address), kind, identity, position, now_us)
        conversation = self._conversations.get(address)
        if conversation is not None and conversation.is_blocked:
            conversation.sender.mark_ready(now_us)
        if len(words) >= BURST_ROWS_MIN:
            self.statistics.batches += 1

    def _receive_word(
        self, conversation: Conversation | None, kind: int, identity: bytes, position: int, now_us: int
    ) -> None:
        """Take a request or a confirm."""
        if conversation is None or not conversation.has_sent:
            self._context.drop("unknown_id")
            return
        sender = conversation.sender
        reason = (sender.confirm if kind == wire.CONFIRM else sender.request)(identity, position, now_us)
        if reason:
            self._context.drop(reason)
            return
        conversation.heard_us = now_us
        conversation.answered = True
        if conversation.closing is not None:
            self._close_if_flushed(conversation, now_us)

    # Conversations.

    def _name(self, address: Address, token: int, now_us: int) -> None:
        conversation = self._conversations.get(address) or self._begin(address, now_us)
        conversation.is_named = True
        self._context.outbox.prove(address)
        self._deadlines.set(conversation, None)
        self._outputs.report(Connected(conversation.peer, token))
        if conversation.has_sent:
            conversation.sender.mark_ready(now_us)

    def _begin(self, address: Address, now_us: int) -> Conversation:
        conversation = Conversation(Peer(address), self._context, now_us)
        self._conversations[address] = conversation
        self.statistics.conversations_opened += 1
        self._deadlines.set(conversation, now_us + self._options.forget_us)
        return conversation

    def _close(self, conversation: Conversation, reason: CloseReason, now_us: int) -> None:
        if conversation.has_sent:
            conversation.sender.backlog.close()
        self._close_if_flushed(conversation, now_us)

    def _close_if_flushed(self, conversation: Conversation, now_us: int) -> None:
        if conversation.closing is not None and not conversation.unfinished:
            self._end(conversation, conversation.closing, now_us)

    def _end(self, conversation: Conversation, reason: CloseReason, now_us: int) -> None:
        address = conversation.peer.address
        self._receiver.forget_conversation(conversation, now_us)
        del self._conversations[address]
        self._context.outbox.disown(address)
        self._deadlines.set(conversation, None)
        if conversation.has_sent:
            self._deadlines.set(conversation.sender, None)
        self.statistics.conversations_closed += 1
        self._outputs.report(Closed(conversation.peer, reason))

    def _idle(self, conversation: Conversation, now_us: int) -> None:
        """End a conversation that the peer began and nobody needs any more."""
        if conversation.is_named or self._conversations.get(conversation.peer.address) is not conversation:
            return
        over_us = conversation.heard_us + self._options.forget_us
        if over_us > now_us:
            self._deadlines.set(conversation, over_us)
        elif conversation.is_busy or conversation.closing is not None:
            self._deadlines.set(conversation, now_us + self._options.forget_us)
        else:
            self._end(conversation, CloseReason.FORGOTTEN, now_us)

    def unreachable(self, address: Address, reason: str, now_us: int) -> None:
        """End what is on its way to an address from which nothing has come."""
        conversation = self._conversations.get(address)
        if conversation is not None and conversation.has_sent and not conversation.answered:
            conversation.sender.end_all(reason)
            self._close_if_flushed(conversation, now_us)

    # Messages.

    def _check_size(self, conversation: Conversation, size: int) -> None:
        if size > self._options.message_bytes_max:
            raise too_large(self.name, size, self._options.message_bytes_max, ", which is message_bytes_max")
        most = PARTS_MAX * self._context.part_bytes_max
        if size > most:
            raise too_large(self.name, size, most, f", which is {PARTS_MAX} parts")

    def send_many(self, peer: Peer, bodies: Sequence[Buffer], now_us: int) -> range:
        tokens = super().send_many(peer, bodies, now_us)
        self._open(peer).sender.mark_ready(now_us)  # pacing may have made room, also where nothing is accepted
        return tokens

    def ping(self, peer: Peer, now_us: int) -> int:
        """Raise `NotSupported`: every packet that a rup peer answers belongs to a message."""
        self._open(peer)
        raise NotSupported("rup has no packet that only asks for an answer; send an empty message instead")

    def commit(self, receipt: Receipt, now_us: int) -> None:
        """Free the slot of a received message and, when deferred, confirm it."""
        conversation = self._conversations.get(receipt.peer.address)
        if conversation is not None and isinstance(receipt.first, str):
            self._receiver.commit(conversation, _identity(receipt.first), now_us)

    # Time and outputs.

    def wake(self, now_us: int) -> None:
        """Do what is due. What is due may end what is due after it, so each looks whether it is still there."""
        for key in self._context.due(now_us):
            if isinstance(key, Incoming):
                self._receiver.due(key, now_us)
            elif isinstance(key, Held):
                self._receiver.held_due(key)
            elif isinstance(key, Sender):
                self._sender_due(key, now_us)
            elif isinstance(key, Conversation):
                self._idle(key, now_us)
            else:
                self._receiver.expire(now_us)

    def limit_datagrams(self, datagram_bytes: int, *, fragments: bool) -> None:
        """Cut what was not begun into smaller parts. The grid of what was begun is known to its receiver and stays."""
        part_bytes = max(PART_BYTES_MIN, datagram_bytes - wire.DATA_HEADER_BYTES)
        if part_bytes < self._context.part_bytes_max:
            self._context.part_bytes_max = part_bytes
            for conversation in self._conversations.values():
                if conversation.has_sent:
                    conversation.sender.cut_again()

    def _sender_due(self, sender: Sender, now_us: int) -> None:
        sender.wake(now_us)
        conversation = self._conversations.get(sender.peer.address)
        if conversation is not None:
            self._close_if_flushed(conversation, now_us)

    # What survives a restart.

    def peers(self) -> list[Peer]:
        """List the addresses with completed messages to remember, oldest first, also those already closed."""
        return [Peer(address) for address in self._receiver.remembered.addresses()]

    def snapshot(self, peer: Peer, committing: Sequence[Receipt] = ()) -> bytes:
        """Return the completed messages of a peer, those about to be committed included."""
        if peer.address not in self._conversations and not self._receiver.remembered.knows(peer.address):
            raise no_such_peer(self.name, peer)
        completed = self._receiver.remembered.of(peer.address) + self._completing(peer, committing)
        return encode_snapshot(peer.address, self._context.outbox.is_proved(peer.address), completed)

    def snapshot_in_pieces(self, peer: Peer, committing: Sequence[Receipt]) -> tuple[bytes, bytes]:
        """Return nothing that changes, and the messages that are about to be committed."""
        proved = self._context.outbox.is_proved(peer.address)
        return b"", encode_snapshot(peer.address, proved, self._completing(peer, committing))

    def _completing(self, peer: Peer, committing: Sequence[Receipt]) -> list[tuple[bytes, int]]:
        """List those of the receipts that wait for their commit, with their totals."""
        names = [_identity(one.first) for one in committing if one.peer == peer and isinstance(one.first, str)]
        held = [(name, self._receiver.held_total(peer.address, name)) for name in names]
        return [(name, total) for name, total in held if total is not None]

    def restore(self, snapshot: bytes, now_us: int) -> Peer:
        """Resume a conversation from its snapshot; completed messages are remembered for their full time again."""
        address, proved, completed = decode_snapshot(snapshot)
        conversation = self._conversations.get(address) or self._begin(address, now_us)
        if proved:
            self._context.outbox.prove(address)
        for identity, total in completed:
            self._receiver.restore(address, identity, total, now_us)
        return conversation.peer


def _part_fault(header: wire.Headed, size: int) -> str:
    """Name the rule that a part breaks by itself, or return an empty string."""
    if (header.position == 0) != (header.start == 1):
        return "wrong_start"
    if header.position + size > header.total:
        return "past_total"
    return "empty_part" if size == 0 and header.total else ""


def _identity(name: str) -> bytes:
    return name.encode("ascii", "replace")
