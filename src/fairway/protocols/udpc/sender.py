"""What one side has sent and waits for: important packets, requests, and the queues before them.

Important packets go through the congestion window. One that was overtaken is repeated at once; one that timed out is
*lost* until the window lets it leave again, and what is lost is not in the network. Requests, responses and plain
messages leave at once: a response comes when an application gives it, so its delay says nothing about the path. All
of them stop half-way to where the index would run too far past the oldest packet that waits, because the peer's
bitmap could no longer tell its copies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from fairway.core.congestion import make_controller
from fairway.core.events import NOT_SENT, Delivered, DeliveryUnknown, Refused
from fairway.core.flight import Acknowledged, Flight, Run
from fairway.core.machine import Buffer
from fairway.core.rtt import RoundTrip
from fairway.core.serial import widen
from fairway.protocols.udpc.answers import Answers
from fairway.protocols.udpc.debt import Chunk, Debt, Other
from fairway.protocols.udpc.link import INDEX_MASK, NEVER, Link
from fairway.protocols.udpc.options import UdpcOptions
from fairway.protocols.udpc.wire import ACK, HEADER_BYTES, IMP, REQ, datagram

RUN_MIN = 8
"""Fewer messages than this are encoded one by one: numpy's fixed cost would not pay."""


class Outgoing:
    """The sending half of a session."""

    __slots__ = (
        "_answers", "_asked", "_controller", "_flight", "_index_reserve", "_link", "_lost", "_lowest", "_options",
        "_others", "_paced_us", "_queue", "_requests", "_sampled_us", "debt", "rtt",
    )  # fmt: skip

    def __init__(self, link: Link, options: UdpcOptions, answers: Answers) -> None:
        self._link = link
        self._options = options
        self._index_reserve = options.index_run_max // 2
        """Indices that only answers may use."""
        self._answers = answers
        self.rtt = RoundTrip(initial_us=options.rto_initial_us, min_us=options.rto_min_us, max_us=options.rto_max_us)
        self._controller = make_controller(options.controller, options.window)
        self._flight = Flight()
        self._lost: dict[int, None] = {}
        """Packets of the flight that timed out and wait for the window to be repeated."""
        self._asked = Flight()
        """Requests that wait for a response."""
        self._queue: deque[Chunk] | None = None
        self._others: deque[Other] | None = None
        self._requests: deque[Other] | None = None
        self.debt = Debt(link, options)
        self._paced_us = NEVER
        self._sampled_us = -1
        self._lowest = 0
        """No waiting important packet has a lower number; nothing is overtaken when it is acknowledged next."""

    # What the application sends.

    def send_important(self, body: bytes, token: int, now_us: int) -> None:
        """Sends a message, admitted before, that is repeated until it is acknowledged."""
        link, in_flight = self._link, self._flight.left
        if (
            self._queue
            or in_flight >= self._options.window
            or self._controller.room(in_flight - len(self._lost), now_us) <= 0
            or (link.next_index + self._index_reserve > link.index_limit and not self._message_room(1))
        ):
            self._enqueue(Chunk((body,), len(body), token), now_us)
        else:
            self._launch_one(body, token, now_us)

    def send_chunk(self, bodies: Sequence[Buffer], body_bytes: int | None, token: int, now_us: int) -> None:
        """Sends several such messages, all of one size unless `body_bytes` is None."""
        count = len(bodies)
        self.debt.owe(count, count * body_bytes if body_bytes is not None else sum(map(len, bodies)))
        self._enqueue(Chunk(bodies, body_bytes, token), now_us)

    def _enqueue(self, chunk: Chunk, now_us: int) -> None:
        if self._queue is None:
            self._queue = deque()
        self._queue.append(chunk)
        self.pump(now_us)
        if self._queue:
            chunk.keep()

    def send_other(self, message: Other, now_us: int) -> None:
        """Sends a plain message, a request or a response; only requests have an outcome."""
        if message.flag & REQ:
            self.debt.owe(1, len(message.body))
            if self._requests is None:
                self._requests = deque()
            self._requests.append(message)
            self._pump_requests(now_us)
        elif not self._others and self._message_room(1):
            self._launch_other(message, now_us)
        else:
            self.debt.owe(1, len(message.body))
            if self._others is None:
                self._others = deque()
            self._others.append(message)

    # The index: how far it may run.

    def index_room(self, wanted: int) -> int:
        """Tells how many of `wanted` new indices answers may use now."""
        link = self._link
        used = link.next_index + wanted - 1
        if used <= link.index_limit:
            return wanted
        oldest = [number for number in (self._flight.oldest(), self._asked.oldest()) if number is not None]
        link.index_limit = min(oldest) + self._options.index_run_max if oldest else NEVER
        return max(0, min(wanted, wanted - used + link.index_limit))

    def _message_room(self, wanted: int) -> int:
        """Tells how many of `wanted` new indices messages may use now: the other half is for answers.

        If messages ran up to the limit on both sides, neither could acknowledge what the other waits for.
        """
        reserve = self._index_reserve
        return max(0, self.index_room(wanted + reserve) - reserve)

    def _note_waiting(self, number: int) -> None:
        """Takes note that a packet waits; the limit is only ever too low, and is looked up again when it is reached."""
        link, limit = self._link, number + self._options.index_run_max
        link.index_limit = min(link.index_limit, limit)

    # What leaves.

    def pump(self, now_us: int) -> None:
        """Sends what may leave now: what timed out first, then what is queued."""
        if self._lost:
            self._repeat_lost(now_us)
        if self._others:
            self._pump_others(now_us)
        if self._requests:
            self._pump_requests(now_us)
        if self._queue:
            self._pump_important(now_us)
        self._paced_us = NEVER
        if self._lost or (self._queue and len(self._flight) < self._options.window and self._message_room(1)):
            due_us = self._controller.next_room_us(len(self._flight) - len(self._lost), now_us)
            if due_us is not None:
                self._paced_us = due_us
                self._link.wake_by(due_us)

    def _repeat_lost(self, now_us: int) -> None:
        room = self._controller.room(len(self._flight) - len(self._lost), now_us)
        for number in list(self._lost)[:room]:
            self._repeat_important(number, now_us)

    def _repeat_important(self, number: int, now_us: int) -> None:
        self._lost.pop(number, None)
        self._repeat(self._flight, number, self._options.important_limit_us, now_us)
        self._controller.sent(1, now_us)

    def _repeat(self, flight: Flight, number: int, limit_us: int, now_us: int) -> None:
        run = flight.find(number)
        if run is None:
            return
        due_us = min(now_us + self.rtt.backed_off_us(run.transmissions + 1), run.sent_us[0] + limit_us)
        data = flight.repeat(number, now_us, due_us).datagram(number)
        self._link.wake_by(due_us)
        self._link.outputs.statistics.retransmissions += 1
        self._link.transmit(data, len(data))

    def _pump_others(self, now_us: int) -> None:
        while self._others and self._message_room(1):
            message = self._others.popleft()
            self._launch_other(message, now_us)
            self.debt.settle(1, len(message.body))

    def _pump_requests(self, now_us: int) -> None:
        while self._requests and len(self._asked) < self._options.requests_max and self._message_room(1):
            self._launch_other(self._requests.popleft(), now_us)

    def _launch_other(self, message: Other, now_us: int) -> None:
        link = self._link
        number = link.take_index()
        data = datagram(number & INDEX_MASK, link.session_id, message.answers & INDEX_MASK, message.flag, message.body)
        if message.flag & REQ:
            due_us = now_us + min(self.rtt.rto_us, self._options.request_limit_us)
            self._asked.add(number, 1, data, len(data), message.token, now_us, due_us)
            self._note_waiting(number)
            link.wake_by(due_us)
        if message.flag & ACK:
            self._answers.keep(message.answers, data, now_us)
        link.outputs.statistics.messages_sent += 1
        link.transmit(data, len(data))

    def _important_room(self, now_us: int) -> int:
        in_flight, window = len(self._flight), self._options.window
        if in_flight >= window:
            return 0
        room = self._controller.room(in_flight - len(self._lost), now_us)
        return room if room <= window - in_flight else window - in_flight

    def _pump_important(self, now_us: int) -> None:
        while self._queue:
            chunk = self._queue[0]
            start = chunk.done
            wanted = len(chunk.bodies) - start if chunk.body_bytes is not None else 1
            room = min(wanted, self._important_room(now_us), self._link.indices_to_wrap())
            room = self._message_room(room) if room else 0
            if not room:
                return
            bodies = chunk.bodies if room == len(chunk.bodies) else chunk.bodies[start : start + room]
            self._launch(bodies, len(bodies[0]), chunk.token + start, now_us)
            chunk.done += room
            if chunk.done == len(chunk.bodies):
                self._queue.popleft()

    def _launch(self, bodies: Sequence[Buffer], body_bytes: int, token: int, now_us: int) -> None:
        """Sends important messages of one size for the first time."""
        link, count = self._link, len(bodies)
        first = link.take_index(count)
        if count >= RUN_MIN:
            from fairway.protocols.udpc.columns import encode_run

            data = encode_run(first & INDEX_MASK, link.session_id, IMP, bodies, body_bytes)
        else:
            datagrams = [
                datagram((first + position) & INDEX_MASK, link.session_id, 0, IMP, body)
                for position, body in enumerate(bodies)
            ]
            data = datagrams[0] if count == 1 else b"".join(datagrams)
        due_us = now_us + min(self.rtt.rto_us, self._options.important_limit_us)
        if not len(self._flight):
            self._lowest = first
        self._flight.add(first, count, data, HEADER_BYTES + body_bytes, token, now_us, due_us)
        self._note_waiting(first)
        link.wake_by(due_us)
        self._controller.sent(count, now_us)
        link.outputs.statistics.messages_sent += count
        link.transmit(data, HEADER_BYTES + body_bytes, count)

    def _launch_one(self, body: bytes, token: int, now_us: int) -> None:
        """Sends one important message for the first time: `_launch` without what only several need."""
        link, options, flight = self._link, self._options, self._flight
        number = link.take_index()
        data = datagram(number & INDEX_MASK, link.session_id, 0, IMP, body)
        rto_us, limit_us = self.rtt.rto_us, options.important_limit_us
        due_us = now_us + (rto_us if rto_us < limit_us else limit_us)
        if not flight.left:
            self._lowest = number
        flight.add_one(number, data, token, now_us, due_us)
        if number + options.index_run_max < link.index_limit:
            self._note_waiting(number)
        link.wake_us = min(link.wake_us, due_us)
        self._controller.sent(1, now_us)
        link.outputs.statistics.messages_sent += 1
        if link.proved:
            link.outbox.send(link.address, data, len(data))
        else:
            link.transmit(data, len(data))

    # What comes back.

    def acknowledge_oldest(self, ack_index: int, now_us: int) -> bool:
        """Takes the acknowledgement of the oldest packet that waits, if it left once and on its own: the usual case,
        by the shortest way. Otherwise answers no and changes nothing."""
        number, flight = self._lowest, self._flight
        if ack_index != number & INDEX_MASK or self._lost:
            return False
        in_flight = flight.left
        run = flight.acknowledge_one(number)
        if run is None:
            return False
        self._lowest = number + 1
        outputs, token, rtt = self._link.outputs, run.token, self.rtt
        statistics = outputs.statistics
        if now_us != self._sampled_us:
            self._sampled_us = now_us
            rtt.sample(now_us - run.sent_us[0])
            statistics.rtt_us = rtt.smoothed_us
        outputs.report(Delivered(self._link.peer, range(token, token + 1)))
        self.debt.settle(1, run.segment_bytes - HEADER_BYTES)
        statistics.messages_delivered += 1
        self._controller.acknowledged(1, in_flight, rtt.smoothed_us, now_us)
        if self._queue or self._others or self._requests:
            self.pump(now_us)
        return True

    def acknowledge(self, ack_index: int, count: int, now_us: int) -> list[Acknowledged]:
        """Takes acknowledgements of important packets with consecutive indices, and gives those that waited."""
        flight, link = self._flight, self._link
        in_flight = len(flight) - len(self._lost)
        number = widen(ack_index, link.next_index, 32)
        pieces = flight.acknowledge(number, count)
        if not pieces:
            return pieces
        oldest_first = number == self._lowest
        if oldest_first:
            self._lowest = number + count
        total = 0
        for run, first, length in pieces:
            total += length
            self._sample(run, now_us)
            self._unlose(first, length)
            token = run.token + first - run.first
            link.outputs.report(Delivered(link.peer, range(token, token + length)))
            self.debt.settle(length, length * (run.segment_bytes - HEADER_BYTES))
        link.outputs.statistics.messages_delivered += total
        self._controller.acknowledged(total, in_flight, self.rtt.smoothed_us, now_us)
        if not oldest_first:
            self._repair_overtaken(now_us)
        if self._lost or self._queue or self._others or self._requests:
            self.pump(now_us)
        return pieces

    def in_order(self, ack_index: int) -> bool:
        """Tells whether the acknowledgement is for the oldest packet and nothing waits to be repaired.

        Then a run of them overtakes nothing, and taking it as a whole does what taking it one by one does.
        """
        number = widen(ack_index, self._link.next_index, 32)
        if self._lost:
            return False
        if number != self._lowest:
            self._lowest = self._flight.oldest() or 0
        return number == self._lowest and number in self._flight

    def _unlose(self, first: int, count: int) -> None:
        if self._lost:
            for number in range(first, first + count):
                self._lost.pop(number, None)

    def _sample(self, run: Run, now_us: int) -> None:
        """Measures the round trip, once an instant, so that a batch weighs as much as its datagrams one by one."""
        if run.transmissions > 1:
            self.rtt.ambiguous(now_us - run.sent_us[0])
        elif now_us != self._sampled_us:
            self.sample(now_us - run.sent_us[0], now_us)

    def sample(self, rtt_us: int, now_us: int) -> None:
        """Takes a measured round trip."""
        self._sampled_us = now_us
        self.rtt.sample(rtt_us)
        self._link.outputs.statistics.rtt_us = self.rtt.smoothed_us

    def _repair_overtaken(self, now_us: int) -> None:
        """Repeats packets that three later ones overtook, at once: the window has seen them leave."""
        for number in self._flight.overtaken():
            run = self._flight.find(number)
            if run is not None:
                self._controller.lost(run.sent_us[-1], now_us)
                self._link.outputs.statistics.repairs += 1
                self._repeat_important(number, now_us)

    def request_open(self, ack_index: int) -> int | None:
        """Gives the wide index of the open request that an ACK names, or None."""
        number = widen(ack_index, self._link.next_index, 32)
        return number if number in self._asked else None

    def answered(self, request: int, now_us: int) -> int:
        """Takes off a request whose response came, and gives its token."""
        (piece,) = self._asked.acknowledge(request)
        self.debt.settle(1, piece.run.segment_bytes - HEADER_BYTES)
        self._link.outputs.statistics.messages_delivered += 1
        if self._requests or self._queue or self._others:
            self.pump(now_us)
        return piece.run.token

    # Time.

    def wake(self, now_us: int) -> None:
        """Repeats or gives up what is due, then sends what may leave."""
        for run in self._flight.pop_due(now_us):
            self._time_out(run, now_us)
        for run in self._asked.pop_due(now_us):
            self._time_out_request(run, now_us)
        self.pump(now_us)

    def _time_out_request(self, run: Run, now_us: int) -> None:
        if now_us >= run.sent_us[0] + self._options.request_limit_us:
            self._give_up(self._asked, run, "no response in time")
        else:
            self._repeat(self._asked, run.first, self._options.request_limit_us, now_us)

    def _time_out(self, run: Run, now_us: int) -> None:
        give_up_us = run.sent_us[0] + self._options.important_limit_us
        if now_us >= give_up_us:
            self._give_up(self._flight, run, "no acknowledgement in time")
            return
        self._controller.timed_out(run.sent_us[-1], now_us)
        for number in run.waiting():
            self._lost[number] = None
        self._flight.postpone(run, give_up_us)

    def _give_up(self, flight: Flight, run: Run, reason: str) -> None:
        numbers = list(run.waiting())
        tokens = [run.token + number - run.first for number in numbers]
        for number in numbers:
            self._lost.pop(number, None)
            flight.drop(number)
        self._unknown(tokens, len(tokens) * (run.segment_bytes - HEADER_BYTES), reason)

    def _unknown(self, tokens: Sequence[int], body_bytes: int, reason: str) -> None:
        link = self._link
        link.outputs.statistics.messages_unknown += len(tokens)
        link.outputs.report(DeliveryUnknown(link.peer, tokens, reason))
        self.debt.settle(len(tokens), body_bytes)

    def due_us(self) -> int:
        """Tells when `wake` has something to do."""
        dues = (self._flight.next_due_us(), self._asked.next_due_us())
        return min(self._paced_us, *(due_us for due_us in dues if due_us is not None), NEVER)

    # The end.

    def idle(self) -> bool:
        """Tells whether all important packets are acknowledged and none waits to be sent."""
        return not len(self._flight) and not self._queue

    def fail_requests(self, reason: str) -> None:
        """Ends all requests: unknown if they were ever sent, else refused."""
        self.debt.full = False
        self._end_flight(self._asked, reason)
        while self._requests:
            message = self._requests.popleft()
            self._refuse(range(message.token, message.token + 1), len(message.body))

    def fail(self, reason: str) -> None:
        """Ends everything that waits."""
        self.fail_requests(reason)
        self._end_flight(self._flight, reason)
        self._lost.clear()
        while self._queue:
            chunk = self._queue.popleft()
            self._refuse(chunk.left(), sum(map(len, chunk.bodies[chunk.done :])))
        while self._others:
            message = self._others.popleft()
            self.debt.settle(1, len(message.body))

    def _end_flight(self, flight: Flight, reason: str) -> None:
        for number in flight.waiting():
            run = flight.drop(number)
            if run is not None:
                self._unknown((run.token,), len(run.data) - HEADER_BYTES, reason)

    def _refuse(self, tokens: range, body_bytes: int) -> None:
        link = self._link
        link.outputs.statistics.messages_refused += len(tokens)
        link.outputs.report(Refused(link.peer, tokens, NOT_SENT))
        self.debt.settle(len(tokens), body_bytes)
