"""What arrives at one endpoint, and the state of its conversations, on their way into the journal."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from fairway.core import events
from fairway.core.addresses import device_of, format_address
from fairway.core.errors import CallerError, DamagedSnapshot, NoSuchPeer
from fairway.core.events import Peer, Receipt
from fairway.core.machine import Machine
from fairway.gateway.guard import Guard
from fairway.gateway.journal import Row, packed
from fairway.net.endpoint import Endpoint
from fairway.net.layers import Screen

if TYPE_CHECKING:
    from fairway.gateway.committer import Committer
    from fairway.gateway.spool import Spool

SPOOLING = "rup"
KEYS_MAX = 16_384
"""Names of conversations that are kept, because every commit needs them."""


class Arrived(NamedTuple):
    """Messages that wait for their commit."""

    adapter: EndpointAdapter
    receipt: Receipt
    kind: str
    reliable: bool
    received_us: int
    bodies: Sequence[bytes]
    spool: Spooled | None = None

    def row(self, offset: int) -> Row:
        """Return the row of the journal, with the first message at this offset."""
        peer, first, count = self.receipt
        name = self.adapter.name_of(peer)
        if self.spool is not None:
            size, sizes, body = self.spool.size_bytes, None, b""
        else:
            size, sizes, body = packed(self.bodies)  # type: ignore[assignment]
        return Row(
            offset, count, self.adapter.protocol, name, peer.session, first, self.kind, self.reliable,
            self.received_us, size, sizes, body, self.spool.name if self.spool else None, port=self.adapter.port,
            device=device_of(peer.address),
        )  # fmt: skip


class Spooled(NamedTuple):
    """A message that lies in a file."""

    name: str
    size_bytes: int


class EndpointAdapter:
    """The `EventHandler` of the gateway. `url` names the endpoint in the journal, so that a restart finds its
    conversations."""

    def __init__(self, endpoint: Endpoint, arrivals: Committer, spooler: Spool, guard: Guard) -> None:
        self.endpoint = endpoint
        self.url = endpoint.url
        self.protocol = endpoint.protocol
        self.port = urlsplit(self.url).port
        self.screen: Screen = partial(guard.admits, self.protocol)
        self.outer_screen: Screen | None = partial(guard.lets_in, self.protocol) if guard.has_lists else None
        self._machine: Machine = endpoint.machine
        self._arrivals = arrivals
        self._spooler = spooler
        self._guard = guard
        self._now_us = endpoint.driver.now_us
        self._names: dict[Peer, str] = {}
        """Addresses as the table has them; a session keeps one for its life."""

    def name_of(self, peer: Peer) -> str:
        """Return host:port of a peer."""
        return self._names.get(peer) or format_address(peer.address)

    # Events.

    def message(self, event: events.MessageReceived) -> None:
        spool = self._spooler.finished(event) if self.protocol == SPOOLING else None
        kind = "message" if event.reliable else "plain"
        self._arrivals.arrived(Arrived(self, event.receipt, kind, event.reliable, wall_us(), (event.body,), spool))

    def messages(self, event: events.MessagesReceived) -> None:
        kind = "message" if event.reliable else "plain"
        self._arrivals.arrived(Arrived(self, event.receipt, kind, event.reliable, wall_us(), event.bodies))

    def request(self, event: events.RequestReceived) -> None:
        self._arrivals.arrived(Arrived(self, event.receipt, "request", True, wall_us(), (event.body,)))

    def part(self, event: events.PartReceived) -> None:
        self._spooler.part(self.endpoint, event)

    def connected(self, event: events.Connected) -> None:
        self._names[event.peer] = format_address(event.peer.address)
        self._guard.opened(event.peer, self._now_us())
        if event.peer.session is not None:
            self._arrivals.changed(self, event.peer)

    def moved(self, event: events.PeerMoved) -> None:
        self._names[event.peer] = format_address(event.address)
        self._guard.moved(event.peer, event.address, self._now_us())
        self._arrivals.changed(self, event.peer)

    def closed(self, event: events.Closed) -> None:
        self._names.pop(event.peer, None)
        self._guard.closed(event.peer, self._now_us())
        self._arrivals.ended(self, event.peer)

    def ended(self, reason: str) -> None:
        """Nothing is left to do: whatever was acknowledged is in the journal."""

    # What survives.

    def pieces(self, peer: Peer, committing: Sequence[Receipt]) -> tuple[bytes, bytes] | None:
        """Return the state of a conversation as it will be after the commit, and what the commit adds to its memory.

        None if the conversation has ended: then its duplicates are not answered any more either.
        """
        try:
            return self._machine.snapshot_in_pieces(peer, committing)
        except NoSuchPeer:
            return None

    def restore(self, states: Sequence[bytes], complain: Callable[[str], None]) -> None:
        """Restore the conversations of before."""
        now_us = self._now_us()
        for state in states:
            try:
                peer = self._machine.restore(state, now_us)
            except (DamagedSnapshot, CallerError) as error:
                complain(f"{self.url}: a conversation is lost, its peer must connect again: {error}")
                continue
            if peer not in self._names:
                self._names[peer] = format_address(peer.address)
                self._guard.opened(peer, now_us)

    def current(self) -> list[tuple[str, bytes]]:
        """Return the state of every conversation under its key."""
        found = [(peer, self.pieces(peer, ())) for peer in self._machine.peers()]
        return [(key_of(peer), pieces[0]) for peer, pieces in found if pieces is not None and pieces[0]]

    def answer_restored(self) -> None:
        """Answer the requests that were committed before the restart and perhaps not answered."""
        if self.protocol == "udpc":
            for peer in self._machine.peers():
                for request in self._machine.unanswered(peer):  # type: ignore[attr-defined]  # udpc's own
                    self.answer(peer, request)

    # After the commit.

    def acknowledge(self, arrived: Arrived) -> None:
        """Let the acknowledgements leave, and the answer of a request."""
        receipt = arrived.receipt
        self.endpoint.commit(receipt)
        if arrived.kind == "request" and isinstance(receipt.first, int):
            self.answer(receipt.peer, receipt.first)

    def answer(self, peer: Peer, request: int) -> None:
        """Answer a request with nothing: it is on disk."""
        # The session may have ended, or its send queue be full: then the peer's outcome is unknown, as it must be.
        with suppress(CallerError):
            self.endpoint.answer(peer, request, b"")


@lru_cache(KEYS_MAX)
def key_of(peer: Peer) -> str:
    """Return the name of a conversation in the journal."""
    return json.dumps(peer, separators=(",", ":"))


def wall_us() -> int:
    return time.time_ns() // 1_000
