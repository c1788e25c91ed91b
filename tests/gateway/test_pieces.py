"""Where the memory of copies grows with every message, restoring from pieces knows what a whole snapshot would."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fairway.core.errors import CallerError
from fairway.core.events import MessageReceived, MessagesReceived, Receipt
from fairway.core.machine import Machine
from fairway.core.random_source import Seeded
from fairway.protocols import make_machine, make_options

CLIENT, SERVER = ("192.0.2.1", 1), ("192.0.2.2", 2)
PIECEWISE = pytest.mark.parametrize("protocol", ["rup", "pydevts"])


def machine(protocol: str, *, deferred: bool, seed: int = 1) -> Machine:
    return make_machine(protocol, make_options(protocol, deferred=deferred, controller="eager"), Seeded(seed))


def datagrams_of(protocol: str, bodies: Sequence[bytes]) -> list[bytes]:
    """Return one datagram for each body."""
    client = machine(protocol, deferred=False, seed=9)
    client.connect(SERVER, 0)
    (connected,) = client.events()
    sent: list[bytes] = []
    for body in bodies:
        client.send(connected.peer, body, 0)  # type: ignore[union-attr]
        sent += [bytes(transmit.data) for transmit in client.transmits()]
    assert len(sent) == len(bodies)
    return sent


def received(server: Machine, datagrams: Sequence[bytes], now_us: int) -> list[tuple[Receipt, bytes]]:
    """Return what the server hands over of these datagrams."""
    for datagram in datagrams:
        server.receive(datagram, CLIENT, now_us)
    found: list[tuple[Receipt, bytes]] = []
    for event in server.events():
        assert not isinstance(event, MessagesReceived)
        if isinstance(event, MessageReceived):
            found.append((event.receipt, event.body))
    return found


def pieces(server: Machine, receipts: Sequence[Receipt]) -> tuple[bytes, bytes]:
    state, added = server.snapshot_in_pieces(receipts[0].peer, receipts)
    for receipt in receipts:
        server.commit(receipt, 1_000)
    return state, added


@PIECEWISE
def test_only_what_was_committed_is_known_after_a_restart_from_pieces(protocol: str) -> None:
    bodies = [f"body {number}".encode() for number in range(6)]
    datagrams = datagrams_of(protocol, bodies)
    server = machine(protocol, deferred=True)
    receipts = [receipt for receipt, _ in received(server, datagrams, 1_000)]
    first, second = pieces(server, receipts[:2]), pieces(server, receipts[2:4])
    again = machine(protocol, deferred=True, seed=2)
    for piece in (second[0], first[1], second[1]):
        if piece:
            again.restore(piece, 2_000)
    assert [body for _, body in received(again, datagrams, 2_000)] == bodies[4:]
    assert again.statistics.duplicates == 4
    assert again.statistics.datagrams_sent == 4, "each copy of a committed message is answered"


@PIECEWISE
def test_a_piece_grows_with_the_commit_and_not_with_what_is_remembered(protocol: str) -> None:
    datagrams = datagrams_of(protocol, [f"body {number}".encode() for number in range(200)])
    server = machine(protocol, deferred=True)
    sizes = []
    for datagram in datagrams:
        ((receipt, _),) = received(server, [datagram], 1_000)
        sizes.append(sum(map(len, pieces(server, [receipt]))))
    assert max(sizes) == sizes[-1] == sizes[1]


def test_identities_go_on_where_they_were_when_all_additions_are_forgotten() -> None:
    datagrams = datagrams_of("pydevts", [f"body {number}".encode() for number in range(3)])
    server = machine("pydevts", deferred=True)
    receipts = [receipt for receipt, _ in received(server, datagrams, 1_000)]
    state, _ = pieces(server, receipts)
    again = machine("pydevts", deferred=True)
    again.restore(state, 2_000)
    ((receipt, _), *_) = received(again, datagrams[:1], 2_000)
    assert receipt.first == int(receipts[0].first) + 65_536, "a number that was given is not given again"


def test_a_piece_is_not_added_to_a_conversation_that_knows_it() -> None:
    datagrams = datagrams_of("pydevts", [b"body"])
    server = machine("pydevts", deferred=True)
    receipts = [receipt for receipt, _ in received(server, datagrams, 1_000)]
    _, added = pieces(server, receipts)
    with pytest.raises(CallerError, match="open already"):
        server.restore(added, 2_000)
