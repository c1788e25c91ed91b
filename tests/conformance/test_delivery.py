"""Every message arrives once, with its bytes, in order where that is promised."""

from __future__ import annotations

from random import Random

import pytest

from fairway.core.events import ResponseReceived

from .pair import Node, Received
from .variants import BOTH, CLIENT, RUP, SECOND, SERVER, UDPC, UDPC_ACK, UDPC_REQ, VARIANTS, Case, numbered, over


def in_promised_order(case: Case, node: Node) -> list[bytes]:
    """Return the bodies in the order that the protocol promises: deferred mrp offers packets as they come and its ids
    restore the order, the unordered ones are sorted."""
    if case.variant.ordered and not case.deferred:
        return node.bodies
    if case.variant.ordered:
        return [message.body for message in sorted(node.received, key=lambda message: int(message.id))]
    return sorted(node.bodies)


@over(deferred=BOTH, controllers=("model", "eager"), batched=BOTH, dtls=BOTH)
def test_each_message_is_delivered_once_and_reported_as_delivered(case: Case) -> None:
    pair = case.pair()
    bodies = numbered(60, 40)
    pair.deliver(bodies)
    assert in_promised_order(case, pair.server) == bodies
    assert pair.client.machine.unfinished() == 0
    assert pair.client.machine.statistics.messages_delivered == len(bodies)
    assert pair.server.machine.statistics.messages_received == len(bodies)


@over(deferred=BOTH, controllers=("model", "eager"), batched=BOTH, dtls=BOTH)
def test_loss_and_copies_in_both_directions_change_neither_content_nor_order(case: Case) -> None:
    pair = case.pair()
    pair.pump.lose_at_random(200_000, seed=5)
    pair.pump.duplicate(lambda datagram: datagram.number % 5 == 0, apart_us=3_000)
    bodies = numbered(50, 30)
    pair.deliver(bodies)
    assert in_promised_order(case, pair.server) == bodies
    assert pair.client.machine.statistics.retransmissions > 0
    assert pair.server.machine.statistics.duplicates > 0


@over(deferred=BOTH, dtls=BOTH)
def test_a_datagram_overtaken_by_all_others_still_arrives_in_its_place(case: Case) -> None:
    pair = case.pair()
    hold = pair.pump.hold(lambda datagram: case.of_kind("data", CLIENT)(datagram) and not hold.held)
    bodies = numbered(8)
    tokens = pair.send_all(bodies)
    pair.pump.run(30_000)
    hold.release()
    assert pair.pump.finished(pair.client, tokens)
    pair.pump.run(SECOND)
    assert in_promised_order(case, pair.server) == bodies


def sizes(case: Case) -> list[int]:
    """List the sizes at which something changes: nothing, one byte, around the budget, the largest."""
    budget = 1_200 - case.variant.header_bytes
    largest = case.variant.body_bytes_max
    found = [1, budget - 1, budget, budget + 1] + ([largest] if largest else [2 * budget, 2 * budget + 1, 300_000])
    return [0, *found] if case.variant.carries_empty else found


@over(deferred=BOTH, batched=BOTH)
def test_bytes_are_exact_at_every_size_at_which_something_changes(case: Case) -> None:
    pair = case.pair()
    random = Random(3)
    bodies = [random.randbytes(size) for size in sizes(case)]
    pair.deliver(bodies)
    assert sorted(pair.server.bodies) == sorted(bodies)


@over(RUP, deferred=BOTH, controllers=("model", "eager"), batched=BOTH, dtls=BOTH)
def test_a_message_of_several_mebibytes_arrives_exactly_under_loss(case: Case) -> None:
    pair = case.pair()
    pair.pump.records = False
    pair.pump.lose_at_random(10_000, seed=8)
    body = Random(4).randbytes(3_500_001)
    pair.deliver([body])
    assert pair.server.bodies == [body]


def echo(server: Node) -> None:
    """Let a node send every message back to where it came from."""

    def answer(message: Received) -> None:
        server.machine.send(message.peer, b"echo " + message.body, server.now_us)

    server.on_received = answer


@over(deferred=BOTH, batched=BOTH, dtls=BOTH)
def test_both_directions_carry_messages_at_the_same_time(case: Case) -> None:
    pair = case.pair()
    pair.pump.lose_at_random(100_000, seed=12)
    echo(pair.server)
    bodies = numbered(40)
    pair.deliver(bodies)
    assert pair.pump.run_until(lambda: len(pair.client.received) == len(bodies), 60 * SECOND)
    pair.pump.run(5 * SECOND)
    assert sorted(pair.client.bodies) == [b"echo " + body for body in bodies]
    assert pair.server.machine.unfinished() == 0


STAMP_WRAPS_US = 65_536_000
"""mrp stamps count milliseconds modulo 65,536."""


