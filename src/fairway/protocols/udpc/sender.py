"""What one side sends and what waits for an answer: important packets, requests, and the queues before them.

Important packets go through the congestion window and are repaired by later acknowledgements. Requests, responses and
plain messages leave at once: a response comes when an application gives it, so its delay says nothing about the path,
and a request has a timer of its own. All of them stop half-way to where the index would run too far past the oldest
packet that waits, because the peer's bitmap could no longer tell its duplicates.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from fairway.core.events import NO_ACKNOWLEDGEMENT, NO_RESPONSE
from fairway.core.machine import Buffer
from fairway.core.recovery.congestion import make_controller
from fairway.core.recovery.queue import Backlog, SendQueue
from fairway.core.recovery.recovery import Kind, Recovery
from fairway.core.recovery.runs import NEVER, Acknowledged, Run, Stream
from fairway.core.recovery.timing import RoundTrip
from fairway.core.serial import widen
from fairway.protocols.udpc.options import UdpcOptions
from fairway.protocols.udpc.wire import ACK, HEADER_BYTES, IMP, INDEX_MASK, REQ, datagram

if TYPE_CHECKING:
    from fairway.protocols.udpc.session import Session

RUN_MIN = 8
"""Fewer messages than this are encoded one by one: numpy's fixed cost would not pay."""


class Waiting(NamedTuple):
    """A plain message, a request or a response that waits."""

    flag: int
    answers: int
    """The wide index of the request that this answers; 0 for none."""
    body: bytes
    token: int


