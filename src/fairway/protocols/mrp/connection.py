"""One mrp connection, as far as its two layouts agree: sending, keepalive, the end.

Inputs change state and mark the connection as touched; `flush` then sends what may leave, retransmissions first, and
the answers that are due, so that a batch of acknowledgements makes room for one batch of new packets and not for many
single ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from fairway.core.conversations import Conversation
from fairway.core.events import NO_ACKNOWLEDGEMENT, Closed, CloseReason, MessageReceived, MessagesReceived, Peer
from fairway.core.machine import Buffer
from fairway.core.outputs import Outputs
from fairway.core.pings import Pings
from fairway.core.receipts import Piece
from fairway.core.recovery.recovery import Recovery
from fairway.core.recovery.runs import NEVER, Acknowledged, Run
from fairway.core.statistics import CLOSING
from fairway.protocols.mrp import wire
from fairway.protocols.mrp.options import STAMPED, MrpOptions
from fairway.protocols.mrp.receiver import DROP_REASONS, DUPLICATE, HELD_DUPLICATE, NEW, KeptSlots, Receiver
from fairway.protocols.mrp.sender import Sender
from fairway.protocols.mrp.snapshot import Snapshot

if TYPE_CHECKING:
    from fairway.protocols.mrp.columns import Rows

NUMPY_FROM = 8
"""Fewer datagrams than this are made faster one by one."""


class Shared:
    """One per machine, for all its connections."""

    def __init__(self, options: MrpOptions, outputs: Outputs[Connection]) -> None:
        self.options = options
        self.outputs = outputs
        self.statistics = outputs.statistics
        self.outbox = outputs.outbox
        self.drop = outputs.drop
        self.slots = KeptSlots(options)
        self.forget: Callable[[Connection], None]
        """Takes a connection that has ended out of the machine's tables."""


