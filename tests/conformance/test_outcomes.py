"""Acknowledged, refused, unknown: every token ends in exactly one of them, also when the peer says nothing."""

from __future__ import annotations

import pytest

from fairway.core.errors import CallerError, NoSuchPeer, NotSupported
from fairway.core.events import Closed, CloseReason, Connected, PingAnswered

from .variants import BOTH, CLIENT, RUP, SECOND, SERVER, UDPC, UDPC_FIN, UDPC_REQ, Case, Variant, numbered, over

CALLS_US = {
    "udpc": [0, 250_000, 750_000, 1_750_000, 3_750_000],
    "mrp": [0, 50_000, 150_000, 350_000, 750_000, 1_550_000, 2_550_000, 3_550_000, 4_550_000],
}
"""When a call that nobody answers is repeated."""


@over(where=lambda variant: variant.handshake)
def test_a_call_that_nobody_answers_is_repeated_on_schedule_and_ends_as_unknown_after_five_seconds(case: Case) -> None:
    pump = case.pump()
    client = pump.add(case.machine(), CLIENT)
    token = pump.connect(client, SERVER)
    start_us = pump.now_us
    assert pump.finished(client, [token], 6 * SECOND)
    assert client.outcome(token) == "ConnectUnknown"
    assert pump.now_us - start_us == 5 * SECOND
    assert [datagram.sent_us - start_us for datagram in pump.log] == CALLS_US[case.variant.protocol]
    assert len({datagram.data for datagram in pump.log}) == 1
    sent = pump.sent
    pump.run(60 * SECOND)
    assert pump.sent == sent
    assert client.machine.unfinished() == 0


@over(where=lambda variant: not variant.handshake)
def test_the_connectionless_protocols_need_nothing_said_first(case: Case) -> None:
    pump = case.pump()
    client = pump.add(case.machine(), CLIENT)
    token = pump.connect(client, SERVER)
    assert client.outcome(token) == "Connected"
    assert pump.sent == 0


@over(deferred=BOTH, where=lambda variant: variant.handshake, dtls=BOTH)
def test_a_peer_that_falls_silent_costs_one_outcome_per_message_and_then_the_conversation(case: Case) -> None:
    pair = case.pair()
    pair.pump.remove(pair.server)
    tokens = pair.send_all(numbered(30))
    assert pair.pump.finished(pair.client, tokens, case.variant.session_dies_us or 0)
    assert {pair.client.outcome(token) for token in tokens} <= {"DeliveryUnknown", "Refused"}
    assert "DeliveryUnknown" in {pair.client.outcome(token) for token in tokens}
    assert pair.pump.run_until(lambda: pair.peer in pair.client.closed, SECOND)
    assert pair.client.closed[pair.peer].reason == CloseReason.TIMED_OUT
    assert isinstance(pair.client.events[-1], Closed)
    with pytest.raises(NoSuchPeer):
        pair.pump.send(pair.client, pair.peer, b"too late")
    pair.pump.run(120 * SECOND)
    assert pair.client.machine.unfinished() == 0


@over(UDPC, dtls=BOTH)
def test_a_fin_ends_pending_requests_and_closes_the_session_at_once(case: Case) -> None:
    pair = case.pair()
    token = pair.pump.send(pair.client, pair.peer, b"who?", flags=UDPC_REQ)
    pair.pump.run(30_000)
    pair.pump.close(pair.server, pair.caller())
    assert pair.pump.run_until(lambda: pair.peer in pair.client.closed, 3 * SECOND)
    assert pair.client.closed[pair.peer].reason == CloseReason.REMOTE
    assert pair.client.outcome(token) in ("DeliveryUnknown", "Refused")
    assert [datagram.data[12] for datagram in pair.pump.log].count(UDPC_FIN) == 1


@over(deferred=BOTH, controllers=("model", "eager"), dtls=BOTH)
def test_closing_while_sending_flushes_what_was_queued(case: Case) -> None:
    pair = case.pair()
    bodies = numbered(100)
    tokens = pair.send_all(bodies)
    pair.pump.close(pair.client, pair.peer)
    pair.pump.delivers(pair.client, tokens)
    assert sorted(pair.server.bodies) == bodies
    assert pair.pump.run_until(lambda: pair.peer in pair.client.closed, 60 * SECOND)
    assert pair.client.closed[pair.peer].reason == CloseReason.LOCAL
    with pytest.raises(CallerError):
        pair.pump.send(pair.client, pair.peer, b"too late")


@over(UDPC, dtls=BOTH)
def test_after_close_arriving_messages_are_answered_by_the_fin_only(case: Case) -> None:
    pair = case.pair()
    pair.pump.send(pair.client, pair.peer, b"before")
    pair.pump.run(SECOND)
    pair.pump.lose(lambda datagram: datagram.data[12] == UDPC_FIN, count=1)
    pair.pump.close(pair.server, pair.caller())
    token = pair.pump.send(pair.client, pair.peer, b"after")
    assert pair.pump.run_until(lambda: pair.peer in pair.client.closed, 3 * SECOND)
    assert pair.client.outcome(token) in ("DeliveryUnknown", "Refused")
    assert pair.server.bodies == [b"before"]


@over(where=lambda variant: variant.handshake, dtls=BOTH)
def test_both_sides_report_the_conversation_once(case: Case) -> None:
    pair = case.pair()
    token = pair.pump.send(pair.client, pair.peer, b"hello")
    assert pair.pump.finished(pair.client, [token])
    assert len(pair.client.all_of(Connected)) == 1
    [opened] = pair.server.all_of(Connected)
    assert isinstance(opened, Connected)
    assert opened.token is None
    assert opened.peer == pair.caller()


@over()
def test_a_ping_is_answered_or_the_protocol_says_that_it_has_none(case: Case) -> None:
    pair = case.pair(delay_us=20_000)
    try:
        token = pair.client.machine.ping(pair.peer, pair.pump.now_us)
    except NotSupported:
        assert case.variant in PINGLESS
        return
    pair.pump.settle(pair.client)
    assert pair.pump.finished(pair.client, [token])
    event = pair.client.outcomes[token]
    assert isinstance(event, PingAnswered)
    assert 40_000 <= event.rtt_us <= 80_000
    assert pair.server.bodies == []


PINGLESS: tuple[Variant, ...] = (RUP,)