class Sender:
    """The sending half of a session."""

    __slots__ = (
        "_asked", "_asking", "_index_reserve", "_options", "_others", "_paced_us", "_packets", "_queue", "_recovery",
        "_requests", "_session", "backlog", "timing",
    )  # fmt: skip

    def __init__(self, session: Session, options: UdpcOptions) -> None:
        self._session = session
        self._options = options
        self._index_reserve = options.index_run_max // 2
        """Indices that only answers may use."""
        self.timing = RoundTrip(initial_us=options.rto_initial_us, min_us=options.rto_us_min, max_us=options.rto_us_max)
        self._recovery = Recovery(
            Kind(bounded=True, life_us=options.important_timeout_us, backoff_us_max=options.rto_us_max),
            self.timing,
            make_controller(options.controller, options.window),
            session.outputs.statistics,
        )
        self._packets = Stream()
        """Important packets without an acknowledgement."""
        self._asking: Recovery | None = None
        self._asked = Stream()
        """Requests without a response."""
        self._queue = SendQueue()
        self._others: deque[Waiting] | None = None
        self._requests: deque[Waiting] | None = None
        self.backlog = Backlog(options, session.outputs, session.peer)
        self._paced_us = NEVER

    # What the application sends.

    def queue(self, bodies: Sequence[Buffer], token: int, now_us: int, *, equal: bool) -> None:
        """Send important messages, and again until they are acknowledged."""
        self.backlog.add(len(bodies), sum(map(len, bodies)))
        self._queue.add(bodies, token, equal=equal)
        self._session.outputs.ready[self._session] = now_us

    def send_other(self, message: Waiting, now_us: int) -> None:
        """Send a plain message, a request or a response; only requests have an outcome."""
        if self._queue.messages:
            self.flush(now_us)  # what was sent before leaves before, where nothing holds it back
        if message.flag & REQ:
            self.backlog.add(1, len(message.body))
            if self._requests is None:
                self._requests = deque()
            self._requests.append(message)
            self._flush_requests(now_us)
        elif not self._others and self._message_room(1):
            self._launch_other(message, now_us)
        else:
            self.backlog.add(1, len(message.body))
            if self._others is None:
                self._others = deque()
            self._others.append(message)

    # The index: how far it may run.

    def index_room(self, wanted: int) -> int:
        """Return how many of `wanted` new indices answers may use now."""
        session = self._session
        used = session.next_index + wanted - 1
        if used <= session.index_limit:
            return wanted
        oldest = [number for number in (self._packets.lowest(), self._asked.lowest()) if number is not None]
        session.index_limit = min(oldest) + self._options.index_run_max if oldest else NEVER
        return max(0, min(wanted, wanted - used + session.index_limit))

    def _message_room(self, wanted: int) -> int:
        """Return how many of `wanted` new indices messages may use now: the other half is for answers.

        If messages ran up to the limit on both sides, neither could acknowledge what the other waits for.
        """
        reserve = self._index_reserve
        return max(0, self.index_room(wanted + reserve) - reserve)

    def _limit_index(self, number: int) -> None:
        """Keep the index near a packet that waits; the limit is only ever too low, and looked up when reached."""
        self._session.index_limit = min(self._session.index_limit, number + self._options.index_run_max)

    # What leaves.

    def flush(self, now_us: int) -> None:
        """Send what may leave now: retransmissions first, then what is queued."""
        recovery, session = self._recovery, self._session
        self._retransmit(recovery, now_us)
        if self._asking is not None:
            self._retransmit(self._asking, now_us)
        if self._others:
            self._flush_others(now_us)
        if self._requests:
            self._flush_requests(now_us)
        if self._queue.messages:
            self._flush_important(now_us)
        waits = self._queue.messages and self._packets.left < self._options.window and self._message_room(1)
        self._paced_us = recovery.next_room_us(now_us) if waits or recovery.has_lost else NEVER
        session.wake_us = min(session.wake_us, self.due_us())

    def _retransmit(self, recovery: Recovery, now_us: int) -> None:
        while (run := recovery.next_retransmission(now_us)) is not None:
            self._session.transmit(run.datagrams(), run.segment_bytes, run.count)

    def _flush_others(self, now_us: int) -> None:
        while self._others and self._message_room(1):
            message = self._others.popleft()
            self._launch_other(message, now_us)
            self.backlog.settle(1, len(message.body))

    def _flush_requests(self, now_us: int) -> None:
        while self._requests and self._asked.left < self._options.requests_max and self._message_room(1):
            self._launch_other(self._requests.popleft(), now_us)

    def _launch_other(self, message: Waiting, now_us: int) -> None:
        session = self._session
        number = session.take_index()
        data = datagram(
            number & INDEX_MASK, session.session_id, message.answers & INDEX_MASK, message.flag, message.body
        )
        if message.flag & REQ:
            if self._asking is None:
                kind = Kind(by_name=False, sampled=False, life_us=self._options.request_timeout_us)
                self._asking = Recovery(kind, self.timing, None, session.outputs.statistics)
            self._asking.sent(self._asked, number, 1, now_us, data, len(data), message.token)
            self._limit_index(number)
            session.wake_us = min(session.wake_us, self._asking.next_us())
        if message.flag & ACK:
            session.receiver.answers.keep(message.answers, data, now_us)
        session.outputs.statistics.messages_sent += 1
        session.transmit(data, len(data))

    def _flush_important(self, now_us: int) -> None:
        while self._queue.messages:
            room = min(self._queue.messages, self._options.window - self._packets.left, self._session.indices_to_wrap())
            room = min(room, self._recovery.room(now_us)) if room > 0 else 0
            room = self._message_room(room) if room > 0 else 0
            if room <= 0:
                return
            token, bodies = self._queue.take(room)
            self._launch(bodies, token, now_us)

    def _launch(self, bodies: Sequence[bytes], token: int, now_us: int) -> None:
        """Send important messages of one size for the first time."""
        session, count, segment_bytes = self._session, len(bodies), HEADER_BYTES + len(bodies[0])
        first = session.take_index(count)
        if count == 1:
            data = datagram(first & INDEX_MASK, session.session_id, 0, IMP, bodies[0])
        elif count < RUN_MIN:
            numbers = range(first, first + count)
            pairs = zip(numbers, bodies, strict=True)
            data = b"".join([datagram(number & INDEX_MASK, session.session_id, 0, IMP, body) for number, body in pairs])
        else:
            from fairway.protocols.udpc.columns import encode_run

            data = encode_run(first & INDEX_MASK, session.session_id, IMP, bodies, len(bodies[0]))
        self._recovery.sent(self._packets, first, count, now_us, data, segment_bytes, token)
        if first + self._options.index_run_max < session.index_limit:
            self._limit_index(first)
        session.outputs.statistics.messages_sent += count
        session.transmit(data, segment_bytes, count)

    def control(self, flag: int, ack_number: int) -> None:
        """Send a control packet or the handshake's ACK, under a new index."""
        session = self._session
        if session.next_index > session.index_limit and not self.index_room(1):
            session.outputs.drop("answer_withheld")
            return
        data = datagram(session.take_index() & INDEX_MASK, session.session_id, ack_number & INDEX_MASK, flag)
        if session.proved:
            session.outbox.send(session.address, data, HEADER_BYTES)
        else:
            session.transmit(data, HEADER_BYTES)

    def acknowledge_run(self, first: int, count: int) -> None:
        session = self._session
        if count < RUN_MIN or session.indices_to_wrap() < count or self.index_room(count) < count:
            for number in range(first, first + count):
                self.control(IMP | ACK, number)
            return
        from fairway.protocols.udpc.columns import encode_acks

        index = session.take_index(count)
        data = encode_acks(index & INDEX_MASK, session.session_id, first & INDEX_MASK, count)
        session.transmit(data, HEADER_BYTES, count)

    # What comes back.

    def acknowledge_single(self, ack_index: int, now_us: int) -> bool:
        """Take the acknowledgement of a packet that left once and on its own: the usual case, by the shortest way.
        Otherwise return False and change nothing."""
        session, recovery = self._session, self._recovery
        run = recovery.acknowledge_one(self._packets, widen(ack_index, session.next_index, 32), now_us)
        if run is None:
            return False
        self._delivered(run.tokens, run.segment_bytes - HEADER_BYTES)
        if self._queue.messages or recovery.has_lost or self._others or self._requests:
            session.outputs.ready[session] = now_us
        return True

    def acknowledge(self, ack_index: int, count: int, now_us: int) -> list[Acknowledged]:
        """Take acknowledgements of important packets with consecutive indices, and return those that waited."""
        session, recovery = self._session, self._recovery
        pieces = recovery.acknowledge(self._packets, widen(ack_index, session.next_index, 32), count, now_us)
        for piece in pieces:
            self._delivered(piece.tokens, piece.count * (piece.run.segment_bytes - HEADER_BYTES))
        if pieces:
            session.outputs.ready[session] = now_us
        return pieces

    def _delivered(self, tokens: range, body_bytes: int) -> None:
        self._session.outputs.statistics.rtt_us = self.timing.smoothed_us
        self.backlog.delivered(tokens, body_bytes)

    def in_order(self, ack_index: int, count: int) -> bool:
        """Return whether taking consecutive acknowledgements as a whole does what taking them one by one does."""
        number = widen(ack_index, self._session.next_index, 32)
        return bool(self._recovery.left_in_order(self._packets, number, count))

    def sample(self, rtt_us: int) -> None:
        self.timing.sample(rtt_us)
        self._session.outputs.statistics.rtt_us = self.timing.smoothed_us

    def request_open(self, ack_index: int) -> int | None:
        """Return the wide index of the open request that an ACK names, or None."""
        number = widen(ack_index, self._session.next_index, 32)
        return number if number in self._asked else None

    def answered(self, request: int, now_us: int) -> int:
        """Take the response to a request, and return the request's token."""
        assert self._asking is not None
        (piece,) = self._asking.acknowledge(self._asked, request, 1, now_us)
        self.backlog.settle(1, piece.run.segment_bytes - HEADER_BYTES)
        self._session.outputs.statistics.messages_delivered += 1
        if self._requests or self._queue.messages or self._others:
            self._session.outputs.ready[self._session] = now_us
        return piece.run.token

    # Time.

    def wake(self, now_us: int) -> None:
        """Retransmit or give up what is due, then send what may leave."""
        for run in self._recovery.wake(now_us):
            self._unknown(run, NO_ACKNOWLEDGEMENT)
        for run in () if self._asking is None else self._asking.wake(now_us):
            self._unknown(run, NO_RESPONSE)
        self.flush(now_us)

    def due_us(self) -> int:
        due_us = min(self._paced_us, self._recovery.next_us())
        return due_us if self._asking is None else min(due_us, self._asking.next_us())

    # Outcomes.

    def idle(self) -> bool:
        return not self._packets.left and not self._queue.messages

    def fail_requests(self, reason: str) -> None:
        """End all requests, because the session closes: unknown if they were ever sent, else refused."""
        self.backlog.close()
        for run in () if self._asking is None else self._asking.withdraw(self._asked):
            self._unknown(run, reason)
        while self._requests:
            message = self._requests.popleft()
            self.backlog.refused((message.token,), len(message.body))

    def fail(self, reason: str) -> None:
        self.fail_requests(reason)
        for run in self._recovery.withdraw(self._packets):
            self._unknown(run, reason)
        for tokens, body_bytes in self._queue.clear():
            self.backlog.refused(tokens, body_bytes)
        while self._others:
            self.backlog.settle(1, len(self._others.popleft().body))

    def _unknown(self, run: Run, reason: str) -> None:
        self.backlog.unknown(run.tokens, run.count * (run.segment_bytes - HEADER_BYTES), reason)
