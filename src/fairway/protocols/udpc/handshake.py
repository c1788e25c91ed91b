"""How sessions come and go: handshakes, moves to new addresses, deadlines, and who is replaced by whom."""

from __future__ import annotations

from typing import Any

from fairway.core.addresses import device_of
from fairway.core.events import Address, CloseReason, Connected, Peer, PeerMoved
from fairway.core.handshakes import HalfOpen, HandshakeMachine
from fairway.core.outputs import Outputs
from fairway.core.random_source import RandomSource
from fairway.core.receipts import ReceiptSlots
from fairway.core.recovery.runs import NEVER
from fairway.core.statistics import ENDPOINT_CLOSED, PEERS_FULL
from fairway.core.timers import Deadlines
from fairway.protocols.udpc.options import UdpcOptions
from fairway.protocols.udpc.session import Handshake, Session, State
from fairway.protocols.udpc.wire import ACK, ASY, FIN, HBT, HEADER_BYTES, IMP, REQ, SYN, datagram

SESSION_ID_DRAWS_MAX = 64
HEARTBEAT_TICKS = 10
"""Heartbeats leave at common instants, so many to an interval and so at most a tenth of it late: those of a thousand
idle sessions, and the answers to them, then cost a few turns a second instead of one each."""

_ASKING = (0, IMP, REQ, REQ | ASY, HBT, FIN)
"""Packets that answer nothing: any of them completes a half-open session, or shows that a peer has moved."""


class HalfSession(HalfOpen):
    """A call that we answered with SYN+ACK, and when to answer it again."""

    __slots__ = ("_gap_us", "_left", "_options", "_repeat_us", "_sent", "handshake")

    def __init__(
        self, options: UdpcOptions, address: Address, session_id: int, handshake: Handshake, now_us: int
    ) -> None:
        expires_us = now_us + options.half_open_us
        super().__init__(address, handshake.caller_id, session_id, handshake.syn_ack(session_id), expires_us)
        self._options = options
        self.handshake = handshake
        self._sent = False
        self.called(now_us)

    def called(self, now_us: int) -> None:
        """Start the schedule of answers for a SYN that came now."""
        self._left = self._options.syn_acks_per_syn
        self._gap_us = self._options.connect_repeat_us
        self._repeat_us = now_us

    def send_due(self, outputs: Outputs[Session], now_us: int) -> None:
        """Send the SYN+ACK when it is time to.

        Three answers of 13 bytes to a call of 13 bytes are just what an unproved address may get.
        """
        if now_us < self._repeat_us or not self._left:
            return
        self._left -= 1
        self._repeat_us = now_us + self._gap_us
        self._gap_us = min(2 * self._gap_us, self._options.connect_repeat_us_max)
        outputs.statistics.retransmissions += self._sent
        self._sent = True
        outputs.outbox.send(self.address, self.answer, HEADER_BYTES)

    def due_us(self) -> int:
        return min(self._repeat_us, self.expires_us) if self._left else self.expires_us


