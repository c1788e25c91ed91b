"""A server that crashes and comes back from its snapshot goes on: nothing is lost, nothing is delivered twice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from typing import Any

import pytest

from fairway.core.errors import AlreadyOpen, DamagedSnapshot
from fairway.core.events import Peer, Receipt
from fairway.core.machine import Buffer, Machine
from fairway.core.random_source import Seeded
from fairway.core.snapshots import seal

from .pair import Node, Received
from .variants import (
    BOTH,
    CLIENT,
    MRP_PIGGYBACK,
    MRP_STAMPED,
    PYDEVTS,
    RUP,
    SECOND,
    SERVER,
    UDPC,
    Case,
    Pair,
    numbered,
    over,
)


class Journal:
    """What a gateway makes durable: bodies, and in the same step the snapshot that recognises their duplicates."""

    def __init__(self, node: Node) -> None:
        self.bodies: list[bytes] = []
        self.snapshots: dict[Peer, bytes] = {}
        self._receipts: dict[Peer, list[Receipt]] = {}
        self.watch(node)

    def watch(self, node: Node) -> None:
        """Take in what the node receives from now on."""
        self._receipts = {}

        def write(message: Received) -> None:
            self.bodies.append(message.body)
            receipts = self._receipts.setdefault(message.peer, [])
            receipts.append(message.receipt)
            self.snapshots[message.peer] = node.machine.snapshot(message.peer, committing=receipts)

        node.on_received = write


def restart(pair: Pair, case: Case, snapshots: Sequence[bytes], *, commits: bool = True) -> Node:
    """Replace the server by a new one that has only the snapshots."""
    machine = case.machine(99)
    for snapshot in snapshots:
        machine.restore(snapshot, pair.pump.now_us)
    pair.server = pair.pump.add(machine, SERVER, commits=commits)
    return pair.server


@over(deferred=(True,), batched=BOTH)
def test_a_crash_after_the_snapshot_and_before_the_acknowledgement_loses_and_doubles_nothing(case: Case) -> None:
    pair = case.pair(commits=False)
    journal = Journal(pair.server)
    tokens = pair.send_all(numbered(5))
    pair.pump.run(100_000)
    assert sorted(journal.bodies) == numbered(5)
    assert {pair.client.outcome(token) for token in tokens} == {"none"}
    journal.watch(restart(pair, case, list(journal.snapshots.values())))
    assert pair.pump.finished(pair.client, tokens)
    more = pair.send_all(numbered(5, tag="n"))
    assert pair.pump.finished(pair.client, more)
    assert {pair.client.outcome(token) for token in tokens + more} == {"Delivered"}
    assert sorted(journal.bodies) == numbered(5) + numbered(5, tag="n")
    assert pair.client.closed == {}


@over(deferred=BOTH)
def test_copies_of_what_was_acknowledged_before_the_crash_are_recognised_after_it(case: Case) -> None:
    pair = case.pair()
    journal = Journal(pair.server)
    pair.deliver(numbered(6))
    duplicates = [datagram.data for datagram in pair.pump.log if case.of_kind("data", CLIENT)(datagram)]
    journal.watch(restart(pair, case, list(journal.snapshots.values())))
    sent = pair.pump.sent
    for copy in duplicates:
        pair.pump.inject(copy, CLIENT, SERVER)
    pair.pump.run(100_000)
    assert sorted(journal.bodies) == numbered(6)
    assert len([d for d in pair.pump.sent_by(pair.server, sent) if case.of_kind("ack")(d)]) >= 1
    assert pair.server.machine.statistics.duplicates == 6


@over(deferred=(True,))
def test_a_snapshot_leaves_out_what_is_neither_committed_nor_being_committed(case: Case) -> None:
    pair = case.pair(commits=False)
    tokens = pair.send_all(numbered(4))
    pair.pump.run(100_000)
    first, second, *_ = sorted(pair.server.received, key=lambda message: message.body)
    snapshot = pair.server.machine.snapshot(first.peer, committing=[second.receipt])
    server = restart(pair, case, [snapshot])
    assert pair.pump.finished(pair.client, tokens)
    assert sorted(server.bodies) == [numbered(4)[0], *numbered(4)[2:]]


@over(deferred=(True,))
def test_crashes_again_and_again_under_loss_lose_and_double_nothing(case: Case) -> None:
    """Only with deferred acknowledgement: mrp otherwise acknowledges what it keeps ahead of a gap, as TCP does."""
    pair = case.pair()
    journal = Journal(pair.server)
    pair.pump.lose_at_random(100_000, seed=17)
    bodies = numbered(60)
    tokens: list[int] = []
    for start in range(0, 60, 10):
        tokens += pair.send_all(bodies[start : start + 10])
        pair.pump.run(30_000)
        if pair.server.received:
            journal.watch(restart(pair, case, list(journal.snapshots.values())))
        pair.pump.run(SECOND)
    pair.pump.delivers(pair.client, tokens)
    assert sorted(journal.bodies) == bodies


# Pieces: where the memory of duplicates grows with every message, a snapshot is not written as a whole each time.


def piece_of(pair: Pair, receipts: Sequence[Receipt]) -> tuple[bytes, bytes]:
    """Return the pieces that a gateway stores with these receipts, and commit them."""
    found = pair.server.machine.snapshot_in_pieces(receipts[0].peer, receipts)
    for receipt in receipts:
        pair.server.machine.commit(receipt, pair.pump.now_us)
    pair.pump.settle(pair.server)
    return found


def received(case: Case, bodies: Sequence[bytes]) -> tuple[Pair, list[bytes]]:
    """Return a pair whose server has received messages and committed none, and their datagrams."""
    pair = case.pair(commits=False)
    pair.send_all(bodies)
    pair.pump.run(25_000)
    data = case.of_kind("data", CLIENT)
    return pair, [datagram.data for datagram in pair.pump.log if data(datagram)]


@over(RUP, PYDEVTS, deferred=(True,))
def test_only_what_was_committed_is_known_after_a_restart_from_pieces(case: Case) -> None:
    pair, duplicates = received(case, numbered(6))
    receipts = pair.server.uncommitted
    first, second = piece_of(pair, receipts[:2]), piece_of(pair, receipts[2:4])
    server = restart(pair, case, [piece for piece in (second[0], first[1], second[1]) if piece], commits=False)
    sent = pair.pump.sent
    for copy in duplicates:
        pair.pump.inject(copy, CLIENT, SERVER)
    assert server.bodies == numbered(6)[4:]
    assert server.machine.statistics.duplicates == 4
    assert len(pair.pump.sent_by(server, sent)) == 4, "each copy of a committed message is answered"


@over(RUP, PYDEVTS, deferred=(True,))
def test_a_piece_grows_with_the_commit_and_not_with_what_is_remembered(case: Case) -> None:
    pair, sizes = case.pair(commits=False), []
    for body in numbered(200):
        pair.send_all([body])
        pair.pump.run(25_000)
        sizes.append(sum(map(len, piece_of(pair, pair.server.uncommitted[-1:]))))
    assert max(sizes) <= sizes[1] + 8


@over(PYDEVTS, deferred=(True,))
def test_identities_go_on_where_they_were_when_all_additions_are_forgotten(case: Case) -> None:
    pair, duplicates = received(case, numbered(3))
    receipts = pair.server.uncommitted
    state, added = piece_of(pair, receipts)
    with pytest.raises(AlreadyOpen):
        pair.server.machine.restore(added, pair.pump.now_us)
    server = restart(pair, case, [state], commits=False)
    pair.pump.inject(duplicates[0], CLIENT, SERVER)
    assert server.uncommitted[0].first == int(receipts[0].first) + 65_536, "a number that was given is not given again"


@over(UDPC, MRP_STAMPED, MRP_PIGGYBACK, deferred=BOTH)
def test_a_restored_server_can_send_to_its_peer(case: Case) -> None:
    pair = case.pair()
    journal = Journal(pair.server)
    pair.deliver([b"hello"])
    caller = pair.caller()
    journal.watch(restart(pair, case, [pair.server.machine.snapshot(caller)]))
    assert pair.server.machine.peers() == [caller]
    tokens = [pair.pump.send(pair.server, caller, body) for body in numbered(5)]
    pair.pump.delivers(pair.server, tokens)
    assert sorted(pair.client.bodies) == numbered(5)


@over(UDPC, MRP_STAMPED, MRP_PIGGYBACK)
def test_a_restored_client_goes_on_with_its_conversation(case: Case) -> None:
    pair = case.pair()
    pair.deliver(numbered(5))
    machine = case.machine(98)
    peer = machine.restore(pair.client.machine.snapshot(pair.peer), pair.pump.now_us)
    assert peer == pair.peer
    client = pair.pump.add(machine, CLIENT)
    more = [pair.pump.send(client, peer, body) for body in numbered(5, tag="n")]
    assert pair.pump.finished(client, more)
    assert sorted(pair.server.bodies) == numbered(5) + numbered(5, tag="n")


class Shifted:
    """A machine under another clock: as after a reboot, when the monotonic clock starts again."""

    def __init__(self, machine: Machine, behind_us: int) -> None:
        self.machine = machine
        self.behind_us = behind_us

    def __getattr__(self, name: str) -> Any:
        return getattr(self.machine, name)

    def receive(self, data: Buffer, address: object, now_us: int, segment_bytes: int | None = None) -> None:
        self.machine.receive(data, address, now_us - self.behind_us, segment_bytes)

    def commit(self, receipt: Receipt, now_us: int) -> None:
        self.machine.commit(receipt, now_us - self.behind_us)

    def wake(self, now_us: int) -> None:
        self.machine.wake(now_us - self.behind_us)

    def next_deadline_us(self) -> int | None:
        deadline_us = self.machine.next_deadline_us()
        return None if deadline_us is None else deadline_us + self.behind_us


@over(deferred=BOTH)
def test_a_snapshot_means_the_same_when_the_clock_has_started_again(case: Case) -> None:
    behind_us = 3_600 * SECOND
    pair = case.pair(start_us=behind_us + SECOND)
    journal = Journal(pair.server)
    tokens = pair.send_all(numbered(6))
    pair.pump.run(25_000)
    assert len(journal.bodies) == 6
    machine = case.machine(99)
    for snapshot in journal.snapshots.values():
        machine.restore(snapshot, pair.pump.now_us - behind_us)
    journal.watch(pair.pump.add(Shifted(machine, behind_us), SERVER))  # type: ignore[arg-type]
    duplicates = [datagram.data for datagram in pair.pump.log if case.of_kind("data", CLIENT)(datagram)]
    pair.pump.run(5 * SECOND)
    for copy in duplicates:
        pair.pump.inject(copy, CLIENT, SERVER)
    assert pair.pump.finished(pair.client, tokens)
    assert sorted(journal.bodies) == numbered(6)


@over(deferred=BOTH, dtls=BOTH)
def test_a_damaged_snapshot_is_refused_and_raises_nothing_else(case: Case) -> None:
    pair = case.pair()
    pair.send_all(numbered(20))
    pair.pump.run(SECOND)
    snapshot = pair.server.machine.snapshot(pair.caller())
    flipped = snapshot[:-1] + bytes([snapshot[-1] ^ 1])
    for damaged in (flipped, b"XXXX" + snapshot[4:], *(snapshot[:length] for length in range(len(snapshot)))):
        with pytest.raises(DamagedSnapshot, match=rf"^a snapshot of {len(damaged)} bytes is damaged, or "):
            case.machine(5).restore(damaged, 0)
    random = Seeded(9)
    for _ in range(300):
        other = bytearray(snapshot)
        other[random.below(len(other))] ^= 1 << random.below(8)
        with suppress(DamagedSnapshot):
            case.machine(5).restore(bytes(other), 0)


@over(UDPC, MRP_STAMPED, PYDEVTS)
def test_a_snapshot_with_any_field_damaged_is_refused_or_read_but_never_raises_anything_else(case: Case) -> None:
    pair = case.pair()
    pair.deliver(numbered(3))
    snapshot = pair.server.machine.snapshot(pair.caller())
    version, state = snapshot[:4], json.loads(snapshot[8:])
    nothing: tuple[object, ...] = ({}, [], None)
    for whole in nothing:
        with pytest.raises(DamagedSnapshot, match=f"^the state of the snapshot is none of {case.variant.protocol}: "):
            case.machine(5).restore(seal(version, json.dumps(whole).encode()), 0)
    wrongs: list[object] = [None, "x", -1, [["a", 1]], [[1]], {}, True, 1.5]
    for field, wrong in product(state, wrongs):
        machine = case.machine(5)
        with suppress(DamagedSnapshot):
            machine.restore(seal(version, json.dumps({**state, field: wrong}).encode()), 0)
        machine.wake(20 * SECOND)


@over(deferred=BOTH, dtls=BOTH)
def test_taking_a_snapshot_changes_nothing_and_gives_the_same_bytes_again(case: Case) -> None:
    pair = case.pair()
    pair.send_all(numbered(9))
    pair.pump.run(SECOND)
    caller = pair.caller()
    first = pair.server.machine.snapshot(caller)
    assert pair.server.machine.snapshot(caller) == first
    machine = case.machine(6)
    assert machine.restore(first, pair.pump.now_us) == caller
    assert caller in machine.peers()
