"""One open conversation: what each arriving packet means to it, its heartbeat, and its end.

A packet is accepted by the rule of its kind, or dropped with a reason; only an accepted one is a sign of life.

    flag             open                                   closing (flushing)           lingering
    none             deliver once                           drop                         FIN
    IMP              deliver once, ack, ack copies          ack copies of acked ones     ack such copies, FIN
    REQ              hand over once, copies: response       copies: response             FIN
    ACK              response to an open request            drop                         FIN
    ACK+REQ          both                                   copies: response             FIN
    IMP+ACK          take off the flight                    take off the flight          FIN
    HBT              HBT+ACK                                HBT+ACK                      FIN
    HBT+ACK          round-trip time                        round-trip time              FIN
    SYN+ACK          ACK again                              ACK again                    FIN
    FIN              over                                   over                         nothing
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from fairway.core.dedup import Seen
from fairway.core.events import (
    Address,
    Closed,
    CloseReason,
    MessageReceived,
    MessagesReceived,
    Peer,
    RequestReceived,
    ResponseReceived,
)
from fairway.core.machine import Buffer
from fairway.core.outputs import Outputs
from fairway.core.pings import Pings
from fairway.core.receipts import OpenReceipts, ReceiptSlots
from fairway.core.serial import widen
from fairway.core.statistics import CLOSING, RECEIPTS_FULL
from fairway.protocols.udpc.answers import Answers
from fairway.protocols.udpc.link import INDEX_MASK, NEVER, Link, following
from fairway.protocols.udpc.options import UdpcOptions
from fairway.protocols.udpc.sender import RUN_MIN, Outgoing
from fairway.protocols.udpc.wire import ACK, ASY, FIN, HBT, HEADER_BYTES, IMP, REQ, SYN, Stretch, bodies, body, datagram

BITMAP_SPAN = 65_536
IMPORTANT = b"i"
"""The note in the receipt of an important message: its commit is acknowledged."""


class Handshake(NamedTuple):
    """How a session was agreed upon: what both sides must remember to answer repeated handshake packets."""

    called: bool
    """Whether the peer called us."""
    caller_id: int
    """The provisional sessionID of the SYN."""
    syn_index: int
    syn_ack_index: int

    @property
    def own_index(self) -> int:
        return self.syn_ack_index if self.called else self.syn_index

    @property
    def peer_index(self) -> int:
        return self.syn_index if self.called else self.syn_ack_index


class State(Enum):
    """Where a session is in its life."""

    OPEN = 1
    CLOSING = 2
    """`close` was called; important packets are being flushed."""
    LINGERING = 3
    """FIN was sent; the application has been told that it is over."""
    OVER = 4


OPEN = State.OPEN
"""Looked up for every packet: an enumeration is slow to ask."""


class Session:
    """One conversation, from the moment it is open to the moment it is forgotten."""

    __slots__ = (
        "_close_reason",
        "_closing_us",
        "_fin",
        "_fin_us",
        "_heard_us",
        "_heartbeat_us",
        "_lingering_us",
        "_options",
        "_outputs",
        "answers",
        "handshake",
        "link",
        "newest_plain",
        "outgoing",
        "pings",
        "receipts",
        "seen",
        "state",
    )  # fmt: skip

    def __init__(
        self,
        outputs: Outputs[Link],
        options: UdpcOptions,
        slots: ReceiptSlots,
        peer: Peer,
        handshake: Handshake,
        now_us: int,
    ) -> None:
        assert peer.session is not None
        self._outputs = outputs
        self._options = options
        self.handshake = handshake
        self.link = Link(outputs, peer, peer.session, following(handshake.own_index))
        self.answers = Answers(options)
        self.outgoing = Outgoing(self.link, options, self.answers)
        self.receipts = OpenReceipts(slots)
        self.seen = Seen(BITMAP_SPAN)
        self.seen.add(handshake.peer_index)
        self.state = State.OPEN
        self.newest_plain = 0
        self._heard_us = now_us
        self._heartbeat_us = now_us
        """When the latest heartbeat left; on the caller, half an interval after the latest one of the peer if later."""
        self.pings = Pings(outputs, peer, options.ping_timeout_us)
        self._closing_us = NEVER
        self._close_reason = CloseReason.LOCAL
        self._lingering_us = NEVER
        self._fin = b""
        self._fin_us = NEVER
        self.link.wake_us = self.due_us()

    @property
    def peer(self) -> Peer:
        return self.link.peer

    # What arrives.

    def receive(self, index: int, ack_index: int, flag: int, data: Buffer, now_us: int) -> None:
        """Takes one well-formed packet of this session."""
        highest = self.seen.highest
        if index == (highest + 1) & INDEX_MASK and self.state is OPEN:
            if flag == IMP:
                self._receive_next(highest + 1, data, now_us)
                return
            if flag == IMP | ACK and self.outgoing.acknowledge_single(ack_index, now_us):
                self.seen.add(highest + 1)
                self._heard_us = now_us
                return
        number = widen(index, highest, 32)
        if number < 1:
            self._outputs.drop("too_old")
        elif self.state is State.LINGERING:
            self._receive_lingering(number, flag, now_us)
        else:
            self._receive_open(number, index, ack_index, flag, data, now_us)

    def _receive_open(self, number: int, index: int, ack_index: int, flag: int, data: Buffer, now_us: int) -> None:
        if flag == IMP:
            reason = self._receive_important(number, data)
        elif flag == IMP | ACK:
            reason = self._receive_important_ack(number, ack_index, now_us)
        elif flag == 0:
            reason = self._receive_plain(number, data)
        elif flag & REQ:
            reason = self._receive_request(number, ack_index, flag, data, now_us)
        elif flag == ACK:
            reason = self._receive_response(number, ack_index, data, now_us)
        elif flag == HBT:
            reason = self._receive_heartbeat(number, index, now_us)
        elif flag == HBT | ACK:
            reason = self._receive_heartbeat_ack(number, ack_index, now_us)
        elif flag == FIN:
            self._end(CloseReason.REMOTE)
            return
        else:
            reason = self._receive_syn_ack(index, ack_index)
        if reason:
            self._outputs.drop(reason)
        else:
            self._heard_us = now_us

    def _receive_next(self, number: int, data: Buffer, now_us: int) -> None:
        """Takes an important packet that follows the newest one: the usual case, by the shortest way."""
        payload, outputs, link = body(data), self._outputs, self.link
        if not self.receipts.add_one(number, len(payload), IMPORTANT):
            outputs.drop(RECEIPTS_FULL)
            return
        self.seen.add(number)
        self._heard_us = now_us
        outputs.statistics.messages_received += 1
        outputs.report(MessageReceived(link.peer, number, payload))
        if not self._options.deferred:
            self._control(IMP | ACK, number)

    def _receive_plain(self, number: int, data: Buffer) -> str:
        if number in self.seen:
            self._outputs.statistics.duplicates += 1
            return "copy"
        if self._options.sequenced and number <= self.newest_plain:
            return "not_newest"
        return self._hand_over(number, body(data), False)

    def _receive_important(self, number: int, data: Buffer) -> str:
        if number in self.seen:
            self._outputs.statistics.duplicates += 1
            if not self._options.deferred or number not in self.receipts:
                self._control(IMP | ACK, number)
            return ""
        reason = self._hand_over(number, body(data), True)
        if not reason and not self._options.deferred:
            self._control(IMP | ACK, number)
        return reason

    def _hand_over(self, number: int, payload: bytes, important: bool) -> str:
        reason = self._no_room(number, len(payload), important)
        if reason:
            return reason
        self.seen.add(number)
        if not important:
            self.newest_plain = max(self.newest_plain, number)
        self._outputs.statistics.messages_received += 1
        self._outputs.report(MessageReceived(self.link.peer, number, payload, important))
        return ""

    def _no_room(self, number: int, body_bytes: int, important: bool) -> str:
        """Occupy a receipt slot for a new message, or return why not."""
        if self.seen.too_old(number):
            return "too_old"
        if self.state is not State.OPEN:
            return CLOSING
        return "" if self.receipts.add_one(number, body_bytes, IMPORTANT if important else b"") else RECEIPTS_FULL

    def _receive_request(self, number: int, ack_index: int, flag: int, data: Buffer, now_us: int) -> str:
        if number in self.seen:
            # A copy comes first: its own ACK, if any, has done its work, and the peer waits for our response.
            self._outputs.statistics.duplicates += 1
            self._repeat_response(number, now_us)
            return ""
        answered = self.outgoing.request_open(ack_index) if flag & ACK else None
        if flag & ACK and answered is None:
            return "answers_nothing"
        if self.answers.full(now_us):
            return "requests_full"
        payload = body(data)
        reason = self._no_room(number, len(payload), False)
        if reason:
            return reason
        self.seen.add(number)
        self.answers.asked(number, now_us)
        token = self.outgoing.answered(answered, now_us) if answered is not None else None
        self._outputs.statistics.messages_received += 1
        self._outputs.report(RequestReceived(self.link.peer, number, payload, bool(flag & ASY), token))
        return ""

    def _repeat_response(self, request: int, now_us: int) -> None:
        response = self.answers.response(request, now_us)
        if response is not None:
            self._outputs.statistics.retransmissions += 1
            self.link.transmit(response, len(response))

    def _receive_response(self, number: int, ack_index: int, data: Buffer, now_us: int) -> str:
        request = self.outgoing.request_open(ack_index)
        if request is None and not self._completes(ack_index, data):
            return "answers_nothing"
        self.seen.add(number)
        if request is None:
            return ""
        token = self.outgoing.answered(request, now_us)
        self._outputs.statistics.messages_received += 1
        self._outputs.report(ResponseReceived(self.link.peer, token, number, body(data)))
        return ""

    def _completes(self, ack_index: int, data: Buffer) -> bool:
        """Tells whether an ACK is the one that ends our side of the handshake."""
        return self.handshake.called and ack_index == self.handshake.syn_ack_index and len(data) == HEADER_BYTES

    def _receive_important_ack(self, number: int, ack_index: int, now_us: int) -> str:
        if not self.outgoing.acknowledge(ack_index, 1, now_us):
            return "answers_nothing"
        self.seen.add(number)
        self._finish_if_flushed(now_us)
        return ""

    def _receive_heartbeat(self, number: int, index: int, now_us: int) -> str:
        """Answers. A caller then stays behind the called side: one that asks is enough to keep both informed."""
        self.seen.add(number)
        self._control(HBT | ACK, index)
        if not self.handshake.called:
            self._heartbeat_us = now_us + self._options.keepalive_us // 2
        return ""

    def _receive_heartbeat_ack(self, number: int, ack_index: int, now_us: int) -> str:
        link = self.link
        asked = widen(ack_index, link.next_index, 32)
        ping = self.pings.find(asked)
        if ping is None:
            return "answers_nothing"
        if not link.proved and asked >= link.moved_index:
            link.proved = True
            self._outputs.outbox.ledger.forget(link.address)
        self.seen.add(number)
        self.outgoing.sample(self.pings.answered(ping, now_us))
        return ""

    def _receive_syn_ack(self, index: int, ack_index: int) -> str:
        if self.handshake != self.handshake._replace(called=False, syn_index=ack_index, syn_ack_index=index):
            return "unexpected_syn_ack"
        self._control(ACK, index)
        return ""

    def _receive_lingering(self, number: int, flag: int, now_us: int) -> None:
        if flag == FIN:
            return
        if flag == IMP and number in self.seen and not (self._options.deferred and number in self.receipts):
            self._outputs.statistics.duplicates += 1
            self._control(IMP | ACK, number)
        if now_us >= self._fin_us + self._options.fin_gap_us:
            self._fin_us = now_us
            self.link.transmit(self._fin, HEADER_BYTES)

    def newer(self, index: int) -> bool:
        """Tells whether a packet is newer than every one before."""
        return widen(index, self.seen.highest, 32) > self.seen.highest

    # What arrives in batches.

    def receive_stretch(self, stretch: Stretch, data: bytes, segment_bytes: int, now_us: int) -> bool:
        """Takes neighbouring datagrams of a batch as a whole if nothing about them is unusual; else changes nothing.

        Nothing that differs in effect from taking them one by one is taken here.
        """
        count = stretch.end - stretch.start
        usual = (
            self.state is State.OPEN and self.link.proved and stretch.first_index and self.newer(stretch.first_index)
        )
        if count < RUN_MIN or not usual:
            return False
        if stretch.flag in (IMP, 0):
            return self._receive_messages(stretch.first_index, data, segment_bytes, stretch.flag == IMP, now_us)
        if stretch.flag == IMP | ACK and segment_bytes == HEADER_BYTES:
            return self._receive_acks(stretch.first_index, stretch.first_ack_index, count, now_us)
        return False

    def _receive_messages(self, index: int, data: bytes, segment_bytes: int, important: bool, now_us: int) -> bool:
        count = len(data) // segment_bytes
        first = widen(index, self.seen.highest, 32)
        acks = important and not self._options.deferred
        if acks and (self.link.indices_to_wrap() < count or self.outgoing.index_room(count) < count):
            return False
        if not self.receipts.add(first, count, segment_bytes - HEADER_BYTES, IMPORTANT * count if important else b""):
            return False
        self.seen.add(first, count)
        self._heard_us = now_us
        if not important:
            self.newest_plain = first + count - 1
        self._outputs.statistics.messages_received += count
        self._outputs.report(MessagesReceived(self.link.peer, first, bodies(data, segment_bytes), important))
        if acks:
            self._acknowledge_run(first, count)
        return True

    def _receive_acks(self, index: int, ack_index: int, count: int, now_us: int) -> bool:
        first = widen(index, self.seen.highest, 32)
        if not self.outgoing.in_order(ack_index, count):
            return False
        accepted = 0
        for piece in self.outgoing.acknowledge(ack_index, count, now_us):
            ahead = (piece.first - ack_index) & INDEX_MASK
            self.seen.add(first + ahead, piece.count)
            accepted += piece.count
        if accepted < count:
            self._outputs.drop("answers_nothing", count - accepted)
        self._heard_us = now_us
        return True

    # What leaves.

    def _control(self, flag: int, ack_number: int) -> None:
        """Sends a control packet or the handshake's ACK, under a new index."""
        link = self.link
        if link.next_index > link.index_limit and not self.outgoing.index_room(1):
            self._outputs.drop("answer_withheld")
            return
        data = datagram(link.take_index() & INDEX_MASK, link.session_id, ack_number & INDEX_MASK, flag)
        if link.proved:
            link.outbox.send(link.address, data, HEADER_BYTES)
        else:
            link.transmit(data, HEADER_BYTES)

    def _acknowledge_run(self, first: int, count: int) -> None:
        """Acknowledges consecutive important packets."""
        link = self.link
        if count < RUN_MIN or link.indices_to_wrap() < count or self.outgoing.index_room(count) < count:
            for number in range(first, first + count):
                self._control(IMP | ACK, number)
            return
        from fairway.protocols.udpc.columns import encode_acks

        index = link.take_index(count)
        data = encode_acks(index & INDEX_MASK, link.session_id, first & INDEX_MASK, count)
        link.transmit(data, HEADER_BYTES, count)

    def commit(self, first: int, count: int) -> None:
        """Free the receipt slots of committed messages and, when deferred, acknowledge the important ones."""
        if count == 1 and not self._options.deferred and self.receipts.free_one(first):
            return
        committed = self.receipts.commit(first, count)
        if self._options.deferred:
            for piece in committed:
                if piece.note:
                    self._acknowledge_run(piece.first, piece.length)

    def accept(self, index: int) -> None:
        """Answers the SYN+ACK that opened this session."""
        self._control(ACK, index)

    def repeat_syn_ack(self) -> None:
        """Answers a repeated SYN as the first one was answered."""
        handshake = self.handshake
        data = datagram(handshake.syn_ack_index, self.link.session_id, handshake.syn_index, SYN | ACK)
        self.link.transmit(data, HEADER_BYTES)

    def ping(self, token: int | None, now_us: int) -> None:
        """Send a heartbeat; its answer is reported if it has a token. One that cannot leave only waits for its end."""
        link = self.link
        self.pings.start(token, link.next_index if self.outgoing.index_room(1) > 0 else None, now_us)
        link.wake_by(now_us + self._options.ping_timeout_us)
        self._control(HBT, 0)

    def move(self, address: Address, now_us: int) -> None:
        """Go on at another address, which is unproved until it answers a heartbeat."""
        self.link.address = address
        self.link.proved = False
        self.link.moved_index = self.link.next_index
        self.ping(None, now_us)

    # Time.

    def wake(self, now_us: int) -> None:
        """Does what is due."""
        if self.state is State.LINGERING:
            if now_us >= self._lingering_us + self._options.linger_us:
                self.state = State.OVER
        else:
            self._wake_open(now_us)
        self.link.wake_us = self.due_us()

    def _wake_open(self, now_us: int) -> None:
        self.outgoing.wake(now_us)
        self.answers.expire(now_us)
        self.pings.expire(now_us)
        if self._finish_if_flushed(now_us):
            return
        if now_us >= self._heard_us + self._options.silence_us:
            self._end(CloseReason.TIMED_OUT)

    def wake_heartbeat(self, now_us: int) -> None:
        """Send a heartbeat if it is due."""
        due_us = self.heartbeat_due_us()
        if due_us is not None and now_us >= due_us:
            self._heartbeat_us = now_us
            self.ping(None, now_us)

    def heartbeat_due_us(self) -> int | None:
        """Return when the next heartbeat is due if nothing arrives until then, or None after the end."""
        if self.state is State.LINGERING or self.state is State.OVER:
            return None
        return max(self._heard_us, self._heartbeat_us) + self._options.keepalive_us

    def due_us(self) -> int:
        """Tells when `wake` has something to do."""
        options = self._options
        if self.state is State.LINGERING:
            return self._lingering_us + options.linger_us
        if self.state is State.OVER:
            return NEVER
        silent_us, flushed_us = self._heard_us + options.silence_us, self._closing_us + options.flush_us
        return min(self.outgoing.due_us(), self.pings.next_us(), silent_us, flushed_us)

    # The end.

    def close(self, reason: CloseReason, now_us: int) -> None:
        """Send FIN once what is important is acknowledged, or after a while."""
        self.state = State.CLOSING
        self._closing_us = now_us
        self._close_reason = reason
        self.outgoing.fail_requests(reason)
        self.outgoing.flush(now_us)
        if not self._finish_if_flushed(now_us):
            self.link.wake_by(now_us + self._options.flush_us)

    def _finish_if_flushed(self, now_us: int) -> bool:
        """Sends FIN when closing has nothing more to wait for."""
        if self.state is not State.CLOSING:
            return False
        if not self.outgoing.idle() and now_us < self._closing_us + self._options.flush_us:
            return False
        link = self.link
        self._fin = datagram(link.take_index() & INDEX_MASK, link.session_id, 0, FIN)
        self._fin_us = self._lingering_us = now_us
        link.transmit(self._fin, HEADER_BYTES)
        self._end(self._close_reason)
        self.state = State.LINGERING
        link.wake_us = self.due_us()
        return True

    def _end(self, reason: CloseReason) -> None:
        """Gives every open token its outcome and reports the end."""
        self.outgoing.fail(reason)
        self.pings.end(reason)
        self.receipts.release()
        self.state = State.OVER
        self._outputs.statistics.conversations_closed += 1
        self._outputs.report(Closed(self.link.peer, reason))

    def replace(self) -> None:
        """Ends without FIN: the peer has opened a new session."""
        self._end(CloseReason.REPLACED)