class Connection(Conversation, ABC):
    """One connection of a machine, open until `ended`."""

    __slots__ = (
        "_data_out", "_leave_us", "_shared", "active_us", "address", "client", "data_in", "ended", "heard_us", "local",
        "pings", "presence_us", "receiver", "remote", "sender",
    )  # fmt: skip
    layout: ClassVar[str]
    ver: ClassVar[int]
    recovery: ClassVar[type[Recovery]]
    """By packet, or by a mark below which all has arrived."""

    def __init__(self, shared: Shared, peer: Peer, remote: int, client: bool, now_us: int) -> None:
        super().__init__(peer)
        options = shared.options
        self._shared = shared
        self.address = peer.address
        self.local = peer.local
        self.remote = remote
        self.client = client
        """Whether this side opened the connection."""
        self._data_out = self.data_in = b""
        """What all data begins with, up to the sequence."""
        self.sender = Sender(self, options, shared.outputs, self.recovery)
        self.receiver = Receiver(options.first_sequence, options.window, options.deferred, shared.slots)
        self.heard_us = now_us
        self.active_us = now_us
        self.presence_us = NEVER
        """When the peer must have got a packet with its id, if no data goes there first."""
        self._leave_us = NEVER
        self.pings = Pings(shared.outputs, peer, options.ping_timeout_us, options.pings_max)
        """Marked by the number of the acknowledged packet that was repeated; None where the connect was."""
        self.ended = False

    # What the layouts say differently.

    @abstractmethod
    def _second(self, now_us: int) -> int:
        """Return what data that leaves now says beside its sequence: its stamp, or the from_seq."""

    @abstractmethod
    def _presence(self) -> bytes:
        """Return a packet that carries the peer's id and no message."""

    @property
    def heads(self) -> tuple[bytes, ...]:
        """How data of the other side begins, and acks where there are any."""
        return (self.data_in,)

    @abstractmethod
    def take(self, datagram: bytes, size: int, now_us: int) -> bool:
        """Take one datagram that begins with one of the heads; return whether it has a size that it may have."""

    @abstractmethod
    def take_run(self, rows: Rows, now_us: int) -> bool:
        """Take a batch of new data packets in order as a whole, or return False and change nothing."""

    @abstractmethod
    def _answer_message(self, note: bytes, now_us: int) -> None:
        """Acknowledge one message; `note` is what the layout needs for that."""

    @abstractmethod
    def _acknowledge(self, committed: Sequence[Piece], before: int, now_us: int) -> None:
        """Send what a commit releases; `before` is up to where all was committed before."""

    # Sending.

    def _datagrams(self, bodies: Sequence[bytes], now_us: int) -> bytes:
        """Return the datagrams of new messages, which take the next numbers."""
        first, prefix, second = self.sender.next, self._data_out, self._second(now_us)
        if len(bodies) == 1:
            return prefix + wire.pair(first % wire.TURN, second) + bodies[0]
        if len(bodies) < NUMPY_FROM:
            tails = (wire.pair(number % wire.TURN, second) for number in range(first, first + len(bodies)))
            return b"".join([prefix + tail + body for tail, body in zip(tails, bodies, strict=True)])
        from fairway.protocols.mrp import columns

        return columns.datagrams_of(prefix, first, second, bodies)

    def _again(self, datagram: Buffer, now_us: int) -> bytes:
        """Return a datagram as it must be when it leaves again."""
        return wire.renumbered(datagram, self.header_bytes, self._second(now_us))

    def mark_ready(self, now_us: int) -> None:
        self._shared.outputs.ready[self] = now_us

    def flush(self, now_us: int) -> None:
        sender = self.sender
        self._retransmit(now_us)
        while sender.waiting.messages and (most := sender.may_leave(now_us)) > 0:
            self._send(most, now_us)
        self._leave_us = sender.next_leave_us(now_us)
        self._end_if_done()

    def _retransmit(self, now_us: int) -> None:
        recovery = self.sender.recovery
        while (run := recovery.next_retransmission(now_us)) is not None:
            data, size = run.datagrams(), run.segment_bytes
            again = [self._again(data[start : start + size], now_us) for start in range(0, len(data), size)]
            self._transmit(b"".join(again), size, now_us, run.count)

    def _send(self, most: int, now_us: int) -> None:
        sender = self.sender
        token, bodies = sender.waiting.take(most)
        count, segment_bytes = len(bodies), self.header_bytes + len(bodies[0])
        data = self._datagrams(bodies, now_us)
        self._transmit(data, segment_bytes, now_us, count)
        sender.left(count, data, segment_bytes, token, now_us)
        self._shared.statistics.messages_sent += count
        self.presence_us = NEVER

    def _transmit(self, data: bytes, segment_bytes: int, now_us: int, count: int = 1) -> None:
        self.active_us = now_us
        self._shared.outbox.send(self.address, data, segment_bytes, count)

    def _end_if_done(self) -> None:
        if self.closing is not None and not self.sender.backlog.messages:
            self.end(self.closing)

    def _delivered(self, pieces: Sequence[Acknowledged], now_us: int) -> None:
        for run, first, count in pieces:
            self._settle(run, first, count)
        self._resume(now_us)

    def _resume(self, now_us: int) -> None:
        """Have what waits checked again; with nothing left a timer may as well run out for nothing once."""
        sender = self.sender
        sender.advance()
        self._shared.statistics.rtt_us = sender.timing.smoothed_us
        if sender.packets.left or sender.waiting.messages or self.closing is not None:
            self._shared.outputs.ready[self] = now_us

    def _settle(self, run: Run, first: int, count: int) -> None:
        sender = self.sender
        sender.acknowledged(run, first, count)
        body_bytes = count * (run.segment_bytes - self.header_bytes)
        if first >= sender.silent_below:
            token = run.token + first - run.base
            sender.backlog.delivered(range(token, token + count), body_bytes)
        else:
            sender.backlog.settle(count, body_bytes)

    # Receiving.

    def hear(self, now_us: int) -> None:
        self.heard_us = now_us
        self.active_us = now_us

    def _take_message(self, number: int, body: bytes, note: bytes, now_us: int) -> None:
        receiver = self.receiver
        verdict = receiver.judge(number, len(body))
        if verdict == NEW and self.closing is None:
            if self._shared.options.deferred:
                receiver.offer(number, len(body), note)
                self._deliver(number, body)
                return
            ready = receiver.take(number, body)
            self._answer_message(note, now_us)
            for ready_number, ready_body in ready:
                self._deliver(ready_number, ready_body)
        elif verdict in (DUPLICATE, HELD_DUPLICATE):
            self._shared.statistics.duplicates += 1
            if verdict == DUPLICATE:
                self._answer_message(note, now_us)
        else:
            self._shared.drop(DROP_REASONS.get(verdict, CLOSING))

    def _deliver(self, number: int, body: bytes) -> None:
        self._shared.statistics.messages_received += 1
        self._shared.outputs.report(MessageReceived(self.peer, number, body))

    def _deliver_run(self, first: int, bodies: list[bytes]) -> None:
        self._shared.statistics.messages_received += len(bodies)
        self._shared.outputs.report(MessagesReceived(self.peer, first, bodies))

    def commit(self, first: int, count: int, now_us: int) -> None:
        receiver = self.receiver
        if not self._shared.options.deferred:
            if count > 1 or not receiver.receipts.free_one(first):
                receiver.receipts.commit(first, count)
            return
        before, committed = receiver.committed_to, receiver.commit(first, count)
        if committed:
            self._acknowledge(committed, before, now_us)

    # Keepalives.

    def say_present(self, now_us: int) -> None:
        """Send a packet that shows the peer that its id has arrived."""
        self.presence_us = NEVER
        packet = self._presence()
        self._transmit(packet, len(packet), now_us)

    @property
    def can_ping(self) -> bool:
        """Whether there is something that the peer must answer: a server that never sent data has nothing."""
        return self.client or self.sender.last is not None

    def ping(self, token: int, now_us: int) -> None:
        """Send something that the peer must answer.

        A client repeats its connect where the answer to data could not be told from another one.
        """
        if self.client and (self.layout != STAMPED or self.sender.last is None):
            self._call_again(now_us)
            self.pings.start(token, None, now_us)
        else:
            self._probe(token, now_us)
        self.mark_ready(now_us)

    def _call_again(self, now_us: int) -> None:
        """Repeat the connect of a connection that this side opened; the peer sends its first reply again."""
        connect = wire.encode(wire.Connect(ver=self.ver, cl_conid=self.local))
        self._transmit(connect, len(connect), now_us)

    def _probe(self, token: int | None, now_us: int) -> None:
        """Repeat the last acknowledged packet, which every peer must acknowledge."""
        assert self.sender.last is not None
        number, acknowledged = self.sender.last
        datagram = self._again(acknowledged, now_us)
        self._transmit(datagram, len(datagram), now_us)
        self.pings.start(token, number, now_us)

    def hear_reply(self, now_us: int) -> None:
        """Take a duplicate of the con reply: an answer to a ping, or a sign that the peer may not know us yet."""
        self.heard_us = now_us
        self.say_present(now_us)
        unanswered = [ping for ping in self.pings.waiting if ping.mark is None]
        if unanswered:
            self.pings.answered(unanswered[-1], now_us)

    def _keep_alive(self, now_us: int) -> None:
        """Show the peer that this side is there, and make the peer answer: a presence packet gets no answer, so
        a client that never sent data calls again when half the time to be forgotten has passed in silence."""
        if self.sender.recovery.left:
            self.active_us = now_us
        elif self.sender.last is not None:
            self._probe(None, now_us)
        else:
            self.say_present(now_us)
            if 2 * (now_us - self.heard_us) >= self._shared.options.forget_us:
                self._call_again(now_us)

    def _idle_us(self) -> int:
        """Return when the connection will have been idle for too long, if this side then has something to send."""
        if self.sender.last is None and not (self.client and self.sender.next == self.sender.base):
            return NEVER
        return self.active_us + self._shared.options.keepalive_us

    # Time.

    def next_us(self) -> int:
        options = self._shared.options
        due_us = min(
            self.heard_us + options.forget_us,
            self._leave_us,
            self._idle_us(),
            self.presence_us,
            self.sender.recovery.next_us(),
        )
        return min(due_us, self.pings.next_us()) if self.pings.waiting else due_us

    def wake(self, now_us: int) -> None:
        recovery = self.sender.recovery
        if recovery.gives_up(now_us):
            self.end(self.closing or CloseReason.TIMED_OUT, NO_ACKNOWLEDGEMENT)
            return
        if now_us >= self.heard_us + self._shared.options.forget_us:
            self.end(self.closing or CloseReason.FORGOTTEN)
            return
        self.pings.expire(now_us)
        recovery.wake(now_us)
        if now_us >= self.presence_us and not self.sender.may_leave(now_us):
            self.say_present(now_us)
        if now_us >= self._idle_us():
            self._keep_alive(now_us)
        self.mark_ready(now_us)

    def revive(self, snapshot: Snapshot, now_us: int) -> None:
        """Go on from the state of a connection before a restart; what was not acknowledged then is sent again."""
        self.receiver.next = self.receiver.committed_to = snapshot.next
        self.receiver.revive(snapshot.beyond)
        self.sender.revive(snapshot.own_next, snapshot.outstanding, self.header_bytes, now_us)
        self.sender.last = snapshot.last[0] if snapshot.last else None
        for _, datagram in snapshot.outstanding:
            self._transmit(self._again(datagram, now_us), len(datagram), now_us)
        self._shared.statistics.retransmissions += len(snapshot.outstanding)

    # The end.

    def close(self, now_us: int) -> None:
        """End the connection once everything queued and outstanding is acknowledged."""
        self.sender.backlog.close()
        self.mark_ready(now_us)
        self._end_if_done()

    def end(self, reason: CloseReason, outcome: str = "") -> None:
        """Give every open token its outcome, unknown for the reason of the end unless another one is given, and forget
        the peer."""
        if self.ended:
            return
        self.ended = True
        self.pings.end(reason)
        self.sender.end(outcome or reason)
        self.receiver.release()
        self._shared.statistics.conversations_closed += 1
        self._shared.outputs.report(Closed(self.peer, reason))
        self._shared.forget(self)