@over(deferred=BOTH, batched=BOTH, where=lambda variant: variant.near_the_end is not None, dtls=BOTH)
def test_every_counter_crosses_its_end_and_goes_on(case: Case) -> None:
    near = case.variant.near_the_end
    assert near is not None
    pair = case.pair(client=dict(near), server=dict(near), start_us=STAMP_WRAPS_US - 200_000)
    pair.pump.lose_at_random(50_000, seed=31)
    pair.pump.duplicate(lambda datagram: datagram.number % 4 == 0, apart_us=2_000)
    echo(pair.server)
    bodies = numbered(150)
    tokens: list[int] = []
    for start in range(0, len(bodies), 30):
        tokens += pair.send_all(bodies[start : start + 30])
        assert pair.pump.finished(pair.client, tokens)
    assert pair.pump.run_until(lambda: len(pair.client.received) == len(bodies), 60 * SECOND)
    assert {pair.client.outcome(token) for token in tokens} == {"Delivered"}
    assert in_promised_order(case, pair.server) == bodies
    assert sorted(pair.client.bodies) == [b"echo " + body for body in bodies]
    ids = [int(message.id) for message in sorted(pair.server.received, key=lambda message: message.body)]
    assert ids == sorted(set(ids)), "they keep growing where the counter on the wire wraps"


@over(deferred=BOTH)
def test_two_peers_with_equal_ids_are_kept_apart(case: Case) -> None:
    pump = case.pump()
    server = pump.add(case.machine(9), SERVER)
    clients = [pump.add(case.machine(1), ("client", port)) for port in (1, 2)]
    peers = [pump.connected(client, SERVER) for client in clients]
    tokens = []
    for client, peer, tag in zip(clients, peers, "ab", strict=True):
        bodies = [*numbered(10, tag=tag), b"the same from both"]
        tokens.append([pump.send(client, peer, body) for body in bodies])
    for client, sent in zip(clients, tokens, strict=True):
        pump.delivers(client, sent)
    for port, tag in ((1, "a"), (2, "b")):
        got = [message.body for message in server.received if message.peer.address == ("client", port)]
        assert sorted(got) == sorted([*numbered(10, tag=tag), b"the same from both"])


@over(*VARIANTS[1:3], dtls=BOTH)
def test_two_connections_between_the_same_two_sockets_are_kept_apart(case: Case) -> None:
    pair = case.pair()
    second = pair.pump.connected(pair.client, SERVER)
    assert second != pair.peer
    for body in numbered(20):
        pair.pump.send(pair.client, pair.peer, b"1" + body)
        pair.pump.send(pair.client, second, b"2" + body)
    pair.pump.run(5 * SECOND)
    by_peer: dict[object, list[bytes]] = {}
    for message in pair.server.received:
        by_peer.setdefault(message.peer, []).append(message.body)
    assert sorted(by_peer.values()) == [[tag + body for body in numbered(20)] for tag in (b"1", b"2")]


@over(deferred=BOTH, batched=BOTH)
def test_garbage_between_good_packets_is_counted_and_changes_nothing(case: Case) -> None:
    pair = case.pair()
    random = Random(44)
    bodies = numbered(40, 25)
    tokens = []
    injected = 0
    for body in bodies:
        tokens.append(pair.pump.send(pair.client, pair.peer, body))
        latest = pair.pump.log[-1].data
        for garbage in (random.randbytes(30), latest[: random.randrange(case.variant.header_bytes)]):
            pair.pump.inject(garbage, CLIENT, SERVER)
            pair.pump.inject(garbage, SERVER, CLIENT)
            pair.pump.inject(garbage, ("stranger", 5), SERVER)
            injected += 2
        pair.pump.run(2_000)
    pair.pump.delivers(pair.client, tokens)
    assert in_promised_order(case, pair.server) == bodies
    assert sum(pair.server.machine.statistics.dropped.values()) >= injected


@over(UDPC, dtls=BOTH)
def test_plain_messages_are_delivered_at_most_once_and_never_repeated(case: Case) -> None:
    pair = case.pair()
    pair.pump.lose(case.of_kind("data", CLIENT), count=3)
    pair.pump.duplicate(case.of_kind("data", CLIENT), count=2, apart_us=400)
    bodies = numbered(10)
    for body in bodies:
        pair.pump.send(pair.client, pair.peer, body, flags=0)
    pair.pump.run(3 * SECOND)
    assert pair.server.bodies == bodies[3:]
    assert pair.client.machine.unfinished() == 0


@over(UDPC, deferred=BOTH, dtls=BOTH)
@pytest.mark.parametrize("asynchronous", [0, 4], ids=["waiting", "asynchronous"])
def test_a_request_is_handed_over_once_and_its_response_comes_back_once(case: Case, asynchronous: int) -> None:
    pair = case.pair()

    def answer(message: Received) -> None:
        pair.server.machine.send(
            message.peer, b"re " + message.body, pair.server.now_us, flags=UDPC_ACK, answers=int(message.id)
        )

    pair.server.on_received = answer
    pair.pump.lose_at_random(200_000, seed=3)
    pair.pump.duplicate(lambda datagram: datagram.number % 3 == 0, apart_us=1_000)
    bodies = numbered(20)
    tokens = [pair.pump.send(pair.client, pair.peer, body, flags=UDPC_REQ | asynchronous) for body in bodies]
    assert pair.pump.finished(pair.client, tokens)
    responses = [event for event in pair.client.events if isinstance(event, ResponseReceived)]
    assert {event.token: event.body for event in responses} == {
        token: b"re " + body for token, body in zip(tokens, bodies, strict=True)
    }
    assert len(responses) == len(bodies)
    assert sorted(pair.server.bodies) == bodies
