"""Lets sessions in and out: handshakes, moves to new addresses, deadlines, and who is replaced by whom."""

from __future__ import annotations

from fairway.core.addresses import device_of
from fairway.core.chance import Chance
from fairway.core.errors import DamagedSnapshot
from fairway.core.events import Address, CloseReason, Connected, ConnectRefused, ConnectUnknown, Peer, PeerMoved
from fairway.core.machine import Buffer
from fairway.core.timers import Deadlines
from fairway.protocols.udpc.door import Call, HalfOpen
from fairway.protocols.udpc.handshake import Handshake
from fairway.protocols.udpc.link import NEVER, Outputs
from fairway.protocols.udpc.options import UdpcOptions
from fairway.protocols.udpc.receipts import Places
from fairway.protocols.udpc.session import Session, State
from fairway.protocols.udpc.tables import Handshakes, Sessions
from fairway.protocols.udpc.wire import ACK, ASY, FIN, HBT, HEADER_BYTES, IMP, REQ

SESSION_ID_DRAWS_MAX = 64
HEARTBEAT_TICKS = 10
"""Heartbeats leave at common instants, so many to an interval and so at most a tenth of it late: those of a thousand
idle sessions, and the answers to them, then cost a few turns a second instead of one each."""

_ASKING = (0, IMP, REQ, REQ | ASY, HBT, FIN)
"""Packets that answer nothing: any of them completes a half-open session, or shows that a peer has moved."""


