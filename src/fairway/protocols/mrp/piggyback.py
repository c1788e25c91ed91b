"""A connection in the piggyback layout: every packet says up to where everything has arrived.

An acknowledgement names no packet, so the loss recovery works by the mark: it moves, or three answers in a row repeat
it. Each arriving message is answered on its own: by data where data is waiting, else by a bare acknowledgement.
Deferred, the answer leaves at the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairway.core.events import Peer
from fairway.core.receipts import Piece
from fairway.core.recovery.marks import MarkRecovery
from fairway.core.serial import widen
from fairway.protocols.mrp import wire
from fairway.protocols.mrp.connection import Connection, Shared
from fairway.protocols.mrp.options import PIGGYBACK

if TYPE_CHECKING:
    from fairway.protocols.mrp.columns import Rows


class PiggybackConnection(Connection):
    """A connection whose packets carry the highest sequence received with none missing below."""

    __slots__ = ("_due", "_marks")
    layout = PIGGYBACK
    ver = wire.VER_PIGGYBACK
    header_bytes = wire.PIGGYBACK_BYTES
    recovery = MarkRecovery

    def __init__(self, shared: Shared, peer: Peer, remote: int, client: bool, now_us: int) -> None:
        super().__init__(shared, peer, remote, client, now_us)
        self._data_out = wire.piggyback_prefix(self.local, remote)
        self.data_in = wire.piggyback_prefix(remote, self.local)
        assert isinstance(self.sender.recovery, MarkRecovery)
        self._marks = self.sender.recovery
        self._due: list[int] = []
        """The from_seq of each answer that is due while data is waiting to carry it."""

    # Sending.

    def _second(self, now_us: int) -> int:
        return self._from_seq()

    def _from_seq(self) -> int:
        receiver = self.receiver
        return ((receiver.committed_to if self._shared.options.deferred else receiver.next) - 1) % wire.TURN

    def _presence(self) -> bytes:
        return self._bare(self._from_seq())

    def _bare(self, from_seq: int) -> bytes:
        return self._data_out + wire.pair((self.sender.next - 1) % wire.TURN, from_seq)

    def flush(self, now_us: int) -> None:
        """Send what may leave now; each new packet that leaves is one of the answers due."""
        if self._due:
            self._retransmit(now_us)
            by_data = self.sender.may_leave(now_us)
            due, self._due = self._due, []
            self._answer(due[: max(0, len(due) - by_data)], now_us)
        super().flush(now_us)

    def _answer(self, from_seqs: Sequence[int], now_us: int) -> None:
        for from_seq in from_seqs:
            self._transmit(self._bare(from_seq), wire.PIGGYBACK_BYTES, now_us)

    # Packets that arrive.

    def take(self, datagram: bytes, size: int, now_us: int) -> bool:
        sequence, from_seq = wire.pair_at(datagram, wire.PIGGYBACK_HEAD_BYTES)
        # At or above the last acknowledged number, else an old one.
        acknowledged = widen(from_seq, self.sender.base - 1, 16)
        if acknowledged >= self.sender.next:
            self._shared.drop("acknowledges_unsent")
            return True
        self.hear(now_us)
        self._take_answer(acknowledged, now_us)
        body = wire.body_of(datagram, wire.PIGGYBACK_BYTES)
        if body:
            self._take_message(self.receiver.widen(sequence), body, b"", now_us)
        return True

    def _take_answer(self, acknowledged: int, now_us: int) -> None:
        sender = self.sender
        ping = next((ping for ping in reversed(self.pings.waiting) if ping.mark is not None), None)
        if ping is not None:
            self.pings.answered(ping, now_us)
        if acknowledged >= sender.base:
            self._advance(acknowledged, now_us)
        elif acknowledged == sender.base - 1:
            self._marks.repeated(sender.packets, now_us)
            if sender.recovery.has_lost:
                self.mark_ready(now_us)

    def _advance(self, acknowledged: int, now_us: int) -> None:
        """Take off everything up to the acknowledged number."""
        sender, mark = self.sender, acknowledged + 1
        # What was sent before a restart may be acknowledged for that, so it measures nothing.
        prompt = mark > sender.silent_below
        self._delivered(self._marks.acknowledge_to(sender.packets, mark, now_us, prompt=prompt), now_us)

    def _answer_message(self, note: bytes, now_us: int) -> None:
        self._owe((self._from_seq(),), now_us)

    def _owe(self, from_seqs: Sequence[int], now_us: int) -> None:
        """Answer at once, or leave it to the data that is waiting."""
        if self.sender.waiting.messages:
            self._due.extend(from_seqs)
            self.mark_ready(now_us)
        else:
            self._answer(from_seqs, now_us)

    def take_run(self, rows: Rows, now_us: int) -> bool:
        from fairway.protocols.mrp import columns

        count, size = len(rows), rows.itemsize - wire.PIGGYBACK_BYTES
        if self.pings.waiting:
            return False
        if not size:
            return self._take_answers(columns.run_start(columns.seconds(rows)), count, now_us)
        sequence = columns.run_start(columns.firsts(rows))
        if sequence is None or self.closing is not None or self.sender.backlog.messages:
            return False
        first, known = self.receiver.widen(sequence), (self.sender.base - 1) % wire.TURN
        if columns.seconds(rows) != wire.number(known) * count or not self.receiver.fits_run(first, count, size):
            return False
        self.hear(now_us)
        self.receiver.take_run(count, size, b"")
        if not self._shared.options.deferred:
            bare = columns.bare_acks(self._data_out, known, first, count)
            self._transmit(bare, wire.PIGGYBACK_BYTES, now_us, count)
        self._deliver_run(first, columns.bodies_of(rows))
        return True

    def _take_answers(self, from_seq: int | None, count: int, now_us: int) -> bool:
        """Take bare acknowledgements each of which moves on by one."""
        sender = self.sender
        if from_seq != sender.base % wire.TURN:
            return False
        runs = sender.recovery.left_in_order(sender.packets, sender.base, count)
        if not runs:
            return False
        self.hear(now_us)
        for _, first, length in runs:
            self._advance(first + length - 1, now_us)
        return True

    def _acknowledge(self, committed: Sequence[Piece], before: int, now_us: int) -> None:
        """Answer each message as if they had been committed one by one in order. Below a message that is delivered
        and not yet committed there is nothing to say; below a missing one the equal answers ask for it."""
        count = sum(piece.length for piece in committed)
        if self.receiver.committed_to > before:
            passed = range(before, before + count - 1)
            self._owe([*(number % wire.TURN for number in passed), self._from_seq()], now_us)
        elif before == self.receiver.next:
            self._owe([self._from_seq()] * count, now_us)
