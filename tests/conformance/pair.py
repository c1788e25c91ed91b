"""A deterministic pump: machines, a virtual clock, datagrams in flight, and hooks that lose, copy and hold them.

It is not the simulator and shares nothing with it but `core/machine.py`, so that each can catch the other's mistakes.
What must always hold is asserted at every step: one outcome per token, no event of a peer after `Closed`, and a
deadline in the future after each wake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from fairway.core.events import (
    Address,
    Closed,
    Connected,
    ConnectRefused,
    ConnectUnknown,
    Delivered,
    DeliveryUnknown,
    Event,
    MessageReceived,
    MessagesReceived,
    Peer,
    PingAnswered,
    Receipt,
    Refused,
    RequestReceived,
    ResponseReceived,
)
from fairway.core.machine import Buffer, Machine, Transmit, settle
from fairway.core.random_source import Seeded

STEPS_MAX = 3_000_000
"""More steps than any scenario needs: a machine that keeps itself busy fails here instead of hanging."""
WAKES_IN_A_ROW_MAX = 16
"""Wakes of one node at one instant: reporting may cause more work, but not for ever."""

JOINED_MAX = 64
"""Datagrams of a super-buffer: what one system call of a real socket takes at the most."""

Received = MessageReceived | RequestReceived


class Datagram(NamedTuple):
    """One datagram in flight; `number` counts all that were sent before it."""

    number: int
    sent_us: int
    source: Address
    target: Address
    data: bytes


Predicate = Callable[[Datagram], bool]


def cut(data: Buffer, segment_bytes: int | None) -> Iterator[bytes]:
    """Return the datagrams of a super-buffer one by one."""
    step = segment_bytes or max(1, len(data))
    for start in range(0, max(1, len(data)), step):
        yield bytes(data[start : start + step])


class Node:
    """One machine at one address, with an application that keeps what is reported and commits it (or not)."""

    def __init__(self, machine: Machine, address: Address, *, commits: bool) -> None:
        self.machine = machine
        self.address = address
        self.commits = commits
        """Commit each message when it is reported; otherwise receipts wait in `uncommitted`."""
        self.events: list[Event] = []
        """Everything reported, batches flattened to single messages."""
        self.received: list[Received] = []
        self.uncommitted: list[Receipt] = []
        self.outcomes: dict[int, Event] = {}
        self.closed: dict[Peer, Closed] = {}
        self.deadline_us: int | None = None
        self.wakes = 0
        self.now_us = 0
        self.on_received: Callable[[Received], None] | None = None

    @property
    def bodies(self) -> list[bytes]:
        """The bodies received, in the order in which they were delivered."""
        return [message.body for message in self.received]

    def report(self, event: Event) -> None:
        """Take one event as an application does, and check what must always hold."""
        if isinstance(event, MessagesReceived):
            for message in event:
                self.report(message)
            return
        self._check_not_closed(event)
        self.events.append(event)
        for token in _tokens(event):
            earlier = self.outcomes.setdefault(token, event)
            assert earlier is event, f"token {token} has two outcomes: {earlier} and {event}"
        if isinstance(event, MessageReceived | RequestReceived):
            self._take(event)
        elif isinstance(event, Closed):
            self.closed[event.peer] = event

    def _take(self, message: Received) -> None:
        self.received.append(message)
        if self.on_received is not None:
            self.on_received(message)
        if self.commits:
            self.machine.commit(message.receipt, self.now_us)
        else:
            self.uncommitted.append(message.receipt)

    def _check_not_closed(self, event: Event) -> None:
        peer = getattr(event, "peer", None)
        if isinstance(event, Connected):
            self.closed.pop(event.peer, None)
        assert peer not in self.closed, f"{event} came after {self.closed[peer]}"

    def outcome(self, token: int) -> str:
        """Name the outcome of a token so far, or `none`."""
        return type(self.outcomes[token]).__name__ if token in self.outcomes else "none"

    def all_of(self, kind: type[Event]) -> list[Event]:
        """List the events of one class."""
        return [event for event in self.events if isinstance(event, kind)]


def _tokens(event: Event) -> list[int]:
    match event:
        case Delivered() | DeliveryUnknown() | Refused():
            return list(event.tokens)
        case ConnectRefused() | ConnectUnknown() | ResponseReceived() | PingAnswered():
            return [event.token]
        case Connected() | RequestReceived():
            return [] if event.token is None else [event.token]
        case _:
            return []


class Hold:
    """Keeps the datagrams that a predicate names until they are released."""

    def __init__(self, pump: Pump, predicate: Predicate) -> None:
        self._pump = pump
        self.predicate = predicate
        self.held: list[Datagram] = []
        self.active = True

    def release(self) -> None:
        """Deliver everything held after one delay, in the order of sending, and hold nothing more."""
        self.active = False
        for datagram in self.held:
            self._pump.fly(datagram)
        self.held = []


class Pump:
    """Carries datagrams between nodes with a fixed one-way delay. Nothing happens but through its methods."""

    def __init__(self, *, delay_us: int = 20_000, batched: bool = False, start_us: int = 1_000_000) -> None:
        self.now_us = start_us
        self.delay_us = delay_us
        self.batched = batched
        self.nodes: dict[Address, Node] = {}
        self.log: list[Datagram] = []
        self.records = True
        """Keep every datagram in `log`; long transfers switch it off."""
        self.sent = 0
        self.lost = 0
        self.late_us = 0
        """How much later than asked every timer comes, as on a busy event loop."""
        self._losses: list[Predicate] = []
        self._duplicated: list[tuple[Predicate, int, int]] = []
        self._holds: list[Hold] = []
        self._flying: list[tuple[int, int, Datagram]] = []
        self._arrivals = 0

    def add(self, machine: Machine, address: Address, *, commits: bool = True) -> Node:
        """Put a machine at an address, in place of the one that was there before."""
        node = Node(machine, address, commits=commits)
        node.now_us = self.now_us
        self.nodes[address] = node
        self.settle(node)
        return node

    def remove(self, node: Node) -> None:
        """Take a node away: what is sent to it is lost, and it is not woken again."""
        del self.nodes[node.address]

    # Faults.

    def lose(self, predicate: Predicate, count: int | None = None) -> None:
        """Lose the datagrams that the predicate names, or the first `count` of them."""
        self._losses.append(predicate if count is None else _first(count, predicate))

    def lose_at_random(self, per_million: int, seed: int, predicate: Predicate = lambda _: True) -> None:
        """Lose each datagram that the predicate names with the same probability."""
        random = Seeded(seed)
        self._losses.append(lambda datagram: predicate(datagram) and random.happens(per_million))

    def duplicate(self, predicate: Predicate, count: int = 1, apart_us: int = 0) -> None:
        """Duplicate each datagram that the predicate names, the duplicates `apart_us` apart."""
        self._duplicated.append((predicate, count, apart_us))

    def hold(self, predicate: Predicate) -> Hold:
        """Keep the datagrams that the predicate names until released."""
        hold = Hold(self, predicate)
        self._holds.append(hold)
        return hold

    def heal(self) -> None:
        """End all losses and duplicates."""
        self._losses.clear()
        self._duplicated.clear()

    def inject(self, data: bytes, source: Address, target: Address) -> None:
        """Deliver bytes that no node sent to a node now."""
        node = self.nodes[target]
        node.now_us = self.now_us
        node.machine.receive(data, source, self.now_us)
        self.settle(node)

    # The way of a datagram.

    def _transmit(self, source: Address, transmits: list[Transmit]) -> None:
        for transmit in transmits:
            self._transmit_one(source, transmit)

    def _transmit_one(self, source: Address, transmit: Transmit) -> None:
        for data in cut(transmit.data, transmit.segment_bytes):
            datagram = Datagram(self.sent, self.now_us, source, transmit.address, data)
            self.sent += 1
            if self.records:
                self.log.append(datagram)
            self._pass(datagram)

    def _pass(self, datagram: Datagram) -> None:
        verdicts = [loses(datagram) for loses in self._losses]
        if any(verdicts):
            self.lost += 1
            return
        for hold in self._holds:
            if hold.active and hold.predicate(datagram):
                hold.held.append(datagram)
                return
        self.fly(datagram)
        for predicate, count, apart_us in self._duplicated:
            if predicate(datagram):
                for copy in range(1, count + 1):
                    self.fly(datagram, copy * apart_us)

    def fly(self, datagram: Datagram, later_us: int = 0) -> None:
        """Send a datagram on its way."""
        self._arrivals += 1
        heappush(self._flying, (self.now_us + self.delay_us + later_us, self._arrivals, datagram))

    # Time.

    def settle(self, node: Node) -> None:
        """Send and report what an input to the node caused."""
        node.now_us = self.now_us

        def arm(deadline_us: int | None) -> None:
            node.deadline_us = deadline_us

        settle(node.machine, lambda transmits: self._transmit(node.address, transmits), node.report, arm)

    def next_us(self) -> int | None:
        """Return when the next datagram arrives or the next timer runs out."""
        nodes = self.nodes.values()
        times = [node.deadline_us + self.late_us for node in nodes if node.deadline_us is not None]
        if self._flying:
            times.append(self._flying[0][0])
        return max(self.now_us, min(times)) if times else None

    def run(self, duration_us: int) -> None:
        """Advance the time."""
        self.run_until(lambda: False, duration_us)

    def run_until(self, reached: Callable[[], bool], limit_us: int) -> bool:
        """Advance the time until the condition holds, at most `limit_us`; return whether it does."""
        end_us = self.now_us + limit_us
        for _ in range(STEPS_MAX):
            if reached():
                return True
            next_us = self.next_us()
            if next_us is None or next_us > end_us:
                self.now_us = end_us
                return reached()
            self.now_us = next_us
            self._arrive()
            self._wake()
        raise AssertionError(f"{STEPS_MAX} steps were not enough: a machine keeps itself busy")

    def _arrive(self) -> None:
        arrived: list[Datagram] = []
        while self._flying and self._flying[0][0] <= self.now_us:
            arrived.append(heappop(self._flying)[2])
        for data, segment_bytes, source, target in batches(arrived) if self.batched else _singles(arrived):
            node = self.nodes.get(target)
            if node is not None:
                node.now_us = self.now_us
                node.machine.receive(data, source, self.now_us, segment_bytes)
                self.settle(node)

    def _wake(self) -> None:
        for node in list(self.nodes.values()):
            for _ in range(WAKES_IN_A_ROW_MAX):
                if node.deadline_us is None or node.deadline_us + self.late_us > self.now_us:
                    break
                reported = len(node.events)
                node.wakes += 1
                node.now_us = self.now_us
                node.machine.wake(self.now_us)
                self.settle(node)
                ahead = _ahead(node.deadline_us, self.now_us)
                assert ahead or len(node.events) > reported, f"{node.deadline_us} is not after {self.now_us}"
            else:
                raise AssertionError("the deadline stays in the past however often the machine is woken")

    # What an application does, with the settling that belongs to it.

    def connect(self, node: Node, address: Address) -> int:
        """Open a conversation and return the token."""
        token = node.machine.connect(address, self.now_us)
        self.settle(node)
        return token

    def connected(self, node: Node, address: Address, limit_us: int = 6_000_000) -> Peer:
        """Open a conversation and wait until it is open."""
        token = self.connect(node, address)
        assert self.run_until(lambda: token in node.outcomes, limit_us), "the connect got no outcome"
        event = node.outcomes[token]
        assert isinstance(event, Connected), f"the connect ended as {event}"
        return event.peer

    def send(self, node: Node, peer: Peer, body: bytes, *, flags: int | None = None, answers: int | None = None) -> int:
        """Queue one message and return the token."""
        token = node.machine.send(peer, body, self.now_us, flags=flags, answers=answers)
        self.settle(node)
        return token

    def commit_all(self, node: Node) -> None:
        """Commit every receipt that waits."""
        receipts, node.uncommitted = node.uncommitted, []
        for receipt in receipts:
            node.machine.commit(receipt, self.now_us)
        self.settle(node)

    def close(self, node: Node, peer: Peer | None) -> None:
        """Close one conversation, or all."""
        node.machine.close(peer, self.now_us)
        self.settle(node)

    def finished(self, node: Node, tokens: list[int], limit_us: int = 60_000_000) -> bool:
        """Advance the time until every token has its outcome; return whether all have."""
        left = list(tokens)

        def reached() -> bool:
            while left and left[-1] in node.outcomes:
                left.pop()
            return not left

        return self.run_until(reached, limit_us)

    def delivers(self, node: Node, tokens: Iterable[int], limit_us: int = 60_000_000) -> None:
        """Advance the time until every token has its outcome, and check that all are delivered."""
        assert self.finished(node, list(tokens), limit_us), "a message has no outcome"
        assert {node.outcome(token) for token in tokens} == {"Delivered"}

    def sent_by(self, node: Node, since: int = 0) -> list[Datagram]:
        """List the recorded datagrams of a node, from the `since`-th datagram of all on."""
        return [datagram for datagram in self.log if datagram.source == node.address and datagram.number >= since]


def _ahead(deadline_us: int | None, now_us: int) -> bool:
    return deadline_us is None or deadline_us > now_us


Arrival = tuple[bytes, int | None, Address, Address]


def _singles(arrived: list[Datagram]) -> Iterator[Arrival]:
    for datagram in arrived:
        yield datagram.data, None, datagram.source, datagram.target


def batches(arrived: list[Datagram]) -> Iterator[Arrival]:
    """Join neighbours of one way to super-buffers: equal sizes, only the last may be shorter."""
    run: list[Datagram] = []
    for datagram in arrived:
        if run and not _joins(run, datagram):
            yield _joined(run)
            run = []
        run.append(datagram)
    if run:
        yield _joined(run)


def _joins(run: list[Datagram], datagram: Datagram) -> bool:
    size = len(run[0].data)
    same_way = (run[0].source, run[0].target) == (datagram.source, datagram.target)
    return same_way and len(run) < JOINED_MAX and len(run[-1].data) == size and 0 < len(datagram.data) <= size


def _joined(run: list[Datagram]) -> Arrival:
    data = b"".join(datagram.data for datagram in run)
    return data, len(run[0].data) if len(run) > 1 else None, run[0].source, run[0].target


def _first(count: int, predicate: Predicate) -> Predicate:
    left = [count]

    def loses(datagram: Datagram) -> bool:
        if left[0] == 0 or not predicate(datagram):
            return False
        left[0] -= 1
        return True

    return loses
