"""One open conversation: what each arriving packet means to it, its heartbeat, and its end.

A packet is accepted by the rule of its kind, or dropped with a reason; only an accepted one counts as heard.

    flag             open                                   closing (flushing)               lingering
    none             deliver once                           drop                             FIN
    IMP              deliver once, ack, ack duplicates      ack duplicates of acked ones     ack such duplicates, FIN
    REQ              deliver once, duplicates: response     duplicates: response             FIN
    ACK              response to an open request            drop                             FIN
    ACK+REQ          both                                   duplicates: response             FIN
    IMP+ACK          take off the flight                    take off the flight              FIN
    HBT              HBT+ACK                                HBT+ACK                          FIN
    HBT+ACK          round-trip time                        round-trip time                  FIN
    SYN+ACK          ACK again                              ACK again                        FIN
    FIN              over                                   over                             nothing
"""

from __future__ import annotations

from enum import Enum

from fairway.core.conversations import Conversation
from fairway.core.events import Address, Closed, CloseReason, Peer, RequestReceived, ResponseReceived
from fairway.core.machine import Buffer
from fairway.core.outputs import Outputs
from fairway.core.pings import Pings
from fairway.core.receipts import ReceiptSlots
from fairway.core.serial import widen
from fairway.core.statistics import CLOSING, RECEIPTS_FULL
from fairway.protocols.udpc.link import INDEX_MASK, NEVER, Handshake, Link, following
from fairway.protocols.udpc.options import UdpcOptions
from fairway.protocols.udpc.receiver import Receiver
from fairway.protocols.udpc.sender import RUN_MIN, Sender
from fairway.protocols.udpc.wire import ACK, ASY, FIN, HBT, HEADER_BYTES, IMP, REQ, SYN, Stretch, body, datagram


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


