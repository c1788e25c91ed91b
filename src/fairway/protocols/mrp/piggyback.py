"""A connection in the piggyback layout: every packet says up to where everything has arrived.

An acknowledgement names no packet, so one timer serves the oldest one only, and a repair is due when three answers in
a row say the same while later packets are out. An answer that moves on, but not past what was out when a repair left,
shows that the packet it now asks for was lost as well. Each arriving message is answered on its own: by data where
data is waiting, else by a bare acknowledgement. Deferred, the answer leaves at the commit.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairway.core.events import Peer
from fairway.core.machine import Buffer
from fairway.protocols.mrp import wire
from fairway.protocols.mrp.connection import Connection
from fairway.protocols.mrp.options import PIGGYBACK
from fairway.protocols.mrp.receiver import COPY, DROP_REASONS, HELD_COPY, NEW
from fairway.protocols.mrp.shared import Shared
from fairway.protocols.mrp.snapshots import Snapshot

NUMPY_FROM = 8
"""Fewer datagrams than this are made faster one by one."""
SAME_ANSWERS = 3
_TURN = 65_536
_HALF = 32_768
_NEVER_US = 1 << 62
"""The timer of single packets in the flight, which this layout does not use."""


class PiggybackConnection(Connection):
    """A connection whose packets carry the highest sequence received with none missing below."""

    __slots__ = ("_due", "_guessed", "_in", "_out", "_owed", "_recover", "_repair_base", "_same")
    layout = PIGGYBACK
    ver = wire.VER_PIGGYBACK
    header_bytes = wire.PIGGYBACK_BYTES

    def __init__(self, shared: Shared, peer: Peer, remote: int, client: bool, now_us: int) -> None:
        super().__init__(shared, peer, remote, client, now_us)
        self._out = wire.piggyback_prefix(self.local, remote)
        self._in = wire.piggyback_prefix(remote, self.local)
        self._due: int | None = None
        """When the oldest packet in flight is to be repeated."""
        self._same = 0
        """How many answers in a row said the same."""
        self._recover = 0
        """The first number that was not yet out when the latest round of repairs began."""
        self._guessed = 0
        """The first number that was not yet out when repeats were last timed by a guess. Those before it may all have
        arrived, and their copies bring answers that say the same; so nothing is concluded from these."""
        self._repair_base = False
        self._owed: list[int] = []
        """The from_seq of each answer that is owed while data is waiting to carry it."""

    def _from_seq(self) -> int:
        receiver = self.receiver
        return ((receiver.floor if self._shared.options.deferred else receiver.next) - 1) % _TURN

    # Sending.

    def _datagrams(self, bodies: Sequence[bytes], now_us: int) -> bytes:
        first, from_seq = self.sender.next, self._from_seq()
        if len(bodies) < NUMPY_FROM:
            tails = (wire.pair(number % _TURN, from_seq) for number in range(first, first + len(bodies)))
            return b"".join([self._out + tail + body for tail, body in zip(tails, bodies, strict=True)])
        from fairway.protocols.mrp import columns

        return columns.datagrams_of(self._out, first, from_seq, bodies)

    def _again(self, datagram: Buffer, now_us: int) -> bytes:
        return wire.with_from_seq(datagram, self._from_seq())

    def _presence(self) -> bytes:
        return self._bare(self._from_seq())

    def _bare(self, from_seq: int) -> bytes:
        return self._out + wire.pair((self.sender.next - 1) % _TURN, from_seq)

    def _due_us(self, now_us: int) -> int:
        if self._due is None:
            self._due = now_us + self.sender.resend.delay_us
        return _NEVER_US

    def _timer_us(self) -> int | None:
        return self._due

    def flush(self, now_us: int) -> None:
        """Sends what may leave now; each packet that leaves is one of the answers owed."""
        if self._owed:
            by_data = self.sender.may_leave(now_us)
            owed, self._owed = self._owed, []
            self._answer(owed[: max(0, len(owed) - by_data)], now_us)
        super().flush(now_us)

    def _answer(self, from_seqs: Sequence[int], now_us: int) -> None:
        for from_seq in from_seqs:
            self._transmit(self._bare(from_seq), wire.PIGGYBACK_BYTES, now_us)

    def _repair(self, now_us: int) -> int:
        if self._repair_base:
            self._repair_base = False
            run = self.sender.flight.find(self.sender.base)
            assert run is not None
            self.sender.controller.lost(run.sent_us[-1], now_us)
            self._repeat_base(now_us)
            self._shared.statistics.repairs += 1
        return 0

    def _repeat_base(self, now_us: int) -> None:
        self._repeat(self.sender.base, now_us)
        self._restart_timer(now_us)

    def _restart_timer(self, now_us: int) -> None:
        run = self.sender.flight.find(self.sender.base) if self.sender.flight else None
        self._due = None if run is None else now_us + self.sender.resend.delay_after_us(run.transmissions)

    def _run_timers(self, now_us: int) -> None:
        """Repeats the oldest packet and, as far as the controller lets them into an empty network, those after it
        that were sent least often: the peer may hold the oldest without having committed it."""
        sender = self.sender
        if self._due is None or now_us < self._due:
            return
        run = sender.flight.find(sender.base)
        assert run is not None
        sender.controller.timed_out(run.sent_us[-1], now_us)
        if sender.resend.ping_us:
            self._recover = sender.next
        else:
            self._guessed = sender.next
        others = sorted(sender.flight.waiting()[1:], key=self._transmissions)
        self._repeat_base(now_us)
        for number in others[: max(0, sender.controller.room(1, now_us))]:
            self._repeat(number, now_us)

    def _transmissions(self, number: int) -> int:
        run = self.sender.flight.find(number)
        return 0 if run is None else run.transmissions

    def revive(self, snapshot: Snapshot, now_us: int) -> None:
        super().revive(snapshot, now_us)
        self._due = now_us if self.sender.flight else None

    # Packets that arrive.

    def take_data(self, datagram: bytes, sequence: int, field: int, now_us: int) -> None:
        acknowledged = self._widen_from_seq(field)
        if acknowledged >= self.sender.next:
            self._shared.drop("acknowledges_unsent")
            return
        self.hear(now_us)
        self._take_answer(acknowledged, now_us)
        body = wire.body_of(datagram, wire.PIGGYBACK_BYTES)
        if body:
            self._take_message(self.receiver.widen(sequence), body, now_us)

    def _widen_from_seq(self, from_seq: int) -> int:
        """Gives the number that from_seq stands for: at or above the last acknowledged one, else an old one."""
        last = self.sender.base - 1
        ahead = (from_seq - last) % _TURN
        return last + ahead if ahead < _HALF else last + ahead - _TURN

    def _take_answer(self, acknowledged: int, now_us: int) -> None:
        sender = self.sender
        probe = next((probe for probe in reversed(self._probes) if probe.number is not None), None)
        if probe is not None:
            self._answered(probe, now_us)
        if not sender.flight or acknowledged < sender.base - 1:
            return
        if acknowledged >= sender.base:
            self._advance(acknowledged, now_us)
        elif len(sender.flight) > 1 and sender.base > self._guessed:
            self._same += 1
            if self._same == SAME_ANSWERS:
                self._recover = sender.next
                self._repair_base = True
                self.touch()

    def _advance(self, acknowledged: int, now_us: int) -> None:
        """Takes off everything up to the acknowledged number."""
        sender = self.sender
        pieces = sender.flight.acknowledge(sender.base, acknowledged - sender.base + 1)
        guessed = not sender.resend.ping_us
        if all(piece.run.transmissions == 1 for piece in pieces):
            sender.resend.sample(pieces[-1].run.sent_us[0], now_us)
        else:
            sender.resend.ambiguous(now_us - pieces[-1].run.sent_us[0])
        for piece in pieces:
            if not guessed:  # else the repeats came too early as likely as late
                sender.resend.lost(piece.run.transmissions - 1)
            sender.resend.arrived(piece.count)
        self._delivered(pieces, now_us)
        sender.flight.next_due_us()
        self._same = 1 if len(sender.flight) > 1 else 0
        self._restart_timer(now_us)
        self._repair_base = bool(sender.flight) and sender.base < self._recover

    def _take_message(self, number: int, body: bytes, now_us: int) -> None:
        verdict = self.receiver.judge(number, len(body))
        if verdict == NEW and self.closing is None:
            self._take_new(number, body, now_us)
        elif verdict == NEW:
            self._shared.drop("closing")
        elif verdict == COPY:
            self._shared.statistics.duplicates += 1
            self._owe((self._from_seq(),), now_us)
        elif verdict == HELD_COPY:
            self._shared.statistics.duplicates += 1
        else:
            self._shared.drop(DROP_REASONS[verdict])

    def _take_new(self, number: int, body: bytes, now_us: int) -> None:
        if self._shared.options.deferred:
            self.receiver.offer(number, len(body), b"")
            self._hand_over(number, body)
            return
        for ready, message in self.receiver.take(number, body):
            self._hand_over(ready, message)
        self._owe((self._from_seq(),), now_us)

    def _owe(self, from_seqs: Sequence[int], now_us: int) -> None:
        """Answers at once, or leaves it to the data that is waiting."""
        if self.sender.queue:
            self._owed.extend(from_seqs)
            self.touch()
        else:
            self._answer(from_seqs, now_us)

    def take_run(self, data: bytes, count: int, segment_bytes: int, now_us: int) -> bool:
        from fairway.protocols.mrp import columns

        rows = columns.rows_of(data, count, segment_bytes, self._in)
        if rows is None or self._probes:
            return False
        if segment_bytes == wire.PIGGYBACK_BYTES:
            return self._take_answers(columns.run_start(columns.seconds(rows)), count, now_us)
        sequence, size = columns.run_start(columns.firsts(rows)), segment_bytes - wire.PIGGYBACK_BYTES
        if sequence is None or self.closing is not None or self.sender.messages:
            return False
        first, known = self.receiver.widen(sequence), (self.sender.base - 1) % _TURN
        if columns.seconds(rows) != wire.number(known) * count or not self.receiver.fits_run(first, count, size):
            return False
        self.hear(now_us)
        self.receiver.take_run(count, size, b"")
        if not self._shared.options.deferred:
            bare = columns.bare_acks(self._out, known, first, count)
            self._transmit(bare, wire.PIGGYBACK_BYTES, now_us, count)
        self._hand_over_run(first, columns.bodies_of(rows))
        return True

    def _take_answers(self, from_seq: int | None, count: int, now_us: int) -> bool:
        """Takes bare acknowledgements each of which moves on by one."""
        sender = self.sender
        if from_seq is None or from_seq != sender.base % _TURN:
            return False
        stretches = sender.stretches(sender.base, count)
        if stretches is None:
            return False
        self.hear(now_us)
        for _, length in stretches:
            self._advance(sender.base + length - 1, now_us)
        return True

    def _acknowledge(self, count: int, acks: Sequence[bytes], floor: int, now_us: int) -> None:
        """Answers each message as if they had been committed one by one in order. Below a message that is handed over
        and not yet committed there is nothing to say; below a missing one the equal answers ask for it."""
        if self.receiver.floor > floor:
            passed = range(floor, floor + count - 1)
            self._owe([*(number % _TURN for number in passed), self._from_seq()], now_us)
        elif floor == self.receiver.next:
            self._owe([self._from_seq()] * count, now_us)
