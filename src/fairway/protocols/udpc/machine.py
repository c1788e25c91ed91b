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
from fairway.core.machine import UDP_PAYLOAD_BYTES_MAX, Buffer, Transmit, path_allows
from fairway.core.outputs import Outputs
from fairway.core.random_source import RandomSource
from fairway.core.receipts import ReceiptSlots
from fairway.core.recovery.queue import owned
from fairway.core.refusals import TOO_LARGE_FOR_PATH, no_such_peer, send_queue_full, too_large, too_many_pings
from fairway.protocols.udpc import snapshot as snapshots
from fairway.protocols.udpc.handshake import SessionTable
from fairway.protocols.udpc.link import Link
from fairway.protocols.udpc.options import UdpcOptions
from fairway.protocols.udpc.sender import RUN_MIN, Waiting
from fairway.protocols.udpc.session import OPEN, Session, State
from fairway.protocols.udpc.wire import (
    ACK,
    ASY,
    FIN,
    HBT,
    HEADER_BYTES,
    IMP,
    REQ,
    SYN,
    flag_name,
    header,
    one_stretch,
    split,
)

BODY_BYTES_MAX = UDP_PAYLOAD_BYTES_MAX - HEADER_BYTES

_UNSENDABLE = (
    (SYN | FIN | HBT | ~0x7F, ~0, "SYN, FIN, HBT and unnamed bits belong to the protocol"),
    (IMP, REQ, "REQ and IMP exclude each other, as a request is repeated until its response comes"),
    (IMP, ACK, "IMP+ACK is the protocol's own acknowledgement"),
)
"""Flags that no message may carry together with certain others, and why."""


