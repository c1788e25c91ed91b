"""The udpc machine: all sessions of one endpoint, whichever side called.

What is sent when. A caller sends SYN until SYN+ACK comes, then ACK and whatever the application wants; the called
side holds half a session until any packet of it arrives. A plain message leaves once. An important one leaves through
the congestion window and again until its IMP+ACK comes: at once when three later ones were acknowledged before it,
else when its time-out runs out, doubling. A request leaves at once and again until its response comes. Every packet
takes a new index, acknowledgements too, and the other side's bitmap over the last 65,536 of them tells duplicates.

Timers, all but one behind one deadline per session: SYN and SYN+ACK repeats (250 ms, doubling); half-open entries
(5 s); time-outs of important packets and requests (RFC 6298, 20 ms to 3 s), their limits (30 s and 5 s); pacing; the
end after 10 s of silence; flush before FIN (2 s) and the lingering after it (3 s). Heartbeats, after 1 s of silence,
may be a little late: all sessions of a machine send theirs at common instants.

Choices where the wire leaves room. Requests are not subject to the congestion window and are not repaired by
overtaking: their answer waits for an application, and its delay says nothing about the path. Only sessions that the
same address opened replace each other: two equal nodes that call each other at once keep both. Messages wait when the
index has run half of 65,535 past the oldest packet that waits, so that answers always have the other half: if both
sides withheld their acknowledgements, each would wait for the other's.
A caller whose peer sends heartbeats leaves them to the peer, and sends its own only when one is half a second late.
A plain message, and a response that asks nothing, have no outcome: nothing on the wire tells what became of them.

Left out. No fragmentation: a message is one datagram, of any size that UDP carries. No delayed or grouped
acknowledgements: each names one packet; those of one received batch leave together as one transmit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from fairway.core.errors import BadMessage, MalformedDatagram
from fairway.core.events import Address, CloseReason, Peer, Receipt
from fairway.core.machine import Buffer, split
from fairway.core.refusals import already_open, send_queue_full
from fairway.protocols.udpc import snapshot as snapshots
from fairway.protocols.udpc.handshake import SessionMachine
from fairway.protocols.udpc.sender import RUN_MIN, Sender, Waiting
from fairway.protocols.udpc.session import OPEN, Session, State
from fairway.protocols.udpc.wire import ACK, ASY, FIN, HBT, HEADER_BYTES, IMP, REQ, SYN, fields, flag_name, one_stretch

_UNSENDABLE = (
    (SYN | FIN | HBT | ~0x7F, ~0, "SYN, FIN, HBT and unnamed bits belong to the protocol"),
    (IMP, REQ, "REQ and IMP exclude each other, as a request is repeated until its response comes"),
    (IMP, ACK, "IMP+ACK is the protocol's own acknowledgement"),
)
"""Flags that no message may carry together with certain others, and why."""


class UdpcMachine(SessionMachine):
    """All udpc sessions of one endpoint."""

    name: ClassVar[str] = "udpc"

    def _find(self, peer: Peer) -> Session | None:
        session = self._by_peer.get(peer)
        return None if session is None or session.state is State.LINGERING else session

    def _sender(self, conversation: Session) -> Sender:
        return conversation.sender

    def _flush(self, ready: Session, now_us: int) -> None:
        if self._by_peer.get(ready.peer) is ready:
            ready.sender.flush(now_us)
            self._arm(ready)

    # What the application asks for.

    def send(
        self, peer: Peer, body: Buffer, now_us: int, *, flags: int | None = None, answers: int | None = None
    ) -> int:
        """Queue one message: important unless `flags` says otherwise.

        REQ (or REQ+ASY) asks; its outcome is `ResponseReceived`, or `RequestReceived` with the token. ACK (with REQ
        and ASY at will) and `answers` respond to a request. Plain messages (0) and bare responses have no outcome.
        """
        flag = flags if flags is not None else (IMP if answers is None else ACK)
        if flag == IMP and answers is None:
            return super().send(peer, body, now_us)
        session = self._open(peer)
        self._check_size(session, len(body))
        _check(session, flag, answers)
        if not session.sender.backlog.accepts(len(body)):
            raise send_queue_full(peer.address)
        token = self._outputs.token()
        if answers is not None:
            session.receiver.answers.answered(answers)
        session.sender.send_other(Waiting(flag, answers or 0, bytes(body), token), now_us)
        self._arm(session)
        return token

    def ping(self, peer: Peer, now_us: int) -> int:
        session = self._open(peer)
        token = session.pings.token()
        session.ping(token, now_us)
        self._arm(session)
        return token

    def commit(self, receipt: Receipt, now_us: int) -> None:
        session, first, count = self._by_peer.get(receipt.peer), receipt.first, receipt.count
        if session is None or session.state is State.LINGERING or not isinstance(first, int):
            return
        receipts, deferred = session.receiver.receipts, self.options.deferred
        if count == 1 and not deferred and receipts.free_one(first):
            return
        for piece in receipts.commit(first, count):
            if piece.note and deferred:
                session.sender.acknowledge_run(piece.first, piece.length)

    def _close(self, conversation: Session, reason: CloseReason, now_us: int) -> None:
        conversation.close(reason, now_us)
        self._arm(conversation)

    # What arrives.

    def receive(self, data: Buffer, address: Address, now_us: int, segment_bytes: int | None = None) -> None:
        size = len(data)
        if segment_bytes and size > segment_bytes:
            self._receive_several(data, address, now_us, segment_bytes)
            return
        statistics = self.statistics
        statistics.datagrams_received += 1
        statistics.bytes_received += size
        try:
            index, session_id, ack_index, flag, body = fields(data)
        except MalformedDatagram as malformed:
            self._outputs.drop(malformed.reason)
            return
        if flag == SYN:
            self._receive_syn(index, session_id, address, now_us)
            return
        session = self._by_route.get((address, session_id))
        if session is None:
            if flag == SYN | ACK:
                self._receive_syn_ack(index, session_id, ack_index, address, now_us)
                return
            session = self._unknown(index, session_id, ack_index, flag, body, address, now_us)
            if session is None:
                return
        elif not session.proved:
            self._outputs.outbox.ledger.received(address, size)
        session.receive(index, ack_index, flag, body, now_us)
        if flag & HBT:
            self._arm_heartbeat(session)
        if session.state is not OPEN or session.wake_us < session.armed_us:
            self._arm(session)

    def _receive_several(self, data: Buffer, address: Address, now_us: int, segment_bytes: int) -> None:
        if segment_bytes < HEADER_BYTES or len(data) < RUN_MIN * segment_bytes:
            for datagram in split(data, segment_bytes):
                self.receive(datagram, address, now_us)
        else:
            self._receive_batch(bytes(data), address, now_us, segment_bytes)

    def _receive_batch(self, data: bytes, address: Address, now_us: int, segment_bytes: int) -> None:
        """Take a super-buffer stretch by stretch; whatever is unusual goes datagram by datagram."""
        whole_run = one_stretch(data, segment_bytes)
        if whole_run is not None:
            found = [whole_run]
        else:
            from fairway.protocols.udpc.columns import stretches

            found = stretches(data, segment_bytes)
        whole = False
        for stretch in found:
            piece = data[stretch.start * segment_bytes : stretch.end * segment_bytes]
            session = self._by_route.get((address, stretch.session_id))
            whole = session is not None and session.receive_stretch(stretch, piece, segment_bytes, now_us)
            if session is not None and whole:
                self.statistics.datagrams_received += stretch.end - stretch.start
                self.statistics.bytes_received += len(piece)
                self._arm(session)
            else:
                for datagram in split(piece, segment_bytes):
                    self.receive(datagram, address, now_us)
        self.statistics.batches += whole and len(found) == 1
        rest = data[found[-1].end * segment_bytes :]
        if rest:
            self.receive(rest, address, now_us)

    # What survives a restart.

    def peers(self) -> list[Peer]:
        return [session.peer for session in self._by_peer.values() if session.state is not State.LINGERING]

    def snapshot(self, peer: Peer, committing: Sequence[Receipt] = ()) -> bytes:
        return snapshots.write(self._known(peer), committing)

    def unanswered(self, peer: Peer) -> list[int]:
        """List the requests of a peer that the application has not answered yet, oldest first."""
        return self._known(peer).receiver.answers.waiting()

    def restore(self, snapshot: bytes, now_us: int) -> Peer:
        session = snapshots.read(snapshot, self._outputs, self.options, self._slots, now_us)
        if session.peer in self._by_peer:
            raise already_open(session.peer.address)
        self._enter(session)
        self._arm(session)
        return session.peer


def _check(session: Session, flag: int, answers: int | None) -> None:
    """Raise `BadMessage` with the rule that the message breaks."""
    for flags, others, rule in _UNSENDABLE:
        if flag & flags and flag & others:
            raise BadMessage(f"a message cannot carry {flag_name(flag)}: {rule}")
    if flag & ASY and not flag & REQ:
        raise BadMessage(f"a message cannot carry {flag_name(flag)}: ASY goes with REQ only")
    if flag & ACK and answers is None:
        raise BadMessage("a message with ACK is a response: say which request it answers")
    if answers is not None and not flag & ACK:
        raise BadMessage("a message that answers a request carries ACK")
    if answers is not None and answers not in session.receiver.answers:
        raise BadMessage(f"request {answers} is unknown, was answered before, or is too old to answer")
