"""Where a machine finds its sessions: by peer, by what stands on a datagram, and by who called."""

from __future__ import annotations

from collections import OrderedDict

from fairway.core.events import Address, Peer
from fairway.protocols.udpc.door import Call, HalfOpen
from fairway.protocols.udpc.session import Session


class Sessions:
    """The open and the lingering sessions of a machine."""

    __slots__ = ("_by_id", "_called_by", "by_peer", "by_route")

    def __init__(self) -> None:
        self.by_peer: dict[Peer, Session] = {}
        self.by_route: dict[tuple[Address, int], Session] = {}
        """By address and sessionID: where a datagram belongs."""
        self._by_id: dict[int, Session] = {}
        self._called_by: dict[Address, Session] = {}
        """The session that each address opened: one, because a new one replaces it."""

    def __len__(self) -> int:
        return len(self.by_peer)

    def all(self) -> list[Session]:
        """Lists the sessions, oldest first."""
        return list(self.by_peer.values())

    def of(self, peer: Peer) -> Session | None:
        return self.by_peer.get(peer)

    def anywhere(self, session_id: int) -> Session | None:
        """Gives a session by its number alone."""
        return self._by_id.get(session_id)

    def called_by(self, address: Address) -> Session | None:
        """Gives the session that this address opened."""
        return self._called_by.get(address)

    def add(self, session: Session) -> None:
        link = session.link
        self.by_peer[link.peer] = session
        self._by_id.setdefault(link.session_id, session)
        self._enter(session)

    def remove(self, session: Session) -> None:
        self._leave(session)
        self.by_peer.pop(session.peer, None)
        if self._by_id.get(session.link.session_id) is session:
            del self._by_id[session.link.session_id]

    def move(self, session: Session, address: Address, now_us: int) -> None:
        """Takes a session to another address."""
        self._leave(session)
        session.move(address, now_us)
        self._enter(session)

    def _enter(self, session: Session) -> None:
        address = session.link.address
        self.by_route[(address, session.link.session_id)] = session
        if session.handshake.called:
            self._called_by[address] = session

    def _leave(self, session: Session) -> None:
        address = session.link.address
        self.by_route.pop((address, session.link.session_id), None)
        if self._called_by.get(address) is session:
            del self._called_by[address]


class Handshakes:
    """Our calls, and the half-open calls of others; the latter are bounded, the oldest goes first."""

    __slots__ = ("_by_caller", "_by_route", "_calls", "_half_open_max", "_ids")

    def __init__(self, half_open_max: int) -> None:
        self._calls: dict[tuple[Address, int], Call] = {}
        self._by_route: OrderedDict[tuple[Address, int], HalfOpen] = OrderedDict()
        """Oldest first. Not a plain dict: finding its first entry costs more with each one deleted before it."""
        self._by_caller: dict[tuple[Address, int], HalfOpen] = {}
        self._ids: dict[int, HalfOpen] = {}
        self._half_open_max = half_open_max

    def calls(self) -> list[Call]:
        return list(self._calls.values())

    def calls_pending(self) -> int:
        return len(self._calls)

    def half_open(self) -> list[HalfOpen]:
        return list(self._by_route.values())

    def call(self, address: Address, syn_index: int) -> Call | None:
        """Gives the call that a SYN+ACK from that address answers."""
        return self._calls.get((address, syn_index))

    def add_call(self, call: Call) -> None:
        self._calls[(call.address, call.syn_index)] = call

    def remove_call(self, call: Call) -> None:
        self._calls.pop((call.address, call.syn_index), None)

    def by_caller(self, address: Address, caller_id: int) -> HalfOpen | None:
        """Gives the half-open session that a SYN opened before."""
        return self._by_caller.get((address, caller_id))

    def by_route(self, address: Address, session_id: int) -> HalfOpen | None:
        """Gives the half-open session that a packet completes."""
        return self._by_route.get((address, session_id))

    def uses(self, session_id: int) -> bool:
        """Tells whether a half-open session has that number."""
        return session_id in self._ids

    def add_half_open(self, half_open: HalfOpen) -> HalfOpen | None:
        """Takes a half-open session, and gives the one that had to go for it."""
        gone = None
        if len(self._by_route) >= self._half_open_max:
            gone = next(iter(self._by_route.values()))
            self.remove_half_open(gone)
        self._by_route[(half_open.address, half_open.session_id)] = half_open
        self._by_caller[(half_open.address, half_open.handshake.caller_id)] = half_open
        self._ids[half_open.session_id] = half_open
        return gone

    def remove_half_open(self, half_open: HalfOpen) -> None:
        self._by_route.pop((half_open.address, half_open.session_id), None)
        self._by_caller.pop((half_open.address, half_open.handshake.caller_id), None)
        self._ids.pop(half_open.session_id, None)