class Doorkeeper:
    """Keeps the tables of sessions and handshakes, and one deadline for each entry."""

    def __init__(self, options: UdpcOptions, chance: Chance, outputs: Outputs, places: Places) -> None:
        self.sessions = Sessions()
        self._heartbeats: Deadlines[Session] = Deadlines()
        self.deadlines: Deadlines[Session | Call | HalfOpen | Deadlines[Session]] = Deadlines()
        """Of each entry; and of the heartbeats of all sessions together, at the next common instant."""
        self._tick_us = options.heartbeat_us // HEARTBEAT_TICKS or 1
        self._handshakes = Handshakes(options.half_open_max)
        self._options = options
        self._chance = chance
        self._outputs = outputs
        self._places = places
        self._shut = not options.accepts_calls

    # Our calls.

    def connect(self, address: Address, now_us: int) -> int:
        """Calls an address. The first index is random: it comes back in the SYN+ACK and so proves it."""
        syn_index = self._options.first_index or 1 + self._chance.below((1 << 31) - 1)
        while self._handshakes.call(address, syn_index) is not None:
            syn_index = syn_index % ((1 << 31) - 1) + 1
        caller_id = 1 + self._chance.below((1 << 32) - 1)
        token = self._outputs.token()
        self._outputs.unfinished += 1
        call = Call(self._options, address, caller_id, syn_index, token, now_us)
        self._handshakes.add_call(call)
        call.send_due(self._outputs, now_us)
        self.deadlines.set(call, call.due_us())
        return token

    def receive_syn_ack(self, index: int, session_id: int, ack_index: int, address: Address, now_us: int) -> None:
        """Opens the session that one of our calls asked for, and says so to the peer."""
        call = self._handshakes.call(address, ack_index)
        if call is None:
            self._outputs.drop("unexpected_syn_ack")
            return
        self._remove_call(call)
        session = self._admit(Peer(address, session_id), call.handshake(index), now_us)
        self._outputs.report(Connected(session.peer, call.token))
        session.accept(index)
        self.arm(session)

    def _remove_call(self, call: Call) -> None:
        self._handshakes.remove_call(call)
        self._outputs.unfinished -= 1
        self.deadlines.set(call, None)

    # Calls of others.

    def receive_syn(self, index: int, caller_id: int, address: Address, now_us: int) -> None:
        """Answers a call: the same for the same call, and without a session before it is completed."""
        known = self.sessions.called_by(address)
        if known is not None and known.handshake.caller_id == caller_id:
            known.repeat_syn_ack()
            return
        half_open = self._handshakes.by_caller(address, caller_id)
        if half_open is None:
            half_open = self._half_open(index, caller_id, address, now_us)
            if half_open is None:
                return
        else:
            half_open.called(now_us)
        self._send_syn_ack(half_open, now_us)

    def _half_open(self, index: int, caller_id: int, address: Address, now_us: int) -> HalfOpen | None:
        if self._shut:
            self._outputs.drop("not_accepting")
            return None
        session_id = self._draw_session_id(address)
        if session_id is None or self._full(address):
            self._outputs.drop("peers_full")
            return None
        handshake = Handshake(True, caller_id, index, self._options.first_index or 1)
        half_open = HalfOpen(self._options, address, session_id, handshake, now_us)
        gone = self._handshakes.add_half_open(half_open)
        if gone is not None:
            self.deadlines.set(gone, None)
            self._outputs.drop("half_open_evicted")
        return half_open

    def _draw_session_id(self, address: Address) -> int | None:
        for _ in range(SESSION_ID_DRAWS_MAX):
            session_id = 1 + self._chance.below((1 << 32) - 1)
            if self.sessions.anywhere(session_id) is None and not self._handshakes.uses(session_id):
                return session_id
        return None

    def _full(self, address: Address) -> bool:
        return len(self.sessions) >= self._options.peers_max and self.sessions.called_by(address) is None

    def _send_syn_ack(self, half_open: HalfOpen, now_us: int) -> None:
        half_open.send_due(self._outputs, now_us)
        self.deadlines.set(half_open, half_open.due_us())

    def _forget(self, half_open: HalfOpen) -> None:
        self._handshakes.remove_half_open(half_open)
        self.deadlines.set(half_open, None)

    def unknown(
        self, index: int, session_id: int, ack_index: int, flag: int, data: Buffer, address: Address, now_us: int
    ) -> Session | None:
        """Gives the session of a packet whose address has none of that number: one that it completes, or one that it
        brings along from another address. Drops it if there is neither."""
        half_open = self._handshakes.by_route(address, session_id)
        if half_open is not None:
            return self._complete(half_open, ack_index, flag, data, now_us)
        session = self.sessions.anywhere(session_id) if self._options.migration else None
        if session is None or device_of(session.link.address) != device_of(address):
            self._outputs.drop("unknown_session")
            return None
        if flag not in _ASKING or session.state is not State.OPEN or not session.newer(index):
            self._outputs.drop("no_reason_to_move")
            return None
        self._outputs.outbox.ledger.received(address, len(data))
        self.sessions.move(session, address, now_us)
        self._outputs.report(PeerMoved(session.peer, address))
        return session

    def _complete(self, half_open: HalfOpen, ack_index: int, flag: int, data: Buffer, now_us: int) -> Session | None:
        """Makes a half-open session an open one; it replaces the one that the same address opened before."""
        address, handshake = half_open.address, half_open.handshake
        ends_handshake = flag == ACK and ack_index == handshake.syn_ack_index and len(data) == HEADER_BYTES
        if not ends_handshake and flag not in _ASKING:
            self._outputs.drop("answers_nothing")
            return None
        if self._full(address):
            self._outputs.drop("peers_full")
            return None
        replaced = self.sessions.called_by(address)
        if replaced is not None:
            if replaced.state is not State.LINGERING:
                replaced.replace()
            self.remove(replaced)
        self._forget(half_open)
        session = self._admit(Peer(address, half_open.session_id), handshake, now_us)
        self._outputs.report(Connected(session.peer, None))
        return session

    # Sessions.

    def _admit(self, peer: Peer, handshake: Handshake, now_us: int) -> Session:
        session = Session(self._outputs, self._options, self._places, peer, handshake, now_us)
        self._enter(session)
        return session

    def readmit(self, session: Session) -> None:
        """Takes a restored session."""
        if self.sessions.of(session.peer) is not None:
            raise DamagedSnapshot(f"session {session.peer.session} with {session.peer.address} is open already")
        self._enter(session)
        self.arm(session)

    def _enter(self, session: Session) -> None:
        self.sessions.add(session)
        self.arm_heartbeat(session)
        self._outputs.statistics.conversations_opened += 1

    def arm(self, session: Session) -> None:
        """Notes the session's deadline when it has become earlier, and takes the session out when it is over."""
        link = session.link
        if session.state is State.OVER:
            self.remove(session)
        elif link.wake_us < link.armed_us:
            link.armed_us = link.wake_us
            self.deadlines.set(session, link.wake_us)

    def arm_heartbeat(self, session: Session) -> None:
        """Notes when the session's next heartbeat is due, earlier or later than before."""
        self._heartbeats.set(session, session.heartbeat_due_us())
        self._arm_tick()

    def _arm_tick(self) -> None:
        due_us = self._heartbeats.next_us()
        self.deadlines.set(self._heartbeats, None if due_us is None else -(-due_us // self._tick_us) * self._tick_us)

    def remove(self, session: Session) -> None:
        self.sessions.remove(session)
        self.deadlines.set(session, None)
        self._heartbeats.set(session, None)
        self._arm_tick()

    def shut(self, now_us: int) -> None:
        """Gives up all handshakes and takes no new calls."""
        self._shut = True
        for call in self._handshakes.calls():
            self._remove_call(call)
            self._outputs.report(ConnectRefused(call.token, call.address, CloseReason.LOCAL))
        for half_open in self._handshakes.half_open():
            self._forget(half_open)

    def wake(self, now_us: int) -> None:
        """Does what is due for every entry."""
        for entry in self.deadlines.pop_due(now_us):
            if isinstance(entry, Session):
                entry.wake(now_us)
                entry.link.armed_us = NEVER
                self.arm(entry)
            elif isinstance(entry, Call):
                self._wake_call(entry, now_us)
            elif isinstance(entry, HalfOpen):
                self._wake_half_open(entry, now_us)
        for session in self._heartbeats.pop_due(now_us):
            session.wake_heartbeat(now_us)
            self._heartbeats.set(session, session.heartbeat_due_us())
            self.arm(session)
        self._arm_tick()

    def _wake_half_open(self, half_open: HalfOpen, now_us: int) -> None:
        if now_us >= half_open.forget_us:
            self._forget(half_open)
        else:
            self._send_syn_ack(half_open, now_us)

    def give_up_calls(self, address: Address, reason: str) -> None:
        """End the calls to an address at which nobody receives."""
        for call in self._handshakes.calls():
            if call.address == address:
                self._give_up(call, reason)

    def _give_up(self, call: Call, reason: str) -> None:
        self._remove_call(call)
        self._outputs.report(ConnectUnknown(call.token, call.address, reason))

    def _wake_call(self, call: Call, now_us: int) -> None:
        if now_us >= call.give_up_us:
            self._give_up(call, "no answer in time")
            return
        call.send_due(self._outputs, now_us)
        self.deadlines.set(call, call.due_us())
