"""The mrp machine: many connections on one socket, in two layouts, client and server at once.

*Opening.* A client sends connect, again after 50 ms, doubling up to 1 s, for 5 s. A server answers with con reply and
holds the call half open for 5 s; the first packet with its sv_conid opens the connection and proves the address. So
that there is one, the client sends its first data, or, if none was queued by the time the driver has nothing else to
do, an empty presence packet. A reply has 12 bytes and answers 8: the three-times limit cannot be reached and needs
no ledger.

*Data.* Each message takes the next sequence. The stamped layout (`stamped.py`) acknowledges packet by packet, the
piggyback layout (`piggyback.py`) by the highest sequence with none missing below. Packets ahead of a gap are kept up
to the window. Deferred, messages are delivered as they arrive, with their widened sequence, and acknowledged when
committed.

*Loss* is left to `core.recovery`: a stamp names the transmission that arrived, a from_seq is a mark below which all
has arrived, and the peer needs the lowest packet first. The time-out is 1.5 * ping / (loss + 1). No more than half a
turn of sequences starts within an interval (`sender.py`), and no more than the window lies beyond the oldest
unacknowledged packet.

*Timers of a connection*: those of the recovery; pacing; 10 s without traffic, then the last acknowledged packet is sent
again; 30 s without anything newly acknowledged while something is outstanding, then the connection is dead; 5 minutes
without a valid packet, then it is forgotten.

*Ending.* There is no close packet: a side that closes waits until all it sent is acknowledged and forgets the
connection; from then on it neither delivers nor acknowledges new messages. The peer notices by silence.

Left out: delaying a bare acknowledgement by up to 10 ms in the hope of data. The three equal answers that start a
repair need one answer a packet, and an answer that leaves at once is also the better measure of the ping.

| arrives          | no such connection     | opening (client) | half open (server) | open                      |
|------------------|------------------------|------------------|--------------------|---------------------------|
| connect          | con reply, half open   | -                | same reply again   | same reply again          |
| con reply, stat 1| dropped                | open             | -                  | presence again            |
| con reply, stat 2| dropped                | refused          | -                  | dropped                   |
| data, ack        | dropped                | dropped          | open, then taken   | taken                     |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from fairway.core.errors import BadMessage, MalformedDatagram, NotSupported
from fairway.core.events import Address, CloseReason, Peer, Receipt
from fairway.core.machine import Buffer
from fairway.core.refusals import already_open
from fairway.protocols.mrp import snapshot as snapshots
from fairway.protocols.mrp import wire
from fairway.protocols.mrp.connection import Connection
from fairway.protocols.mrp.handshake import ConnectionMachine
from fairway.protocols.mrp.options import PIGGYBACK
from fairway.protocols.mrp.sender import Sender
from fairway.protocols.mrp.stamped import StampedConnection

if TYPE_CHECKING:
    from fairway.protocols.mrp.columns import Rows

Take = Callable[["Rows", int], bool]
BATCH_FROM = 4
"""Fewer datagrams of one connection in a row are taken one by one."""


class MrpMachine(ConnectionMachine):
    """All mrp connections of one endpoint."""

    name: ClassVar[str] = "mrp"

    def _find(self, peer: Peer) -> Connection | None:
        connection = self._connections.get(peer.local)
        return None if connection is None or connection.peer != peer else connection

    def _sender(self, conversation: Connection) -> Sender:
        return conversation.sender

    def _flush(self, ready: Connection, now_us: int) -> None:
        if not ready.ended:
            ready.flush(now_us)
        if not ready.ended:
            self._deadlines.set(ready, ready.next_us())

    # Datagrams in.

    def receive(self, data: Buffer, address: Address, now_us: int, segment_bytes: int | None = None) -> None:
        datagrams = data if type(data) is bytes else bytes(data)
        size = len(datagrams)
        if segment_bytes is None or size <= segment_bytes:
            self._receive_one(datagrams, size, address, now_us)
            return
        offset = 0
        if segment_bytes >= wire.PIGGYBACK_BYTES:
            while size - offset >= BATCH_FROM * segment_bytes:
                take, prefix = self._taker(datagrams[offset : offset + segment_bytes], segment_bytes, address)
                if take is None:
                    break  # a call that its first packet completes has the others come one by one
                count = self._receive_run(datagrams, offset, take, prefix, address, now_us, segment_bytes)
                offset += count * segment_bytes
        self._receive_each(datagrams, offset, size, address, now_us, segment_bytes)

    def _receive_each(
        self, data: bytes, start: int, end: int, address: Address, now_us: int, segment_bytes: int
    ) -> None:
        for offset in range(start, end, segment_bytes):
            datagram = data[offset : offset + segment_bytes]
            self._receive_one(datagram, len(datagram), address, now_us)

    def _receive_run(
        self, data: bytes, offset: int, take: Take, prefix: bytes, address: Address, now_us: int, segment_bytes: int
    ) -> int:
        """Take the full segments from an offset on that have the prefix, and return how many: as a whole if they are
        plain and not too few."""
        count = 1
        if data.startswith(prefix, offset + (BATCH_FROM - 1) * segment_bytes):
            from fairway.protocols.mrp import columns

            rows = columns.rows_of(data, offset, (len(data) - offset) // segment_bytes, segment_bytes, prefix)
            count = len(rows)
            if count >= BATCH_FROM and take(rows, now_us):
                self.statistics.batches += 1
                self.statistics.datagrams_received += count
                self.statistics.bytes_received += count * segment_bytes
                return count
        self._receive_each(data, offset, offset + count * segment_bytes, address, now_us, segment_bytes)
        return count

    def _taker(self, datagram: bytes, size: int, address: Address) -> tuple[Take | None, bytes]:
        """Return what takes many datagrams like this one, and how all of them begin."""
        connection = self._named(datagram, size, address)
        if connection is None:
            return None, b""
        if isinstance(connection, StampedConnection) and datagram.startswith(connection.ack_in):
            return (connection.take_acks if size == wire.ACK_BYTES else None), connection.ack_in
        return connection.take_run, connection.data_in

    def _receive_one(self, datagram: bytes, size: int, address: Address, now_us: int) -> None:
        statistics = self.statistics
        statistics.datagrams_received += 1
        statistics.bytes_received += size
        connection = self._named(datagram, size, address)
        if connection is None or not connection.take(datagram, size, now_us):
            self._take_other(datagram, size, address, now_us)

    def _take_other(self, datagram: bytes, size: int, address: Address, now_us: int) -> None:
        try:
            packet = wire.decode(datagram)
        except MalformedDatagram as malformed:
            self._outputs.drop(malformed.reason)
            return
        if isinstance(packet, wire.Connect):
            self._take_connect(packet, address, now_us)
        elif isinstance(packet, wire.ConReply):
            self._take_reply(packet, address, now_us)
        elif isinstance(packet, wire.Ignore):
            self._outputs.drop("ignored")
        elif (connection := self._completed(packet, address, now_us)) is not None:
            connection.take(datagram, size, now_us)
        else:
            self._outputs.drop("unknown_connection")

    # Commands.

    def _check_size(self, conversation: Connection, size: int) -> None:
        super()._check_size(conversation, size)
        if size == 0 and conversation.layout == PIGGYBACK:
            raise BadMessage("the piggyback layout of mrp carries no empty message: it would be an acknowledgement")

    def ping(self, peer: Peer, now_us: int) -> int:
        connection = self._open(peer)
        if not connection.can_ping:
            raise NotSupported("an mrp server can ping only after a message of its own was acknowledged")
        token = connection.pings.token()
        connection.ping(token, now_us)
        return token

    def commit(self, receipt: Receipt, now_us: int) -> None:
        connection = self._find(receipt.peer)
        if connection is not None and isinstance(receipt.first, int):
            connection.commit(receipt.first, receipt.count, now_us)

    def _close(self, conversation: Connection, reason: CloseReason, now_us: int) -> None:
        conversation.close(now_us)

    # What survives a restart.

    def peers(self) -> list[Peer]:
        return [connection.peer for connection in self._connections.values()]

    def snapshot(self, peer: Peer, committing: Sequence[Receipt] = ()) -> bytes:
        connection = self._known(peer)
        receiver, sender = connection.receiver, connection.sender
        ours = [receipt for receipt in committing if receipt.peer == peer]
        first_missing, beyond = receiver.survives(ours)
        return snapshots.pack(
            snapshots.Snapshot(
                address=connection.address,
                layout=connection.layout,
                client=connection.client,
                local=connection.local,
                remote=connection.remote,
                next=first_missing,
                beyond=[(number, receiver.ahead.get(number, b"")) for number in beyond],
                own_next=sender.next,
                outstanding=sender.outstanding(),
                last=[] if sender.last is None else [sender.last],
            )
        )

    def restore(self, snapshot: bytes, now_us: int) -> Peer:
        taken = snapshots.unpack(snapshot)
        if self._is_taken(taken.local):
            raise already_open(taken.address)
        session = taken.remote if taken.client else taken.local
        peer = Peer(taken.address, session, taken.local)
        connection = self._begin(peer, taken.remote, taken.layout, client=taken.client, now_us=now_us)
        connection.revive(taken, now_us)
        return connection.peer
