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
from typing import NamedTuple

from fairway.core.conversations import Conversation
from fairway.core.events import Address, Closed, CloseReason, Peer, RequestReceived, ResponseReceived
from fairway.core.machine import Buffer
from fairway.core.outputs import Outputs
from fairway.core.pings import Pings
from fairway.core.receipts import ReceiptSlots
from fairway.core.recovery.runs import NEVER
from fairway.core.serial import widen
from fairway.core.statistics import CLOSING, RECEIPTS_FULL
from fairway.protocols.udpc.options import UdpcOptions
from fairway.protocols.udpc.receiver import IMPORTANT, Receiver
from fairway.protocols.udpc.sender import RUN_MIN, Sender
from fairway.protocols.udpc.wire import ACK, ASY, FIN, HBT, HEADER_BYTES, IMP, INDEX_MASK, REQ, SYN, Stretch, datagram


def following(index: int, count: int = 1) -> int:
    """Return the wide index `count` after this one; 0 is skipped at each wrap."""
    wide = index + count
    return wide if wide >> 32 == index >> 32 else wide + 1


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

    def syn_ack(self, session_id: int) -> bytes:
        return datagram(self.syn_ack_index, session_id, self.syn_index, SYN | ACK)


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
        "_closing_us", "_fin", "_fin_us", "_heard_us", "_heartbeat_us", "_lingering_us", "_options", "address",
        "armed_us", "handshake", "index_limit", "moved_index", "next_index", "outbox", "outputs", "pings", "proved",
        "receiver", "sender", "session_id", "state", "wake_us",
    )  # fmt: skip
    header_bytes = HEADER_BYTES

    def __init__(
        self,
        outputs: Outputs[Session],
        options: UdpcOptions,
        slots: ReceiptSlots,
        peer: Peer,
        handshake: Handshake,
        now_us: int,
    ) -> None:
        super().__init__(peer)
        assert peer.session is not None
        self.outputs = outputs
        self.outbox = outputs.outbox
        self._options = options
        self.handshake = handshake
        self.address = peer.address
        self.session_id = peer.session
        self.next_index = following(handshake.own_index)
        self.index_limit = NEVER
        """The highest index that may be used for now: so far past the oldest packet that waits."""
        self.proved = True
        """False only at an address to which the session moved and that has not answered yet."""
        self.moved_index = 0
        """The first index that was sent to the present address."""
        self.armed_us = NEVER
        """The deadline that the machine has noted for this session."""
        self.receiver = Receiver(outputs, options, slots, peer)
        self.sender = Sender(self, options)
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
        self.wake_us = self.due_us()
        """The earliest deadline since the last wake."""

    # What arrives.

    def receive(self, index: int, ack_index: int, flag: int, body: bytes, now_us: int) -> None:
        receiver = self.receiver
        number = receiver.seen.highest + 1
        if index == number & INDEX_MASK and self.state is OPEN:  # the usual case, by the shortest way
            if flag == IMP:
                if not receiver.receipts.add_one(number, len(body), IMPORTANT):
                    self.outputs.drop(RECEIPTS_FULL)
                    return
                receiver.deliver(number, body, True)
                self._heard_us = now_us
                if not self._options.deferred:
                    self.sender.control(IMP | ACK, number)
                return
            if flag == IMP | ACK and self.sender.acknowledge_single(ack_index, now_us):
                receiver.seen.add(number)
                self._heard_us = now_us
                return
        number = receiver.widen(index)
        if number < 1:
            self.outputs.drop("too_old")
        elif self.state is State.LINGERING:
            self._receive_lingering(number, flag, now_us)
        else:
            self._receive_open(number, index, ack_index, flag, body, now_us)

    def _receive_open(self, number: int, index: int, ack_index: int, flag: int, body: bytes, now_us: int) -> None:
        if flag == IMP:
            reason = self._receive_important(number, body)
        elif flag == IMP | ACK:
            reason = self._receive_important_ack(number, ack_index, now_us)
        elif flag == 0:
            reason = self._receive_plain(number, body)
        elif flag & REQ:
            reason = self._receive_request(number, ack_index, flag, body, now_us)
        elif flag == ACK:
            reason = self._receive_response(number, ack_index, body, now_us)
        elif flag == HBT:
            reason = self._receive_heartbeat(number, index, now_us)
        elif flag == HBT | ACK:
            reason = self._receive_heartbeat_ack(number, ack_index, now_us)
        elif flag == FIN:
            self.end(CloseReason.REMOTE)
            return
        else:
            reason = self._receive_syn_ack(index, ack_index)
        if reason:
            self.outputs.drop(reason)
        else:
            self._heard_us = now_us

    def _receive_plain(self, number: int, body: bytes) -> str:
        if self.receiver.is_duplicate(number):
            return "duplicate"
        if self._options.sequenced and number <= self.receiver.newest_plain:
            return "not_newest"
        return self._deliver(number, body, False)

    def _receive_important(self, number: int, body: bytes) -> str:
        if self.receiver.is_duplicate(number):
            if not self._options.deferred or number not in self.receiver.receipts:
                self.sender.control(IMP | ACK, number)
            return ""
        reason = self._deliver(number, body, True)
        if not reason and not self._options.deferred:
            self.sender.control(IMP | ACK, number)
        return reason

    def _deliver(self, number: int, body: bytes, important: bool) -> str:
        reason = self._refusal(number, len(body), IMPORTANT if important else b"")
        if not reason:
            self.receiver.deliver(number, body, important)
        return reason

    def _refusal(self, number: int, body_bytes: int, note: bytes) -> str:
        """Occupy a receipt slot for a new message, or return why not."""
        if self.receiver.seen.too_old(number):
            return "too_old"
        if self.state is not State.OPEN:
            return CLOSING
        return "" if self.receiver.receipts.add_one(number, body_bytes, note) else RECEIPTS_FULL

    def _receive_request(self, number: int, ack_index: int, flag: int, body: bytes, now_us: int) -> str:
        if self.receiver.is_duplicate(number):
            # A duplicate comes first: its own ACK, if any, has done its work, and the peer waits for our response.
            self._repeat_response(number, now_us)
            return ""
        answered = self.sender.request_open(ack_index) if flag & ACK else None
        if flag & ACK and answered is None:
            return "answers_nothing"
        if self.receiver.answers.full(now_us):
            return "requests_full"
        reason = self._refusal(number, len(body), b"")
        if reason:
            return reason
        self.receiver.seen.add(number)
        self.receiver.answers.asked(number, now_us)
        token = self.sender.answered(answered, now_us) if answered is not None else None
        self.outputs.statistics.messages_received += 1
        self.outputs.report(RequestReceived(self.peer, number, body, bool(flag & ASY), token))
        return ""

    def _repeat_response(self, request: int, now_us: int) -> None:
        response = self.receiver.answers.response(request, now_us)
        if response is not None:
            self.outputs.statistics.retransmissions += 1
            self.transmit(response, len(response))

    def _receive_response(self, number: int, ack_index: int, body: bytes, now_us: int) -> str:
        request = self.sender.request_open(ack_index)
        handshake = self.handshake
        if request is None and not (handshake.called and ack_index == handshake.syn_ack_index and not body):
            return "answers_nothing"
        self.receiver.seen.add(number)
        if request is None:
            return ""
        token = self.sender.answered(request, now_us)
        self.outputs.statistics.messages_received += 1
        self.outputs.report(ResponseReceived(self.peer, token, number, body))
        return ""

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
        acknowledged = widen(ack_index, self.next_index, 32)
        ping = self.pings.find(acknowledged)
        if ping is None:
            return "answers_nothing"
        if not self.proved and acknowledged >= self.moved_index:
            self.proved = True
            self.outbox.ledger.forget(self.address)
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
            self.outputs.statistics.duplicates += 1
            self.sender.control(IMP | ACK, number)
        if now_us >= self._fin_us + self._options.fin_gap_us:
            self._fin_us = now_us
            self.transmit(self._fin, HEADER_BYTES)

    def newer(self, index: int) -> bool:
        """Return whether a packet is newer than every one before."""
        return self.receiver.widen(index) > self.receiver.seen.highest

    # What arrives in batches.

    def receive_stretch(self, stretch: Stretch, data: bytes, segment_bytes: int, now_us: int) -> bool:
        """Take neighbouring datagrams of a batch as a whole if nothing about them is unusual; else changes nothing.

        Nothing that differs in effect from taking them one by one is taken here.
        """
        count = stretch.end - stretch.start
        usual = self.state is State.OPEN and self.proved and stretch.first_index and self.newer(stretch.first_index)
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
        if acks and (self.indices_to_wrap() < count or self.sender.index_room(count) < count):
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
            self.outputs.drop("answers_nothing", count - accepted)
        self._heard_us = now_us
        return True

    # What leaves.

    def take_index(self, count: int = 1) -> int:
        """Return the first of `count` new indices, which must not cross the wrap; 0 is skipped after it."""
        index = self.next_index
        wide = index + count
        self.next_index = wide if wide & INDEX_MASK else wide + 1
        return index

    def indices_to_wrap(self) -> int:
        """Return how many indices follow one another before 0 is skipped."""
        return INDEX_MASK + 1 - (self.next_index & INDEX_MASK)

    def transmit(self, data: Buffer, segment_bytes: int, count: int = 1) -> None:
        """Send datagrams, unless the three-times limit withholds them."""
        if self.proved:
            self.outbox.send(self.address, data, segment_bytes, count)
        else:
            self.outbox.send_unproved(self.address, data, segment_bytes, count)

    def ping(self, token: int | None, now_us: int) -> None:
        """Send a heartbeat; its answer is reported if it has a token. One that cannot leave only waits for its end."""
        self.pings.start(token, self.next_index if self.sender.index_room(1) > 0 else None, now_us)
        self.wake_us = min(self.wake_us, now_us + self._options.ping_timeout_us)
        self.sender.control(HBT, 0)

    def move(self, address: Address, now_us: int) -> None:
        """Go on at another address, which is unproved until it answers a heartbeat."""
        self.address = address
        self.proved = False
        self.moved_index = self.next_index
        self.ping(None, now_us)

    # Time.

    def wake(self, now_us: int) -> None:
        if self.state is State.LINGERING:
            if now_us >= self._lingering_us + self._options.linger_us:
                self.state = State.OVER
        else:
            self._wake_open(now_us)
        self.wake_us = self.due_us()

    def _wake_open(self, now_us: int) -> None:
        self.sender.wake(now_us)
        self.receiver.answers.expire(now_us)
        self.pings.expire(now_us)
        if self._finish_if_flushed(now_us):
            return
        if now_us >= self._heard_us + self._options.silence_us:
            self.end(CloseReason.TIMED_OUT)

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
            self.wake_us = min(self.wake_us, now_us + self._options.flush_us)

    def _finish_if_flushed(self, now_us: int) -> bool:
        """Send FIN when closing has nothing more to wait for."""
        if self.state is not State.CLOSING or self.closing is None:
            return False
        if not self.sender.idle() and now_us < self._closing_us + self._options.flush_us:
            return False
        self._fin = datagram(self.take_index() & INDEX_MASK, self.session_id, 0, FIN)
        self._fin_us = self._lingering_us = now_us
        self.transmit(self._fin, HEADER_BYTES)
        self.end(self.closing)
        self.state = State.LINGERING
        self.wake_us = self.due_us()
        return True

    def end(self, reason: CloseReason) -> None:
        """Give every open token its outcome and report the end."""
        self.sender.fail(reason)
        self.pings.end(reason)
        self.receiver.receipts.release()
        self.state = State.OVER
        self.outputs.statistics.conversations_closed += 1
        self.outputs.report(Closed(self.peer, reason))
