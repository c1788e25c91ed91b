"""The door of a machine: how connections come about, how they are found, and how they go.

Ours begin with a connect that is repeated until a con reply comes. Those of others begin with a con reply and are half
open until a packet with the id that we gave comes back. All ids of a node live here, so that none is given twice.
"""

from __future__ import annotations

from fairway.core.chance import Chance
from fairway.core.events import NO_ANSWER, Address, CloseReason, Connected, ConnectRefused, ConnectUnknown, Peer
from fairway.core.refusals import endpoint_closed, too_many_peers
from fairway.core.statistics import ENDPOINT_CLOSED, PEERS_FULL
from fairway.core.timers import Deadlines
from fairway.protocols.mrp import wire
from fairway.protocols.mrp.calls import HalfOpen, HalfOpens, Opening
from fairway.protocols.mrp.connection import Connection
from fairway.protocols.mrp.ids import draw_id
from fairway.protocols.mrp.options import PIGGYBACK, STAMPED, MrpOptions
from fairway.protocols.mrp.piggyback import PiggybackConnection
from fairway.protocols.mrp.shared import Shared
from fairway.protocols.mrp.stamped import StampedConnection

LAYOUT_OF = {wire.VER_STAMPED: STAMPED, wire.VER_PIGGYBACK: PIGGYBACK}


