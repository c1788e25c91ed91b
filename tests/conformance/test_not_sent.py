"""What was never transmitted is refused as "not sent", and what an ICMP error ends: the same in all four protocols."""

from __future__ import annotations

from fairway.core.events import NOT_SENT, ConnectUnknown, DeliveryUnknown, Refused

from .pair import Node, Pump
from .variants import BOTH, CLIENT, SECOND, SERVER, Case, numbered, over

ICMP = "nobody has that port (ICMP)"


def transmitted(pump: Pump, bodies: list[bytes]) -> list[bool]:
    """Return which of the bodies stood in any datagram."""
    sent = b"".join(datagram.data for datagram in pump.log)
    return [body in sent for body in bodies]


def check_outcomes(node: Node, pump: Pump, tokens: list[int], bodies: list[bytes]) -> None:
    """See that exactly what was transmitted is unknown, and everything else refused as not sent."""
    for token, body, left in zip(tokens, bodies, transmitted(pump, bodies), strict=True):
        outcome = node.outcomes[token]
        assert isinstance(outcome, DeliveryUnknown if left else Refused), (body, left, outcome)
        if isinstance(outcome, Refused):
            assert outcome.reason == NOT_SENT


def unreachable(pump: Pump, node: Node) -> None:
    node.machine.unreachable(SERVER, ICMP, pump.now_us)
    pump.settle(node)


@over(controllers=("model", "eager"))
def test_at_the_end_only_what_was_transmitted_is_unknown(case: Case) -> None:
    pair = case.pair(client={"window": 4})
    pair.pump.remove(pair.server)
    bodies = numbered(40)
    tokens = pair.send_all(bodies)
    pair.pump.close(pair.client, pair.peer)
    assert pair.pump.run_until(lambda: pair.peer in pair.client.closed, 400 * SECOND)
    check_outcomes(pair.client, pair.pump, tokens, bodies)


@over(where=lambda variant: not variant.handshake, batched=BOTH)
def test_an_icmp_error_ends_everything_towards_a_peer_that_never_answered(case: Case) -> None:
    pump = case.pump()
    client = pump.add(case.machine(window=4), CLIENT)
    peer = pump.connected(client, SERVER)
    bodies = numbered(40)
    tokens = [pump.send(client, peer, body) for body in bodies]
    unreachable(pump, client)
    check_outcomes(client, pump, tokens, bodies)
    assert any(transmitted(pump, bodies))
    assert not all(transmitted(pump, bodies))
    assert client.machine.unfinished() == 0
    pump.run(SECOND)
    server = pump.add(case.machine(2), SERVER)
    again = pump.send(client, peer, b"there now")
    assert pump.finished(client, [again])
    assert (client.outcome(again), server.bodies) == ("Delivered", [b"there now"])


@over(where=lambda variant: variant.handshake)
def test_an_icmp_error_ends_a_call(case: Case) -> None:
    pump = case.pump()
    client = pump.add(case.machine(), CLIENT)
    token = pump.connect(client, SERVER)
    client.machine.unreachable(("server", 10), ICMP, pump.now_us)
    pump.settle(client)
    assert token not in client.outcomes
    unreachable(pump, client)
    assert client.outcomes[token] == ConnectUnknown(token, SERVER, ICMP)
    assert client.machine.unfinished() == 0
    sent = pump.sent
    pump.run(10 * SECOND)
    assert pump.sent == sent


@over(dtls=BOTH)
def test_an_icmp_error_changes_nothing_once_the_peer_has_answered(case: Case) -> None:
    pair = case.pair(delay_us=20_000)
    assert pair.pump.finished(pair.client, [pair.pump.send(pair.client, pair.peer, b"hello there")])
    tokens = pair.send_all(numbered(40))
    unreachable(pair.pump, pair.client)
    assert not set(tokens) & set(pair.client.outcomes)
    pair.pump.delivers(pair.client, tokens)


@over(where=lambda variant: not variant.handshake)
def test_a_peer_that_has_sent_something_counts_as_one_that_answered(case: Case) -> None:
    pair = case.pair(delay_us=20_000)
    caller = pair.pump.connected(pair.server, CLIENT)
    pair.pump.send(pair.server, caller, b"hello there")
    assert pair.pump.run_until(lambda: pair.client.bodies == [b"hello there"], SECOND)
    token = pair.pump.send(pair.client, pair.peer, b"and back")
    unreachable(pair.pump, pair.client)
    assert token not in pair.client.outcomes
    pair.pump.delivers(pair.client, [token])
