"""How connections come about, how they are found, and how they go.

Ours begin with a connect that is repeated until a con reply comes. Those of others begin with a con reply and are half
open until a packet with the id that we gave comes back. All ids of a node live here, so that none is given twice.

Ids are random, unique, and such that no datagram fits two connections. A type 3 datagram can be read in two layouts.
Both readings name a connection of ours only if the low byte of a stamped id equals the high byte of a piggyback id
(they lie at the same offset: byte 6 of the datagram). Stamped ids of this node therefore have bit 7 set and piggyback
ids bit 15 clear, whatever ids the peers choose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairway.core.events import Address, Connected, ConnectRefused, Peer
from fairway.core.handshakes import Call, HalfOpen, HandshakeMachine
from fairway.core.random_source import RandomSource
from fairway.core.refusals import too_many_peers
from fairway.core.statistics import ENDPOINT_CLOSED, PEERS_FULL
from fairway.protocols.mrp import wire
from fairway.protocols.mrp.connection import Connection, Shared
from fairway.protocols.mrp.options import PIGGYBACK, STAMPED, MrpOptions
from fairway.protocols.mrp.piggyback import PiggybackConnection
from fairway.protocols.mrp.stamped import StampedConnection

LAYOUT_OF = {wire.VER_STAMPED: STAMPED, wire.VER_PIGGYBACK: PIGGYBACK}
_STAMPED_BITS, _PIGGYBACK_BITS = 24, 15
_STAMPED_MARK = 0x80
_DRAWS_MAX = 64
"""After so many taken ids the search goes on upwards from the last one, so that it ends."""


class HalfCall(HalfOpen):
    """A call that got its reply, in the layout that it asked for. A rejected one is remembered as well, so that a
    repeated connect gets the first reply again."""

    __slots__ = ("layout",)

    def __init__(self, layout: str, address: Address, cl_conid: int, local: int, reply: bytes, expires_us: int) -> None:
        super().__init__(address, cl_conid, local, reply, expires_us)
        self.layout = layout


class ConnectionMachine(HandshakeMachine[Connection, HalfCall]):
    """All connections of a machine, from their first packet on. Our calls are known by own id."""

    def __init__(self, options: MrpOptions, random_source: RandomSource) -> None:
        super().__init__(options)
        self._options = options
        self._random_source = random_source
        self._shared = Shared(options, self._outputs)
        self._shared.forget = self._forget
        self._connections: dict[int, Connection] = self._table
        """By own id."""
        self._by_head: dict[bytes, Connection] = {}
        """By what all data, or all acks, that reach it begin with, which holds the ids of both sides."""
        self._callers: dict[tuple[Address, int], Connection] = {}
        """Open connections that others opened, by address and cl_conid: a repeated connect gets its reply again."""

    def _named(self, datagram: bytes, size: int, address: Address) -> Connection | None:
        """Return the one open connection that address and both ids of data or of an ack belong to."""
        found = self._by_head.get(datagram[: wire.STAMPED_HEAD_BYTES]) if size >= wire.STAMPED_BYTES else None
        if found is None and size >= wire.PIGGYBACK_BYTES:
            found = self._by_head.get(datagram[: wire.PIGGYBACK_HEAD_BYTES])
        return found if found is not None and found.address == address else None

    def _completed(self, packet: wire.Data | wire.Ack, address: Address, now_us: int) -> Connection | None:
        """Return the half-open connection that data or an ack belongs to; it is open now."""
        data = packet if isinstance(packet, wire.Data) else None
        stamped = data.as_stamped() if data is not None else packet
        for reading, layout in ((stamped, STAMPED), (data and data.as_piggyback(), PIGGYBACK)):
            if isinstance(reading, wire.StampedData | wire.PiggybackData | wire.Ack):
                call = self._half_opens.by_id(reading.dest_conid)
                if call and (call.caller_id, call.layout, call.address) == (reading.from_conid, layout, address):
                    return self._complete(call, now_us)
        return None

    def _begin(self, peer: Peer, remote: int, layout: str, *, client: bool, now_us: int) -> Connection:
        made = StampedConnection if layout == STAMPED else PiggybackConnection
        connection: Connection = made(self._shared, peer, remote, client, now_us)
        self._connections[peer.local] = connection
        self._by_head.update(dict.fromkeys(connection.heads, connection))
        if not client:
            self._callers[peer.address, remote] = connection
        self.statistics.conversations_opened += 1
        connection.mark_ready(now_us)
        return connection

    def _forget(self, connection: Connection) -> None:
        del self._connections[connection.local]
        for head in connection.heads:
            del self._by_head[head]
        if not connection.client:
            del self._callers[connection.address, connection.remote]
        self._deadlines.set(connection, None)

    def _is_taken(self, number: int) -> bool:
        return number in self._connections or number in self._calls or number in self._half_opens

    def _draw_id(self, layout: str) -> int | None:
        return draw_id(layout, self._random_source, self._is_taken)

    # Calls of others.

    def _take_connect(self, packet: wire.Connect, address: Address, now_us: int) -> None:
        """Answer a call: with the first reply again, or by accepting or rejecting it."""
        if self._is_shut:
            self._outputs.drop(ENDPOINT_CLOSED)
            return
        known = self._callers.get((address, packet.cl_conid))
        if known is not None:
            reply = wire.ConReply(stat=wire.ACCEPT, cl_conid=packet.cl_conid, sv_conid=known.local)
            self._outputs.outbox.send(address, wire.encode(reply), wire.CON_REPLY_BYTES)
            return
        call = self._half_opens.by_caller(address, packet.cl_conid)
        if call is None:
            call = self._answer_call(packet, address, now_us)
            self._half_opens.add(call)
        self._outputs.outbox.send(address, call.answer, wire.CON_REPLY_BYTES)

    def _answer_call(self, packet: wire.Connect, address: Address, now_us: int) -> HalfCall:
        """Accept or reject a call that was not heard before."""
        layout = LAYOUT_OF.get(packet.ver)
        local = self._draw_id(layout) if layout is not None and self._welcomes(layout, packet.cl_conid) else None
        stat = wire.REJECT if local is None else wire.ACCEPT
        reply = wire.ConReply(stat=stat, cl_conid=packet.cl_conid, sv_conid=local or 0)
        expires_us = now_us + self._options.half_open_us
        return HalfCall(layout or "", address, packet.cl_conid, local or 0, wire.encode(reply), expires_us)

    def _welcomes(self, layout: str, cl_conid: int) -> bool:
        if layout not in self._options.accepts or (layout == PIGGYBACK and cl_conid > wire.PIGGYBACK_CONID_MAX):
            return False
        if self._is_full():
            self._outputs.drop(PEERS_FULL)
            return False
        return True

    def _complete(self, call: HalfCall, now_us: int) -> Connection | None:
        """Open a half-open connection whose caller has shown our id."""
        if self._is_full():
            self._outputs.drop(PEERS_FULL)
            return None
        self._half_opens.remove(call)
        peer = Peer(call.address, call.own_id, call.own_id)
        connection = self._begin(peer, call.caller_id, call.layout, client=False, now_us=now_us)
        self._outputs.report(Connected(peer, None))
        return connection

    # Calls of ours.

    def _call(self, address: Address, now_us: int) -> int:
        """Ask for a connection in the layout of the options, and return the token."""
        local = self._draw_id(self._options.layout)
        if local is None:
            raise too_many_peers(len(self._connections) + len(self._calls))
        ver = wire.VER_STAMPED if self._options.layout == STAMPED else wire.VER_PIGGYBACK
        return self._calls.start(local, local, address, wire.encode(wire.Connect(ver=ver, cl_conid=local)), now_us)

    def _wake(self, entry: Any, now_us: int) -> None:
        if not isinstance(entry, Connection):
            self._half_opens.remove(entry)
        elif not entry.ended:
            entry.wake(now_us)

    def _take_reply(self, packet: wire.ConReply, address: Address, now_us: int) -> None:
        """Take the answer to a call of ours, or a duplicate of it."""
        call = self._calls.get(packet.cl_conid)
        if call is not None and call.address == address:
            self._take_first_reply(packet, call, now_us)
            return
        connection = self._connections.get(packet.cl_conid)
        known = connection is not None and connection.client and connection.address == address
        if connection is not None and known and (packet.stat, packet.sv_conid) == (wire.ACCEPT, connection.remote):
            connection.hear_reply(now_us)
        else:
            self._outputs.drop("unexpected_reply")

    def _take_first_reply(self, packet: wire.ConReply, call: Call, now_us: int) -> None:
        layout, accepted = self._options.layout, packet.stat == wire.ACCEPT
        if accepted and layout == PIGGYBACK and packet.sv_conid > wire.PIGGYBACK_CONID_MAX:
            self._outputs.drop("sv_conid_too_large")
            return
        self._calls.remove(call)
        if not accepted:
            event = ConnectRefused(call.token, call.address, "the peer rejected the connection")
            self._outputs.report(event)
            return
        peer = Peer(call.address, packet.sv_conid, call.own_id)
        connection = self._begin(peer, packet.sv_conid, layout, client=True, now_us=now_us)
        connection.presence_us = now_us
        self._outputs.report(Connected(peer, call.token))


def draw_id(layout: str, random_source: RandomSource, taken: Callable[[int], bool]) -> int | None:
    """Draw a free id for a connection of that layout, or return None when all are taken."""
    bits = _STAMPED_BITS if layout == STAMPED else _PIGGYBACK_BITS
    number = 0
    for _ in range(_DRAWS_MAX):
        number = _shape(layout, random_source.bits(bits))
        if number and not taken(number):
            return number
    for step in range(1, 1 << bits):
        number = _shape(layout, (number + step) & ((1 << bits) - 1))
        if number and not taken(number):
            return number
    return None


def _shape(layout: str, drawn: int) -> int:
    return (drawn | _STAMPED_MARK) & wire.CONID_MAX if layout == STAMPED else drawn