class SessionMachine(HandshakeMachine[Session, HalfSession]):
    """The sessions and handshakes of a machine."""

    def __init__(self, options: UdpcOptions, random_source: RandomSource) -> None:
        super().__init__(options)
        self.options = options
        self._random_source = random_source
        self._slots = ReceiptSlots(options)
        self._by_peer: dict[Peer, Session] = self._table
        self._by_route: dict[tuple[Address, int], Session] = {}
        """By address and sessionID: where a datagram belongs."""
        self._by_id: dict[int, Session] = {}
        self._called_by: dict[Address, Session] = {}
        """The session that each address opened: one, because a new one replaces it."""
        self._heartbeats: Deadlines[Session] = Deadlines()
        """Of all sessions; together they have one deadline among the others, at the next common instant."""
        self._tick_us = options.keepalive_us // HEARTBEAT_TICKS or 1

    # Our calls.

    def _call(self, address: Address, now_us: int) -> int:
        """Call an address. The first index is random: it comes back in the SYN+ACK and so proves it."""
        syn_index = self.options.first_index or 1 + self._random_source.below((1 << 31) - 1)
        while (address, syn_index) in self._calls:
            syn_index = syn_index % ((1 << 31) - 1) + 1
        caller_id = 1 + self._random_source.below((1 << 32) - 1)
        return self._calls.start(
            (address, syn_index), caller_id, address, datagram(syn_index, caller_id, 0, SYN), now_us
        )

    def _receive_syn_ack(self, index: int, session_id: int, ack_index: int, address: Address, now_us: int) -> None:
        """Open the session that one of our calls asked for, and say so to the peer."""
        call = self._calls.get((address, ack_index))
        if call is None:
            self._outputs.drop("unexpected_syn_ack")
            return
        self._calls.remove(call)
        session = self._admit(Peer(address, session_id), Handshake(False, call.own_id, ack_index, index), now_us)
        self._outputs.report(Connected(session.peer, call.token))
        session.sender.control(ACK, index)
        self._arm(session)

    # Calls of others.

    def _receive_syn(self, index: int, caller_id: int, address: Address, now_us: int) -> None:
        """Answer a call: the same for the same call, and without a session before it is completed."""
        known = self._called_by.get(address)
        if known is not None and known.handshake.caller_id == caller_id:
            known.transmit(known.handshake.syn_ack(known.session_id), HEADER_BYTES)
            return
        half_open = self._half_opens.by_caller(address, caller_id)
        if half_open is None:
            half_open = self._half_open(index, caller_id, address, now_us)
            if half_open is None:
                return
        else:
            half_open.called(now_us)
        self._send_syn_ack(half_open, now_us)

    def _half_open(self, index: int, caller_id: int, address: Address, now_us: int) -> HalfSession | None:
        if self._is_shut or not self.options.accepts_calls:
            self._outputs.drop(ENDPOINT_CLOSED if self._is_shut else "not_accepting")
            return None
        session_id = self._draw_session_id()
        if session_id is None or self._is_full_for(address):
            self._outputs.drop(PEERS_FULL)
            return None
        handshake = Handshake(True, caller_id, index, self.options.first_index or 1)
        half_open = HalfSession(self.options, address, session_id, handshake, now_us)
        self._half_opens.add(half_open)
        return half_open

    def _draw_session_id(self) -> int | None:
        for _ in range(SESSION_ID_DRAWS_MAX):
            session_id = 1 + self._random_source.below((1 << 32) - 1)
            if self._by_id.get(session_id) is None and session_id not in self._half_opens:
                return session_id
        return None

    def _is_full_for(self, address: Address) -> bool:
        """Return whether a caller is one too many; a session that it opened before makes room."""
        return self._is_full() and self._called_by.get(address) is None

    def _send_syn_ack(self, half_open: HalfSession, now_us: int) -> None:
        half_open.send_due(self._outputs, now_us)
        self._deadlines.set(half_open, half_open.due_us())

    def _unknown(
        self, index: int, session_id: int, ack_index: int, flag: int, body: bytes, address: Address, now_us: int
    ) -> Session | None:
        """Return the session of a packet whose address has none of that number: one that it completes, or one that it
        brings along from another address. Drop it if there is neither."""
        half_open = self._half_opens.by_id(session_id)
        if half_open is not None and half_open.address == address:
            return self._complete(half_open, ack_index, flag, body, now_us)
        session = self._by_id.get(session_id) if self.options.migration else None
        if session is None or device_of(session.address) != device_of(address):
            self._outputs.drop("unknown_session")
            return None
        if flag not in _ASKING or session.state is not State.OPEN or not session.newer(index):
            self._outputs.drop("no_reason_to_move")
            return None
        self._outputs.outbox.ledger.received(address, HEADER_BYTES + len(body))
        self._unroute(session)
        session.move(address, now_us)
        self._route(session)
        self._outputs.report(PeerMoved(session.peer, address))
        return session

    def _complete(self, half_open: HalfSession, ack_index: int, flag: int, body: bytes, now_us: int) -> Session | None:
        """Make a half-open session an open one; it replaces the one that the same address opened before."""
        address, handshake = half_open.address, half_open.handshake
        ends_handshake = flag == ACK and ack_index == handshake.syn_ack_index and not body
        if not ends_handshake and flag not in _ASKING:
            self._outputs.drop("answers_nothing")
            return None
        if self._is_full_for(address):
            self._outputs.drop(PEERS_FULL)
            return None
        replaced = self._called_by.get(address)
        if replaced is not None:
            if replaced.state is not State.LINGERING:
                replaced.end(CloseReason.REPLACED)
            self._remove(replaced)
        self._half_opens.remove(half_open)
        session = self._admit(Peer(address, half_open.own_id), handshake, now_us)
        self._outputs.report(Connected(session.peer, None))
        return session

    # Sessions.

    def _admit(self, peer: Peer, handshake: Handshake, now_us: int) -> Session:
        session = Session(self._outputs, self.options, self._slots, peer, handshake, now_us)
        self._enter(session)
        return session

    def _enter(self, session: Session) -> None:
        self._by_peer[session.peer] = session
        self._by_id.setdefault(session.session_id, session)
        self._route(session)
        self._arm_heartbeat(session)
        self._outputs.statistics.conversations_opened += 1

    def _route(self, session: Session) -> None:
        self._by_route[session.address, session.session_id] = session
        if session.handshake.called:
            self._called_by[session.address] = session

    def _unroute(self, session: Session) -> None:
        """Undo the route to a session."""
        self._by_route.pop((session.address, session.session_id), None)
        if self._called_by.get(session.address) is session:
            del self._called_by[session.address]

    def _arm(self, session: Session) -> None:
        """Note the session's deadline when it has become earlier, and remove the session when it is over."""
        if session.state is State.OVER:
            self._remove(session)
        elif session.wake_us < session.armed_us:
            session.armed_us = session.wake_us
            self._deadlines.set(session, session.wake_us)

    def _arm_heartbeat(self, session: Session) -> None:
        """Note when the session's next heartbeat is due, earlier or later than before."""
        self._heartbeats.set(session, session.heartbeat_due_us())
        self._arm_tick()

    def _arm_tick(self) -> None:
        due_us = self._heartbeats.next_us()
        self._deadlines.set(self._heartbeats, None if due_us is None else -(-due_us // self._tick_us) * self._tick_us)

    def _remove(self, session: Session) -> None:
        self._unroute(session)
        self._by_peer.pop(session.peer, None)
        if self._by_id.get(session.session_id) is session:
            del self._by_id[session.session_id]
        self._deadlines.set(session, None)
        self._heartbeats.set(session, None)
        self._arm_tick()

    def wake(self, now_us: int) -> None:
        super().wake(now_us)
        for session in self._heartbeats.pop_due(now_us):
            session.wake_heartbeat(now_us)
            self._heartbeats.set(session, session.heartbeat_due_us())
            self._arm(session)
        self._arm_tick()

    def _wake(self, entry: Any, now_us: int) -> None:
        if isinstance(entry, Session):
            entry.wake(now_us)
            entry.armed_us = NEVER
            self._arm(entry)
        elif isinstance(entry, HalfSession):
            if now_us >= entry.expires_us:
                self._half_opens.remove(entry)
            else:
                self._send_syn_ack(entry, now_us)
