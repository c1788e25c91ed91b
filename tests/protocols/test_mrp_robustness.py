"""Whatever arrives, nothing raises, nothing grows past its bound, and a healthy conversation goes on."""

from __future__ import annotations

import pytest

from fairway.core.events import Delivered, MessageReceived, MessagesReceived
from fairway.core.random_source import Seeded
from fairway.protocols.mrp import wire
from fairway.protocols.mrp.machine import MrpMachine
from tests.protocols.test_mrp_world import Node, World, pair

BATCH = 2_500
ROUNDS = 3
"""Over both layouts, both ways of acknowledging and both kinds of attacker: 60,000 datagrams."""


def mutated(chance: Seeded, data: bytes) -> bytes:
    """Damages, cuts or lengthens a datagram."""
    damaged = bytearray(data)
    for _ in range(1 + chance.below(3)):
        match chance.below(4):
            case 0 if damaged:
                damaged[chance.below(len(damaged))] = chance.bits(8)
            case 1:
                del damaged[chance.below(len(damaged) + 1) :]
            case 2:
                damaged += chance.bits(8).to_bytes(1, "big")
            case _ if len(damaged) > 10:
                damaged[10 + chance.below(len(damaged) - 10)] = chance.bits(8)
    return bytes(damaged)


def forged(chance: Seeded, node: Node) -> bytes:
    """Makes a datagram of no, of any, or of the true connection of a node, with senseless numbers."""
    known = [
        number for connection in node.machine._connections.values() for number in (connection.local, connection.remote)
    ]
    ids = [*known[:2], chance.bits(24), chance.bits(4)]
    one, two = chance.choose(ids), chance.choose(ids)
    number, other = chance.bits(16), chance.bits(16)
    match chance.below(6):
        case 0:
            return wire.encode(wire.Connect(ver=chance.below(3), cl_conid=1 + chance.below(50)))
        case 1:
            return wire.encode(wire.ConReply(stat=1 + chance.below(2), cl_conid=one or 1, sv_conid=two or 1))
        case 2:
            return wire.ack_bytes(one, two, number, other)
        case 3:
            return wire.stamped_header(one, two, number, other) + bytes(chance.below(20))
        case 4:
            return wire.piggyback_header(one & 0xFFFF, two & 0xFFFF, number, other) + bytes(chance.below(20))
        case _:
            return b"MRP" + chance.bits(8 * 12).to_bytes(12, "big")


def within_bounds(machine: MrpMachine) -> bool:
    """Return whether every table that a peer can grow is within its bound."""
    options = machine._options
    connections = machine._connections.values()
    return (
        len(machine._connections) <= options.peers_max
        and len(machine._table.half_opens) <= options.half_open_max
        and machine._shared.slots.messages_left >= 0
        and all(len(connection.receiver.ahead) <= options.window for connection in connections)
        and len(machine._table.deadlines)
        <= len(machine._connections) + len(machine._table.calls) + len(machine._table.half_opens)
    )


def names_the_connection(data: bytes, node: Node) -> bool:
    """Return whether a datagram carries an id of the healthy connection where a node would look for it."""
    ids = {number for peer in node.machine.peers() for number in (peer.local, peer.session)}
    starts = (4, 5, 6, 7)
    return any(int.from_bytes(data[start : start + width], "big") in ids for start in starts for width in (2, 3))


@pytest.mark.parametrize("layout", ["stamped", "piggyback"])
@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("insider", [False, True], ids=["outsider", "insider"])
def test_random_and_mutated_datagrams_harm_nothing(layout: str, deferred: bool, insider: bool) -> None:
    """An insider sends from the peer's own address with the true ids: it may do harm, but only to that connection."""
    chance = Seeded(20 if deferred else 21)
    world, client, server = pair(layout=layout, deferred=deferred, half_open_max=16, peers_max=8, window=32)
    peer, sent = client.peer, 0
    for _ in range(ROUNDS):
        if peer in client.machine.peers():
            sent += len(world.send("c", *[b"healthy%d" % number for number in range(20)], peer=peer))
        real = [data for _, data in client.sent[-40:] + server.sent[-40:]]
        for _ in range(BATCH):
            name, node = ("s", server) if chance.below(2) else ("c", client)
            data = mutated(chance, chance.choose(real)) if chance.below(2) else forged(chance, node)
            source = chance.choose(["c", "s", "x", "y"])
            if not insider and names_the_connection(data, client):
                source = chance.choose(["x", "y"])
            node.machine.receive(data, source, world.now_us, chance.choose([None, None, None, 14, 5]))
            world.settle(name)
        assert within_bounds(server.machine)
        assert within_bounds(client.machine)
        world.run(2_000_000)
    for reason in ("bad_magic", "too_short", "unknown_connection", "wrong_size"):
        assert server.machine.statistics.dropped[reason] > 0
    if not insider:
        assert len([event for event in client.of(Delivered) if event.peer == peer]) == sent == 20 * ROUNDS
        assert [body for body in server.bodies if body.startswith(b"healthy")] == [
            b"healthy%d" % number for _ in range(ROUNDS) for number in range(20)
        ]


def test_a_flood_of_calls_costs_only_the_half_open_table() -> None:
    world = World()
    server = world.add("s", half_open_max=100)
    for number in range(1, 5_000):
        server.machine.receive(wire.encode(wire.Connect(ver=number % 2, cl_conid=number)), f"x{number}", world.now_us)
    assert len(server.machine._table.half_opens) == 100
    assert server.machine.statistics.bytes_sent <= 3 * server.machine.statistics.bytes_received
    world.settle("s")
    world.run(6_000_000)
    assert len(server.machine._table.half_opens) == 0
    assert server.machine.next_deadline_us() is None


@pytest.mark.parametrize("layout", ["stamped", "piggyback"])
def test_open_receipts_are_bounded_and_copies_stay_known(layout: str) -> None:
    world, client, server = pair(layout=layout, open_receipts_max=5, window=64)
    server.commits = False
    world.send("c", *[b"%d" % number for number in range(40)])
    world.run(3_000_000)
    assert server.bodies == [b"0", b"1", b"2", b"3", b"4"][: len(server.bodies)]
    assert server.machine._shared.slots.messages_left >= 0
    assert server.machine.statistics.dropped["receipts_full"] > 0
    server.commits = True
    for event in list(server.events):
        if isinstance(event, MessageReceived | MessagesReceived):
            server.machine.commit(event.receipt, world.now_us)
    world.settle("s")
    world.run(20_000_000)
    assert server.bodies == [b"%d" % number for number in range(40)]
    assert client.machine.unfinished() == 0
