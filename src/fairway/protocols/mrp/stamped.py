"""A connection in the stamped layout: one acknowledgement names one packet, its stamp one transmission of it.

The stamp is the sender's millisecond clock at the transmission, so it need not be stored: it follows from the time at
which the loss recovery says that the transmission left. Two transmissions within one millisecond share a stamp, and the
earlier one is meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairway.core.events import Peer
from fairway.core.receipts import Piece
from fairway.core.recovery.recovery import Recovery
from fairway.core.recovery.runs import Acknowledged, Run
from fairway.protocols.mrp import wire
from fairway.protocols.mrp.connection import Connection, Shared
from fairway.protocols.mrp.options import STAMPED

if TYPE_CHECKING:
    from fairway.protocols.mrp.columns import Rows


def stamp_at(time_us: int) -> int:
    """Return the stamp of a transmission: milliseconds modulo 65,536, and 1 for 0.

    An ack of sequence 0 with stamp 0 is how a client says that it is there. No packet has stamp 0, so that it
    acknowledges none.
    """
    return time_us // 1_000 % wire.TURN or 1


class StampedConnection(Connection):
    """A connection whose packets carry stamps."""

    __slots__ = ("_ack_out", "ack_in")
    layout = STAMPED
    ver = wire.VER_STAMPED
    header_bytes = wire.STAMPED_BYTES
    recovery = Recovery

    def __init__(self, shared: Shared, peer: Peer, remote: int, client: bool, now_us: int) -> None:
        super().__init__(shared, peer, remote, client, now_us)
        self._data_out = wire.stamped_prefix(wire.TYPE_DATA, remote, self.local)
        self.data_in = wire.stamped_prefix(wire.TYPE_DATA, self.local, remote)
        self._ack_out = wire.stamped_prefix(wire.TYPE_ACK, remote, self.local)
        self.ack_in = wire.stamped_prefix(wire.TYPE_ACK, self.local, remote)

    # Sending.

    def _second(self, now_us: int) -> int:
        return stamp_at(now_us)

    def _presence(self) -> bytes:
        return self._ack_out + wire.pair(0, 0)

    @property
    def heads(self) -> tuple[bytes, ...]:
        return self.data_in, self.ack_in

    def take(self, datagram: bytes, size: int, now_us: int) -> bool:
        sequence, stamp = wire.pair_at(datagram, wire.STAMPED_HEAD_BYTES)
        if datagram[3] == wire.TYPE_DATA:
            self.take_data(datagram, sequence, now_us)
        elif size == wire.ACK_BYTES:
            self.take_ack(sequence, stamp, now_us)
        else:
            return False
        return True

    # Acknowledgements that arrive.

    def take_ack(self, sequence: int, stamp: int, now_us: int) -> None:
        sender = self.sender
        number = sender.base + (sequence - sender.base) % wire.TURN
        run = sender.packets.find(number)
        if run is None or (transmission := _transmission(run, stamp)) is None:
            self._take_other_ack(sequence, stamp, now_us)
            return
        self.heard_us = self.active_us = now_us
        alone = sender.recovery.acknowledge_one(sender.packets, number, now_us)
        if alone is not None:
            self._settle(alone, alone.first, 1)
            self._resume(now_us)
        else:
            self._delivered(sender.recovery.acknowledge(sender.packets, number, 1, now_us, transmission), now_us)

    def _take_other_ack(self, sequence: int, stamp: int, now_us: int) -> None:
        """Take an acknowledgement of nothing outstanding: of a keepalive or ping, or a client's empty first packet."""
        for ping in self.pings.waiting:
            number = ping.mark
            if isinstance(number, int) and (number % wire.TURN, stamp_at(ping.sent_us)) == (sequence, stamp):
                self.hear(now_us)
                self.sender.timing.sample(self.pings.answered(ping, now_us))
                self._shared.statistics.rtt_us = self.sender.timing.smoothed_us
                return
        if sequence == 0 and stamp == 0:
            self.hear(now_us)
        else:
            self._shared.drop("stale_ack")

    def take_acks(self, rows: Rows, now_us: int) -> bool:
        """Take a batch of acknowledgements in order as a whole, or change nothing and return False."""
        from fairway.protocols.mrp import columns

        sequence = columns.run_start(columns.firsts(rows))
        if sequence is None:
            return False
        sender, count = self.sender, len(rows)
        number = sender.base + (sequence - sender.base) % wire.TURN
        runs = sender.recovery.left_in_order(sender.packets, number, count)
        if not runs or not _stamps_fit(runs, columns.seconds(rows)):
            return False
        self.hear(now_us)
        self._delivered(sender.recovery.acknowledge(sender.packets, number, count, now_us, 0), now_us)
        return True

    # Data that arrives.

    def take_data(self, datagram: bytes, sequence: int, now_us: int) -> None:
        self.heard_us = self.active_us = now_us
        number, ack = self.receiver.widen(sequence), self._ack_out + wire.echoed(datagram)
        body = wire.body_of(datagram, wire.STAMPED_BYTES)
        if self.closing is None and self.receiver.take_next(number, len(body)):
            self._shared.outbox.send(self.address, ack, wire.ACK_BYTES)
            self._deliver(number, body)
        else:
            self._take_message(number, body, ack, now_us)

    def _answer_message(self, note: bytes, now_us: int) -> None:
        self._shared.outbox.send(self.address, note, wire.ACK_BYTES)

    def take_run(self, rows: Rows, now_us: int) -> bool:
        from fairway.protocols.mrp import columns

        sequence = columns.run_start(columns.firsts(rows))
        if sequence is None or self.closing is not None:
            return False
        first, count, size = self.receiver.widen(sequence), len(rows), rows.itemsize - wire.STAMPED_BYTES
        if not self.receiver.fits_run(first, count, size):
            return False
        self.hear(now_us)
        acks = columns.stamped_acks(rows, self._ack_out)
        deferred = self._shared.options.deferred
        self.receiver.take_run(count, size, acks if deferred else b"")
        if not deferred:
            self._shared.outbox.send(self.address, acks, wire.ACK_BYTES, count)
        self._deliver_run(first, columns.bodies_of(rows))
        return True

    def _acknowledge(self, committed: Sequence[Piece], before: int, now_us: int) -> None:
        for piece in committed:
            self._shared.outbox.send(self.address, piece.note, wire.ACK_BYTES, piece.length)


def _stamps_fit(runs: Sequence[Acknowledged], stamps: bytes) -> bool:
    """Return whether each acknowledgement carries the stamp of the only transmission of its packet."""
    expected = [wire.number(stamp_at(run.sent_us[0])) * length for run, _, length in runs]
    return stamps == b"".join(expected)


def _transmission(run: Run, stamp: int) -> int | None:
    """Return which transmission of a packet carried the stamp."""
    if (run.sent_us[0] // 1_000 % wire.TURN or 1) == stamp:
        return 0
    return next((at for at, sent_us in enumerate(run.sent_us) if stamp_at(sent_us) == stamp), None)
