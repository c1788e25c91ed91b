"""The application on top of a simulated node: it sends a load, notes every outcome, commits and answers.

It behaves as applications do: it waits for `Writable` when a queue is full, opens a new conversation when one has
ended, commits late or never, and answers requests with their body backwards. After the heal it commits everything and
does not rest before one more message has been acknowledged by each target.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from fairway.core import events
from fairway.core.errors import CallerError, NoSuchPeer, NotSupported, QueueFull
from fairway.core.events import Address, Event, Peer, Receipt
from fairway.core.random_source import Seeded
from fairway.sim.disk import Stored
from fairway.sim.node import Node
from fairway.sim.sent_messages import CONNECT, PING, PLAIN, RELIABLE, REQUEST

ACK, REQ, ASY = 0x01, 0x02, 0x04
RECONNECT_US = 500_000
RETRY_US = 100_000
"""When a queue was full and no `Writable` came."""
CHAIN_BYTES_MIN = 16


@dataclass(slots=True, eq=False)
class Target:
    """Somebody this application sends to: an address that it calls, or a peer that called."""

    address: Address
    receiver: int
    remaining: int
    calls: bool
    peer: Peer | None = None
    fresh: bool = True
    """Nothing was sent on this conversation yet: the first body must be one that can be recognised."""
    closing: bool = False
    turn: int = 0
    """Which planned step counts: planning a new one voids the others."""
    proving: int | None = None
    """The token of the message that shows, after the heal, that messages get through."""
    proved: bool = False


class LoadApplication:
    """Sends the configured load to its targets and records what happens."""

    def __init__(self, node: Node, targets: list[Address], random: Seeded) -> None:
        self._node = node
        self._around = node.around
        self._judge = node.around.judge
        self._load = node.around.configuration.load
        self._deferred = node.around.configuration.options.deferred
        self._random = random
        self._healed = False
        self._numbers = 0
        self._stopping = False
        owners = node.around.network.owners
        self.targets = [Target(address, owners[address], self._load.messages, True) for address in targets]
        self._incoming: dict[Peer, Target] = {}
        self._unsent: dict[int, int] = {}
        """What is still to be sent to nodes that call, by node; it moves from one conversation to the next."""
        if self._load.two_way and not self.targets:
            self._unsent = dict.fromkeys(range(node.around.configuration.nodes), self._load.messages)
        self._connecting: dict[int, Target] = {}
        self._closed: dict[Peer, bool] = {}
        self._open: dict[Receipt, tuple[bytes, ...]] = {}
        self._parts: dict[tuple[Peer, str], bytearray] = {}
        self._report: dict[type[Event], Callable[[Any], object]] = {
            events.Connected: self._connected,
            events.ConnectRefused: self._not_connected,
            events.ConnectUnknown: self._not_connected,
            events.MessageReceived: self._message,
            events.MessagesReceived: self._messages,
            events.PartReceived: self._part,
            events.RequestReceived: self._request,
            events.ResponseReceived: lambda event: self._judge.responded(node.index, event.token, event.body),
            events.Delivered: self._delivered,
            events.DeliveryUnknown: self._failed,
            events.Refused: self._failed,
            events.Writable: self._writable,
            events.PingAnswered: lambda event: self._judge.answered(node.index, event.token, PING),
            events.PeerMoved: lambda _: None,
            events.Closed: self._ended,
        }

    # Lives.

    def start(self, resumed: list[Peer]) -> None:
        """Go on with restored sessions and open the others; a target without session is named again, because
        that a process named an address is not part of a snapshot."""
        for peer in [peer for peer in self._incoming if peer not in resumed]:
            self._drop_incoming(peer)
        for target in [*self.targets, *self._incoming.values()]:
            if target.peer in resumed and (target.peer.session is not None or not target.calls):
                self._plan(target, 0)
            else:
                target.peer = None
                self._connect(target)

    def crash(self) -> None:
        """Forget what a process forgets."""
        self._connecting.clear()
        self._closed.clear()
        self._open.clear()
        self._parts.clear()
        for target in [*self.targets, *self._incoming.values()]:
            target.proving = None
            target.closing = False

    def heal(self) -> None:
        """Turn into a diligent application: commit what it had left lying, and prove that messages get through."""
        self._healed = True
        for receipt, bodies in list(self._open.items()):
            self._commit(Stored(receipt, bodies))
        for target in self.targets:
            self._plan(target, 0)

    def stop(self) -> None:
        """Close every conversation, and accept no other."""
        self._stopping = True
        self._node.machine.close(None, self._now_us)

    def close(self, which: int) -> None:
        """Close one conversation in mid-flight; the application opens another when it has ended."""
        target = self.targets[which % len(self.targets)] if self.targets else None
        if target is not None and target.peer is not None and target.peer.session is not None:
            target.closing = True
            self._node.machine.close(target.peer, self._now_us)

    def done(self) -> bool:
        """Return whether everything was sent and has its outcome and, after the heal, each target has proved itself."""
        if self._judge.open_tokens(self._node.index):
            return False
        if any(target.peer is not None and target.remaining for target in self._incoming.values()):
            return False
        return all(target.remaining == 0 and (target.proved or not self._healed) for target in self.targets)

    def open_receipts(self) -> dict[Peer, list[Receipt]]:
        """Return what was delivered and not committed."""
        receipts: dict[Peer, list[Receipt]] = {}
        for receipt in self._open:
            receipts.setdefault(receipt.peer, []).append(receipt)
        return receipts

    def still_open(self) -> list[Peer]:
        """List the conversations that have not been reported as closed."""
        peers = [target.peer for target in [*self.targets, *self._incoming.values()]]
        return [peer for peer in peers if peer is not None and peer.session is not None]

    @property
    def _now_us(self) -> int:
        return self._around.schedule.now_us

    # Sending.

    def _connect(self, target: Target) -> None:
        if target.peer is not None or self._stopping:
            return
        self._node.ledger.named(target.address)
        try:
            token = self._node.machine.connect(target.address, self._now_us)
        except CallerError:
            self._node.later(RECONNECT_US, self._connect, target)
            return
        self._judge.asked(self._node.index, token, CONNECT)
        self._connecting[token] = target

    def _plan(self, target: Target, delay_us: int) -> None:
        target.turn += 1
        self._node.later(delay_us, self._step, (target, target.turn))

    def _step(self, planned: tuple[Target, int]) -> None:
        target, turn = planned
        if turn != target.turn or target.peer is None or target.closing or self._stopping:
            return
        try:
            if target.remaining:
                self._send_some(target, target.peer)
            elif self._healed and target.calls and not target.proved and target.proving is None:
                self._prove(target, target.peer)
        except (QueueFull, NoSuchPeer):
            self._plan(target, RETRY_US)
            return
        if target.remaining or (self._healed and target.calls and not target.proved and target.proving is None):
            self._plan(target, self._load.interval_us or RETRY_US)

    def _send_some(self, target: Target, peer: Peer) -> None:
        load = self._load
        count = min(load.batch, target.remaining)
        if load.interval_us:
            count = self._random.between(1, count)
        if load.ping and self._random.happens(load.ping):
            self._ping(peer)
        while target.remaining and count:
            if load.plain or load.request or load.batch == 1:
                self._send_one(target, peer)
                sent = 1
            else:
                sent = self._send_many(target, peer, min(count, target.remaining))
            count -= sent if load.interval_us or not sent else 0
            if not sent:
                return

    def _send_many(self, target: Target, peer: Peer, wanted: int) -> int:
        bodies = [self._body(target, first) for first in [target.fresh] + [False] * (wanted - 1)]
        tokens = self._node.machine.send_many(peer, bodies, self._now_us)
        for token, body in zip(tokens, bodies, strict=False):
            self._judge.accepted(self._node.index, peer, token, body, RELIABLE)
        self._sent(target, peer, len(tokens))
        return len(tokens)

    def _send_one(self, target: Target, peer: Peer) -> None:
        load = self._load
        flags, kind = self._kind(load.plain, load.request, load.asynchronous)
        body = self._body(target, target.fresh)
        token = self._node.machine.send(peer, body, self._now_us, flags=flags)
        self._judge.accepted(self._node.index, peer, token, body, kind)
        self._sent(target, peer, 1)

    def _body(self, target: Target, named: bool) -> bytes:
        self._numbers += 1
        return self._around.bodies.make(self._node.index, target.receiver, self._numbers, named)

    def _sent(self, target: Target, peer: Peer, count: int) -> None:
        target.remaining -= count
        if count:
            target.fresh = False
            self._node.disk.sent(peer)

    def _kind(self, plain: int, request: int, asynchronous: int) -> tuple[int | None, str]:
        draw = self._random.below(1_000_000) if plain or request else 1_000_000
        if draw < plain:
            return 0, PLAIN
        if draw < plain + request:
            return REQ | (ASY if self._random.happens(asynchronous) else 0), REQUEST
        return None, RELIABLE

    def _prove(self, target: Target, peer: Peer) -> None:
        self._numbers += 1
        body = self._around.bodies.named(self._node.index, target.receiver, self._numbers) + b"proof"
        target.proving = self._node.machine.send(peer, body, self._now_us)
        self._node.disk.sent(peer)
        self._judge.accepted(self._node.index, peer, target.proving, body, RELIABLE)

    def _ping(self, peer: Peer) -> None:
        try:
            token = self._node.machine.ping(peer, self._now_us)
        except NotSupported:
            return
        self._judge.asked(self._node.index, token, PING)

    # Events.

    def report(self, event: Event) -> None:
        if self._closed and getattr(event, "peer", None) in self._closed:
            self._judge.accuse("no event after Closed", f"node {self._node.index}: {event!r:.200}")
        self._report[type(event)](event)

    def _connected(self, event: events.Connected) -> None:
        peer = event.peer
        if event.token is not None:
            self._judge.answered(self._node.index, event.token, CONNECT)
            target = self._connecting.pop(event.token, None)
            if target is not None:
                target.peer = peer
                target.fresh = True
                target.closing = False
                self._plan(target, 0)
            return
        receiver = self._around.network.owners.get(peer.address)
        if receiver is not None and receiver < self._around.configuration.nodes:
            remaining = self._unsent.pop(receiver, 0)
            target = self._incoming[peer] = Target(peer.address, receiver, remaining, False)
            target.peer = peer
            self._plan(target, 0)

    def _not_connected(self, event: events.ConnectRefused | events.ConnectUnknown) -> None:
        self._judge.answered(self._node.index, event.token, CONNECT)
        target = self._connecting.pop(event.token, None)
        if target is not None:
            self._node.later(RECONNECT_US, self._connect, target)

    def _message(self, event: events.MessageReceived) -> None:
        body = event.body
        spooled = self._parts.pop((event.peer, event.id), None) if isinstance(event.id, str) and self._parts else None
        if spooled is not None:
            body = bytes(spooled)
        kind = RELIABLE if event.reliable else PLAIN
        self._judge.delivered(self._node.index, event.peer, event.id, body, kind)
        self._take(Stored(event.receipt, (body,)))

    def _messages(self, event: events.MessagesReceived) -> None:
        kind = RELIABLE if event.reliable else PLAIN
        for identity, body in enumerate(event.bodies, event.first):
            self._judge.delivered(self._node.index, event.peer, identity, body, kind)
        bodies = tuple(event.bodies)
        if self._load.split and len(bodies) > 1 and self._random.happens(self._load.split):
            cut = self._random.between(1, len(bodies) - 1)
            self._take(Stored(Receipt(event.peer, event.first + cut, len(bodies) - cut), bodies[cut:]))
            self._take(Stored(Receipt(event.peer, event.first, cut), bodies[:cut]))
        else:
            self._take(Stored(event.receipt, bodies))

    def _part(self, event: events.PartReceived) -> None:
        spooled = self._parts.setdefault((event.peer, event.id), bytearray(event.total))
        spooled[event.offset : event.offset + len(event.body)] = event.body

    def _request(self, event: events.RequestReceived) -> None:
        if event.token is not None:
            self._judge.responded(self._node.index, event.token, event.body)
        self._judge.delivered(self._node.index, event.peer, event.id, event.body, REQUEST)
        self._take(Stored(event.receipt, (event.body,), partial(self._answer, event)))

    def _answer(self, event: events.RequestReceived) -> None:
        if not self._healed and self._random.happens(self._load.answer_never):
            return
        body = event.body[::-1]
        chained = event.token is None and len(body) >= CHAIN_BYTES_MIN and self._random.happens(self._load.chain)
        flags = ACK | REQ if chained else ACK
        try:
            token = self._node.machine.send(event.peer, body, self._now_us, flags=flags, answers=event.id)
        except CallerError:
            return
        if chained:
            self._judge.accepted(self._node.index, event.peer, token, body, REQUEST)

    def _delivered(self, event: events.Delivered) -> None:
        for token in event.tokens:
            self._judge.settled(self._node.index, token, "delivered")
        for target in self.targets if self._healed else ():
            if target.proving is not None and target.proving in event.tokens:
                target.proving = None
                target.proved = True

    def _failed(self, event: events.DeliveryUnknown | events.Refused) -> None:
        outcome = "unknown" if isinstance(event, events.DeliveryUnknown) else "refused"
        for token in event.tokens:
            self._judge.settled(self._node.index, token, outcome)
        for target in self.targets if self._healed else ():
            if target.proving is not None and target.proving in event.tokens:
                target.proving = None
                self._plan(target, RETRY_US)

    def _writable(self, event: events.Writable) -> None:
        for target in [*self.targets, *self._incoming.values()]:
            if target.peer == event.peer and not self._load.interval_us:
                self._plan(target, 0)

    def _ended(self, event: events.Closed) -> None:
        peer = event.peer
        self._judge.closed(self._node.index, peer)
        self._node.disk.forget(peer)
        if peer.session is not None:
            self._closed[peer] = True
        self._drop_incoming(peer)
        for target in self.targets:
            if target.peer == peer:
                target.peer = None
                target.proving = None
                self._node.later(RECONNECT_US, self._connect, target)

    def _drop_incoming(self, peer: Peer) -> None:
        target = self._incoming.pop(peer, None)
        if target is not None and target.remaining:
            self._unsent[target.receiver] = target.remaining

    # Committing.

    def _take(self, stored: Stored) -> None:
        """Decide when what was delivered is committed."""
        load = self._load
        if not self._deferred:
            for body in stored.bodies if self._around.configuration.restarts else ():
                self._judge.committed(self._node.index, stored.receipt.peer, body, self._node.process)
        if not load.commit_us and not load.commit_never and not self._deferred:
            self._node.machine.commit(stored.receipt, self._now_us)
            if stored.afterwards is not None:
                stored.afterwards()
            return
        self._open[stored.receipt] = stored.bodies
        if not self._healed and self._random.happens(load.commit_never):
            return
        delay_us = 0 if self._healed or not load.commit_us else self._random.below(load.commit_us)
        self._node.later(delay_us, self._commit, stored)

    def _commit(self, stored: Stored) -> None:
        if self._open.pop(stored.receipt, None) is None:
            return
        if self._deferred:
            self._node.disk.pending.append(stored)
            self._node.write()
            return
        self._node.machine.commit(stored.receipt, self._now_us)
        if stored.afterwards is not None:
            stored.afterwards()