class Door:
    """All connections of a machine, from their first packet on."""

    def __init__(self, options: MrpOptions, chance: Chance) -> None:
        self._options = options
        self._chance = chance
        self.shared = Shared(options, self._forget)
        self.connections: dict[int, Connection] = {}
        """Open connections by own id, oldest first."""
        self._callers: dict[tuple[Address, int], Connection] = {}
        """Open connections that others opened, by address and cl_conid: a repeated connect gets its reply again."""
        self.openings: dict[int, Opening] = {}
        self.half_opens = HalfOpens(options.half_open_max)
        self.deadlines: Deadlines[int] = Deadlines()
        """When each connection and each opening is to be woken, by own id."""
        self._shut = False

    def lookup(self, local: int, remote: int, address: Address, layout: str, now_us: int) -> Connection | None:
        """Gives the one connection that address and both ids belong to, opening it if it was half open."""
        connection = self.connections.get(local)
        if connection is not None:
            belongs = connection.remote == remote and connection.layout == layout and connection.address == address
            return connection if belongs else None
        call = self.half_opens.by_local(local)
        if call is None or (call.cl_conid, call.layout, call.address) != (remote, layout, address):
            return None
        return self._complete(call, now_us)

    def open(self, peer: Peer, remote: int, layout: str, *, client: bool, now_us: int) -> Connection:
        """Takes up a connection whose ids are known."""
        made = StampedConnection if layout == STAMPED else PiggybackConnection
        connection: Connection = made(self.shared, peer, remote, client, now_us)
        self.connections[peer.local] = connection
        if not client:
            self._callers[peer.address, remote] = connection
        self.shared.statistics.conversations_opened += 1
        connection.mark_ready(now_us)
        return connection

    def _forget(self, connection: Connection) -> None:
        """Takes out a connection that has ended."""
        del self.connections[connection.local]
        if not connection.client:
            del self._callers[connection.address, connection.remote]
        self.deadlines.set(connection.local, None)

    def is_taken(self, number: int) -> bool:
        """Tells whether an id is in use."""
        return number in self.connections or number in self.openings or number in self.half_opens

    def _draw_id(self, layout: str) -> int | None:
        return draw_id(layout, self._chance, self.is_taken)

    # Calls of others.

    def take_connect(self, packet: wire.Connect, address: Address, now_us: int) -> None:
        """Answers a call: with the first reply again, or by accepting or rejecting it."""
        if self._shut:
            self.shared.drop(ENDPOINT_CLOSED)
            return
        known = self._callers.get((address, packet.cl_conid))
        if known is not None:
            reply = wire.ConReply(stat=wire.ACCEPT, cl_conid=packet.cl_conid, sv_conid=known.local)
            self.shared.outbox.send(address, wire.encode(reply), wire.CON_REPLY_BYTES)
            return
        self.half_opens.expire(now_us)
        call = self.half_opens.by_caller(address, packet.cl_conid)
        if call is None:
            call = self._answer_call(packet, address, now_us)
            self.half_opens.add(call)
        self.shared.outbox.send(address, call.reply, wire.CON_REPLY_BYTES)

    def _answer_call(self, packet: wire.Connect, address: Address, now_us: int) -> HalfOpen:
        """Accepts or rejects a call that was not heard before."""
        layout = LAYOUT_OF.get(packet.ver)
        local = self._draw_id(layout) if layout is not None and self._welcomes(layout, packet.cl_conid) else None
        stat = wire.REJECT if local is None else wire.ACCEPT
        reply = wire.ConReply(stat=stat, cl_conid=packet.cl_conid, sv_conid=local or 0)
        expires_us = now_us + self._options.half_open_us
        return HalfOpen(address, packet.cl_conid, layout or "", local or 0, wire.encode(reply), expires_us)

    def _welcomes(self, layout: str, cl_conid: int) -> bool:
        if layout not in self._options.accepts or (layout == PIGGYBACK and cl_conid > wire.PIGGYBACK_CONID_MAX):
            return False
        if self._is_full():
            self.shared.drop(PEERS_FULL)
            return False
        return True

    def _is_full(self) -> bool:
        return len(self.connections) + len(self.openings) >= self._options.peers_max

    def _complete(self, call: HalfOpen, now_us: int) -> Connection | None:
        """Opens a half-open connection whose caller has shown our id."""
        if self._is_full():
            self.shared.drop(PEERS_FULL)
            return None
        self.half_opens.remove(call)
        peer = Peer(call.address, call.local, call.local)
        connection = self.open(peer, call.cl_conid, call.layout, client=False, now_us=now_us)
        self.shared.outputs.report(Connected(peer, None))
        return connection

    # Calls of ours.

    def call(self, address: Address, now_us: int) -> int:
        """Ask for a connection in the layout of the options, and return the token."""
        options = self._options
        if self._shut:
            raise endpoint_closed()
        local = None if self._is_full() else self._draw_id(options.layout)
        if local is None:
            raise too_many_peers(min(options.peers_max, len(self.connections) + len(self.openings)))
        ver = wire.VER_STAMPED if options.layout == STAMPED else wire.VER_PIGGYBACK
        connect = wire.encode(wire.Connect(ver=ver, cl_conid=local))
        pause_us, give_up_us = options.connect_repeat_us, now_us + options.connect_timeout_us
        token = self.shared.outputs.token()
        self.shared.outputs.unfinished += 1
        opening = Opening(token, address, options.layout, local, connect, give_up_us, now_us + pause_us, pause_us)
        self.openings[local] = opening
        self.shared.outbox.send(address, connect, wire.CONNECT_BYTES)
        self.deadlines.set(local, min(opening.repeat_us, give_up_us))
        return token

    def wake_opening(self, opening: Opening, now_us: int) -> None:
        """Repeats a connect that is due, or gives it up."""
        if now_us >= opening.give_up_us:
            self._give_up(opening, NO_ANSWER)
            return
        if now_us >= opening.repeat_us:
            self.shared.outbox.send(opening.address, opening.connect, wire.CONNECT_BYTES)
            opening.pause_us = min(2 * opening.pause_us, self._options.connect_repeat_us_max)
            opening.repeat_us = now_us + opening.pause_us
        self.deadlines.set(opening.local, min(opening.repeat_us, opening.give_up_us))

    def _give_up(self, opening: Opening, reason: str) -> None:
        self._remove(opening)
        self.shared.outputs.report(ConnectUnknown(opening.token, opening.address, reason))

    def _remove(self, opening: Opening) -> None:
        del self.openings[opening.local]
        self.shared.outputs.unfinished -= 1
        self.deadlines.set(opening.local, None)

    def give_up_calls(self, address: Address, reason: str) -> None:
        """End our calls to an address at which nobody receives."""
        for opening in [one for one in self.openings.values() if one.address == address]:
            self._give_up(opening, reason)

    def shut(self) -> None:
        """Lets nobody in any more, and gives up our own calls."""
        self._shut = True
        self.half_opens.clear()
        for opening in list(self.openings.values()):
            self._give_up(opening, CloseReason.SHUT_DOWN)

    def take_reply(self, packet: wire.ConReply, address: Address, now_us: int) -> None:
        """Takes the answer to a call of ours, or a copy of it."""
        opening = self.openings.get(packet.cl_conid)
        if opening is not None and opening.address == address:
            self._take_first_reply(packet, opening, now_us)
            return
        connection = self.connections.get(packet.cl_conid)
        known = connection is not None and connection.client and connection.address == address
        if connection is not None and known and (packet.stat, packet.sv_conid) == (wire.ACCEPT, connection.remote):
            connection.hear_reply(now_us)
        else:
            self.shared.drop("unexpected_reply")

    def _take_first_reply(self, packet: wire.ConReply, opening: Opening, now_us: int) -> None:
        accepted = packet.stat == wire.ACCEPT
        if accepted and opening.layout == PIGGYBACK and packet.sv_conid > wire.PIGGYBACK_CONID_MAX:
            self.shared.drop("sv_conid_too_large")
            return
        self._remove(opening)
        if not accepted:
            event = ConnectRefused(opening.token, opening.address, "the peer rejected the connection")
            self.shared.outputs.report(event)
            return
        peer = Peer(opening.address, packet.sv_conid, opening.local)
        connection = self.open(peer, packet.sv_conid, opening.layout, client=True, now_us=now_us)
        connection.presence_us = now_us
        self.shared.outputs.report(Connected(peer, opening.token))