class Session(Conversation):
    """One conversation, from the moment it is open to the moment it is forgotten."""

    __slots__ = (
        "_closing_us", "_fin", "_fin_us", "_heard_us", "_heartbeat_us", "_lingering_us", "_options", "_outputs",
        "handshake", "link", "pings", "receiver", "sender", "state",
    )  # fmt: skip
    header_bytes = HEADER_BYTES

    def __init__(
        self,
        outputs: Outputs[Link],
        options: UdpcOptions,
        slots: ReceiptSlots,
        peer: Peer,
        handshake: Handshake,
        now_us: int,
    ) -> None:
        super().__init__(peer)
        assert peer.session is not None
        self._outputs = outputs
        self._options = options
        self.handshake = handshake
        self.link = Link(outputs, peer, peer.session, following(handshake.own_index))
        self.receiver = Receiver(outputs, options, slots, peer)
        self.sender = Sender(self.link, options, self.receiver.answers)
        self.receiver.seen.add(handshake.peer_index)
        self.state = State.OPEN
        self._heard_us = now_us
        self._heartbeat_us = now_us
        """When the latest heartbeat left; on the caller, half an interval after the latest one of the peer if later."""
        self.pings = Pings(outputs, peer, options.ping_timeout_us, options.pings_max)
        self._closing_us = NEVER
        self._lingering_us = NEVER
        self._fin = b""
        self._fin_us = NEVER
        self.link.wake_us = self.due_us()

    # What arrives.

    def receive(self, index: int, ack_index: int, flag: int, data: Buffer, now_us: int) -> None:
        highest = self.receiver.seen.highest
        if index == (highest + 1) & INDEX_MASK and self.state is OPEN:
            if flag == IMP:
                if not self.receiver.deliver_next(highest + 1, data):
                    self._outputs.drop(RECEIPTS_FULL)
                    return
                self._heard_us = now_us
                if not self._options.deferred:
                    self.sender.control(IMP | ACK, highest + 1)
                return
            if flag == IMP | ACK and self.sender.acknowledge_single(ack_index, now_us):
                self.receiver.seen.add(highest + 1)
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

    def _receive_plain(self, number: int, data: Buffer) -> str:
        if self.receiver.is_duplicate(number):
            return "duplicate"
        if self._options.sequenced and number <= self.receiver.newest_plain:
            return "not_newest"
        return self._deliver(number, data, False)

    def _receive_important(self, number: int, data: Buffer) -> str:
        if self.receiver.is_duplicate(number):
            if not self._options.deferred or number not in self.receiver.receipts:
                self.sender.control(IMP | ACK, number)
            return ""
        reason = self._deliver(number, data, True)
        if not reason and not self._options.deferred:
            self.sender.control(IMP | ACK, number)
        return reason

    def _deliver(self, number: int, data: Buffer, important: bool) -> str:
        if self.state is not State.OPEN:
            return "too_old" if self.receiver.seen.too_old(number) else CLOSING
        return self.receiver.deliver(number, body(data), important)

    def _receive_request(self, number: int, ack_index: int, flag: int, data: Buffer, now_us: int) -> str:
        if self.receiver.is_duplicate(number):
            # A duplicate comes first: its own ACK, if any, has done its work, and the peer waits for our response.
            self._repeat_response(number, now_us)
            return ""
        answered = self.sender.request_open(ack_index) if flag & ACK else None
        if flag & ACK and answered is None:
            return "answers_nothing"
        if self.receiver.answers.full(now_us):
            return "requests_full"
        if self.state is not State.OPEN:
            return "too_old" if self.receiver.seen.too_old(number) else CLOSING
        payload = body(data)
        reason = self.receiver.refusal(number, len(payload), False)
        if reason:
            return reason
        self.receiver.seen.add(number)
        self.receiver.answers.asked(number, now_us)
        token = self.sender.answered(answered, now_us) if answered is not None else None
        self._outputs.statistics.messages_received += 1
        self._outputs.report(RequestReceived(self.link.peer, number, payload, bool(flag & ASY), token))
        return ""

    def _repeat_response(self, request: int, now_us: int) -> None:
        response = self.receiver.answers.response(request, now_us)
        if response is not None:
            self._outputs.statistics.retransmissions += 1
            self.link.transmit(response, len(response))

    def _receive_response(self, number: int, ack_index: int, data: Buffer, now_us: int) -> str:
        request = self.sender.request_open(ack_index)
        if request is None and not self._completes(ack_index, data):
            return "answers_nothing"
        self.receiver.seen.add(number)
        if request is None:
            return ""
        token = self.sender.answered(request, now_us)
        self._outputs.statistics.messages_received += 1
        self._outputs.report(ResponseReceived(self.link.peer, token, number, body(data)))
        return ""

    def _completes(self, ack_index: int, data: Buffer) -> bool:
        """Return whether an ACK is the one that ends our side of the handshake."""
        return self.handshake.called and ack_index == self.handshake.syn_ack_index and len(data) == HEADER_BYTES

    def _receive_important_ack(self, number: int, ack_index: int, now_us: int) -> str:
        if not self.sender.acknowledge(ack_index, 1, now_us):
            return "answers_nothing"
        self.receiver.seen.add(number)
        self._finish_if_flushed(now_us)
        return ""

    def _receive_heartbeat(self, number: int, index: int, now_us: int) -> str:
        """Answer. A caller then stays behind the called side: one that asks is enough to keep both informed."""
        self.receiver.seen.add(number)
        self.sender.control(HBT | ACK, index)
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
        self.receiver.seen.add(number)
        self.sender.sample(self.pings.answered(ping, now_us))
        return ""

    def _receive_syn_ack(self, index: int, ack_index: int) -> str:
        if self.handshake != self.handshake._replace(called=False, syn_index=ack_index, syn_ack_index=index):
            return "unexpected_syn_ack"
        self.sender.control(ACK, index)
        return ""

    def _receive_lingering(self, number: int, flag: int, now_us: int) -> None:
        if flag == FIN:
            return
        if (
            flag == IMP
            and number in self.receiver.seen
            and not (self._options.deferred and number in self.receiver.receipts)
        ):
            self._outputs.statistics.duplicates += 1
            self.sender.control(IMP | ACK, number)
        if now_us >= self._fin_us + self._options.fin_gap_us:
            self._fin_us = now_us
            self.link.transmit(self._fin, HEADER_BYTES)

    def newer(self, index: int) -> bool:
        """Return whether a packet is newer than every one before."""
        return self.receiver.widen(index) > self.receiver.seen.highest

    # What arrives in batches.

    def receive_stretch(self, stretch: Stretch, data: bytes, segment_bytes: int, now_us: int) -> bool:
        """Take neighbouring datagrams of a batch as a whole if nothing about them is unusual; else changes nothing.

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
        count, first = len(data) // segment_bytes, self.receiver.widen(index)
        acks = important and not self._options.deferred
        if acks and (self.link.indices_to_wrap() < count or self.sender.index_room(count) < count):
            return False
        if not self.receiver.deliver_run(first, data, segment_bytes, important):
            return False
        self._heard_us = now_us
        if acks:
            self.sender.acknowledge_run(first, count)
        return True

    def _receive_acks(self, index: int, ack_index: int, count: int, now_us: int) -> bool:
        first = self.receiver.widen(index)
        if not self.sender.in_order(ack_index, count):
            return False
        accepted = 0
        for piece in self.sender.acknowledge(ack_index, count, now_us):
            ahead = (piece.first - ack_index) & INDEX_MASK
            self.receiver.seen.add(first + ahead, piece.count)
            accepted += piece.count
        if accepted < count:
            self._outputs.drop("answers_nothing", count - accepted)
        self._heard_us = now_us
        return True

    # What leaves.

    def commit(self, first: int, count: int) -> None:
        if count == 1 and not self._options.deferred and self.receiver.receipts.free_one(first):
            return
        committed = self.receiver.commit(first, count)
        if self._options.deferred:
            for piece in committed:
                self.sender.acknowledge_run(piece.first, piece.length)

    def accept(self, index: int) -> None:
        """Answer the SYN+ACK that opened this session."""
        self.sender.control(ACK, index)

    def repeat_syn_ack(self) -> None:
        """Answer a repeated SYN as the first one was answered."""
        handshake = self.handshake
        data = datagram(handshake.syn_ack_index, self.link.session_id, handshake.syn_index, SYN | ACK)
        self.link.transmit(data, HEADER_BYTES)

    def ping(self, token: int | None, now_us: int) -> None:
        """Send a heartbeat; its answer is reported if it has a token. One that cannot leave only waits for its end."""
        link = self.link
        self.pings.start(token, link.next_index if self.sender.index_room(1) > 0 else None, now_us)
        link.wake_by(now_us + self._options.ping_timeout_us)
        self.sender.control(HBT, 0)

    def move(self, address: Address, now_us: int) -> None:
        """Go on at another address, which is unproved until it answers a heartbeat."""
        self.link.address = address
        self.link.proved = False
        self.link.moved_index = self.link.next_index
        self.ping(None, now_us)

    # Time.

    def wake(self, now_us: int) -> None:
        if self.state is State.LINGERING:
            if now_us >= self._lingering_us + self._options.linger_us:
                self.state = State.OVER
        else:
            self._wake_open(now_us)
        self.link.wake_us = self.due_us()

    def _wake_open(self, now_us: int) -> None:
        self.sender.wake(now_us)
        self.receiver.answers.expire(now_us)
        self.pings.expire(now_us)
        if self._finish_if_flushed(now_us):
            return
        if now_us >= self._heard_us + self._options.silence_us:
            self._end(CloseReason.TIMED_OUT)

    def wake_heartbeat(self, now_us: int) -> None:
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
        options = self._options
        if self.state is State.LINGERING:
            return self._lingering_us + options.linger_us
        if self.state is State.OVER:
            return NEVER
        silent_us, flushed_us = self._heard_us + options.silence_us, self._closing_us + options.flush_us
        return min(self.sender.due_us(), self.pings.next_us(), silent_us, flushed_us)

    # The end.

    def close(self, reason: CloseReason, now_us: int) -> None:
        """Send FIN once what is important is acknowledged, or after a while."""
        self.state = State.CLOSING
        self._closing_us = now_us
        self.sender.fail_requests(reason)
        self.sender.flush(now_us)
        if not self._finish_if_flushed(now_us):
            self.link.wake_by(now_us + self._options.flush_us)

    def _finish_if_flushed(self, now_us: int) -> bool:
        """Send FIN when closing has nothing more to wait for."""
        if self.state is not State.CLOSING or self.closing is None:
            return False
        if not self.sender.idle() and now_us < self._closing_us + self._options.flush_us:
            return False
        link = self.link
        self._fin = datagram(link.take_index() & INDEX_MASK, link.session_id, 0, FIN)
        self._fin_us = self._lingering_us = now_us
        link.transmit(self._fin, HEADER_BYTES)
        self._end(self.closing)
        self.state = State.LINGERING
        link.wake_us = self.due_us()
        return True

    def _end(self, reason: CloseReason) -> None:
        """Give every open token its outcome and report the end."""
        self.sender.fail(reason)
        self.pings.end(reason)
        self.receiver.receipts.release()
        self.state = State.OVER
        self._outputs.statistics.conversations_closed += 1
        self._outputs.report(Closed(self.link.peer, reason))

    def replace(self) -> None:
        """End without FIN: the peer has opened a new session."""
        self._end(CloseReason.REPLACED)