class UdpcMachine:
    """All udpc sessions of one endpoint."""

    name: ClassVar[str] = "udpc"

    def __init__(self, options: UdpcOptions, random_source: RandomSource) -> None:
        self.options = options
        self._body_bytes_max = BODY_BYTES_MAX
        self._outputs: Outputs[Link] = Outputs(options)
        self.statistics = self._outputs.statistics
        self._slots = ReceiptSlots(options)
        self._table = SessionTable(options, random_source, self._outputs, self._slots)
        self._sessions = self._table.sessions
        self._by_peer = self._sessions.by_peer
        self._by_route = self._sessions.by_route
        # Asked several times a turn, so without a detour.
        self.events = self._outputs.events
        self.next_deadline_us = self._table.deadlines.next_us

    # Outputs.

    def transmits(self) -> list[Transmit]:
        outputs = self._outputs
        if outputs.ready:
            for link, now_us in outputs.take_ready().items():
                session = self._by_peer.get(link.peer)
                if session is not None and session.link is link:
                    session.sender.flush(now_us)
                    self._table.arm(session)
        return outputs.outbox.take()

    def room(self, peer: Peer) -> int:
        return self._open(peer).sender.room()

    def unfinished(self) -> int:
        return self._outputs.unfinished

    # What the application asks for.

    def connect(self, address: Address, now_us: int) -> int:
        return self._table.connect(address, now_us)

    def send(
        self, peer: Peer, body: Buffer, now_us: int, *, flags: int | None = None, answers: int | None = None
    ) -> int:
        """Queue one message: important unless `flags` says otherwise.

        REQ (or REQ+ASY) asks; its outcome is `ResponseReceived`, or `RequestReceived` with the token. ACK (with REQ
        and ASY at will) and `answers` respond to a request. Plain messages (0) and bare responses have no outcome.
        """
        session, size = self._open(peer), len(body)
        flag = flags if flags is not None else (IMP if answers is None else ACK)
        if flag != IMP or answers is not None or size > self._body_bytes_max:
            _check_size(size, self._body_bytes_max)
            _check(session, flag, answers)
        sender = session.sender
        if not sender.accepts(size):
            raise send_queue_full(peer.address)
        token = self._outputs.token()
        if flag == IMP:
            sender.send_important((body if type(body) is bytes else bytes(body),), token, now_us, equal=True)
        else:
            if answers is not None:
                session.receiver.answers.answered(answers)
            sender.send_other(Waiting(flag, answers or 0, bytes(body), token), now_us)
        link = session.link
        if link.wake_us < link.armed_us:
            self._table.arm(session)
        return token

    def send_many(self, peer: Peer, bodies: Sequence[Buffer], now_us: int) -> range:
        """Queue important messages, as many from the first on as there is room for."""
        session = self._open(peer)
        sizes = set(map(len, bodies))
        _check_size(max(sizes, default=0), self._body_bytes_max)
        count = session.sender.accepts_of(bodies)
        tokens = self._outputs.tokens(count)
        if count:
            accepted = bodies if count == len(bodies) else bodies[:count]
            session.sender.send_important(owned(accepted), tokens.start, now_us, equal=len(sizes) == 1)
        return tokens

    def ping(self, peer: Peer, now_us: int) -> int:
        session = self._open(peer)
        if len(session.pings) >= self.options.pings_max:
            raise too_many_pings(self.options.pings_max, peer.address)
        token = self._outputs.token()
        session.ping(token, now_us)
        self._table.arm(session)
        return token

    def commit(self, receipt: Receipt, now_us: int) -> None:
        peer, first, count = receipt
        session = self._by_peer.get(peer)
        if session is None or session.state not in (State.OPEN, State.CLOSING) or isinstance(first, str):
            return
        session.commit(first, count)

    def close(self, peer: Peer | None, now_us: int) -> None:
        """Close one session; or all of them, and the handshakes under way."""
        if peer is not None:
            self._close(self._known(peer), CloseReason.LOCAL, now_us)
            return
        self._table.shut()
        for session in self._sessions.all():
            self._close(session, CloseReason.SHUT_DOWN, now_us)

    def _close(self, session: Session, reason: CloseReason, now_us: int) -> None:
        if session.state is State.OPEN:
            session.close(reason, now_us)
            self._table.arm(session)

    def wake(self, now_us: int) -> None:
        self._table.wake(now_us)

    def unreachable(self, address: Address, reason: str, now_us: int) -> None:
        self._table.calls.give_up_to(address, reason)

    def limit_datagrams(self, datagram_bytes: int, *, fragments: bool) -> None:
        if not fragments:
            self._body_bytes_max = path_allows(self._body_bytes_max, datagram_bytes, HEADER_BYTES)

    def _open(self, peer: Peer) -> Session:
        session = self._by_peer.get(peer)
        if session is None or session.state is not OPEN:
            raise no_such_peer(self.name, peer)
        return session

    def _known(self, peer: Peer) -> Session:
        """Return a session that has not ended: open or closing."""
        session = self._by_peer.get(peer)
        if session is None or session.state not in (State.OPEN, State.CLOSING):
            raise no_such_peer(self.name, peer)
        return session

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
            index, session_id, ack_index, flag = header(data)
        except MalformedDatagram as malformed:
            self._outputs.drop(malformed.reason)
            return
        if flag == SYN:
            self._table.receive_syn(index, session_id, address, now_us)
            return
        session = self._by_route.get((address, session_id))
        if session is None:
            if flag == SYN | ACK:
                self._table.receive_syn_ack(index, session_id, ack_index, address, now_us)
                return
            session = self._table.unknown(index, session_id, ack_index, flag, data, address, now_us)
            if session is None:
                return
        elif not session.link.proved:
            self._outputs.outbox.ledger.received(address, size)
        session.receive(index, ack_index, flag, data, now_us)
        if flag & HBT:
            self._table.arm_heartbeat(session)
        if session.state is not OPEN or session.link.wake_us < session.link.armed_us:
            self._table.arm(session)

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
                self._table.arm(session)
            else:
                for datagram in split(piece, segment_bytes):
                    self.receive(datagram, address, now_us)
        self.statistics.batches += whole and len(found) == 1
        rest = data[found[-1].end * segment_bytes :]
        if rest:
            self.receive(rest, address, now_us)

    # What survives a restart.

    def peers(self) -> list[Peer]:
        return [session.peer for session in self._sessions.all() if session.state in (State.OPEN, State.CLOSING)]

    def snapshot(self, peer: Peer, committing: Sequence[Receipt] = ()) -> bytes:
        return snapshots.write(self._known(peer), committing)

    def snapshot_in_pieces(self, peer: Peer, committing: Sequence[Receipt]) -> tuple[bytes, bytes]:
        return self.snapshot(peer, committing), b""

    def unanswered(self, peer: Peer) -> list[int]:
        """List the requests of a peer that the application has not answered yet, oldest first."""
        return self._known(peer).receiver.answers.waiting()

    def restore(self, snapshot: bytes, now_us: int) -> Peer:
        session = snapshots.read(snapshot, self._outputs, self.options, self._slots, now_us)
        self._table.readmit(session)
        return session.peer


def _check_size(body_bytes: int, limit: int) -> None:
    if body_bytes > limit:
        raise too_large("udpc", body_bytes, limit, "" if limit == BODY_BYTES_MAX else TOO_LARGE_FOR_PATH)


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
