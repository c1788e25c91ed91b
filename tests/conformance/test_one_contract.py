"""The same mistake, the same state and the same pressure get the same error or event, counter and words everywhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields

import pytest

from fairway.core.errors import AlreadyOpen, BadMessage, BadOption, CallerError, CannotConnect, NoSuchPeer, QueueFull
from fairway.core.events import (
    NO_ACKNOWLEDGEMENT,
    NO_ANSWER,
    Closed,
    CloseReason,
    Connected,
    ConnectUnknown,
    DeliveryUnknown,
    Peer,
    Writable,
)
from fairway.core.machine import Machine
from fairway.protocols import NAMES, make_options, options_class

from .pair import Node
from .variants import BOTH, MRP_PIGGYBACK, MRP_STAMPED, PYDEVTS, SERVER, UDPC, Case, Pair, numbered, over

OTHER = ("other", 3)
MINUTE_US = 60_000_000

OLD_OPTIONS = """rto_min_us rto_max_us connect_limit_us ping_limit_us important_limit_us request_limit_us syn_repeat_us
    syn_repeat_max_us connect_repeat_max_us resend_initial_us resend_min_us resend_max_us unacknowledged_us idle_us
    heartbeat_us completed_max""".split()


def with_caller(case: Case, *, server: dict[str, object] | None = None) -> tuple[Pair, Peer]:
    """Make a pair whose server has received one message, and return the client as the server knows it."""
    pair = case.pair(server=server)
    pair.send_all([b"first"])
    pair.pump.run(1_000_000)
    return pair, pair.caller()


def closing_server(case: Case) -> tuple[Pair, Peer]:
    """Make a pair whose server is closing the conversation and waits for an acknowledgement that never comes."""
    pair, caller = with_caller(case)
    pair.pump.lose(case.of_kind("ack", pair.client.address))
    pair.pump.send(pair.server, caller, b"never acknowledged")
    pair.pump.run(case.pump().delay_us // 2)
    pair.server.machine.close(caller, pair.pump.now_us)
    pair.pump.settle(pair.server)
    return pair, caller


# Opening.


@over()
def test_a_closed_endpoint_opens_no_conversation(case: Case) -> None:
    machine = case.machine()
    machine.close(None, 1)
    with pytest.raises(CannotConnect, match=r"^this endpoint was closed: it opens no new conversations$"):
        machine.connect(SERVER, 2)
    assert machine.unfinished() == 0
    assert machine.events() == []


@over(dtls=BOTH)
def test_no_more_conversations_are_opened_than_peers_max(case: Case) -> None:
    pair = case.pair(client={"peers_max": 1})
    with pytest.raises(CannotConnect, match=r"^peers_max is 1 and so many conversations are open or being opened$"):
        pair.client.machine.connect(OTHER, pair.pump.now_us)
    assert pair.client.machine.unfinished() == 0
    assert pair.client.machine.events() == []


@over(where=lambda variant: variant.handshake)
def test_a_call_under_way_counts_as_a_peer(case: Case) -> None:
    machine = case.machine(peers_max=1)
    machine.connect(SERVER, 1)
    with pytest.raises(CannotConnect, match="peers_max is 1"):
        machine.connect(OTHER, 2)


@over()
def test_a_caller_beyond_peers_max_is_counted_and_not_let_in(case: Case) -> None:
    pair, caller = with_caller(case, server={"peers_max": 1})
    other = pair.pump.add(case.machine(5), OTHER)
    token = pair.pump.connect(other, SERVER)
    if not case.variant.handshake:
        event = other.outcomes[token]
        assert isinstance(event, Connected)
        pair.pump.send(other, event.peer, b"hello")
    pair.pump.run(1_000_000)
    assert pair.server.machine.statistics.dropped["peers_full"] >= 1
    assert {event.peer for event in pair.server.all_of(Connected)} == {caller}  # type: ignore[union-attr]


@over()
def test_a_closed_endpoint_counts_whoever_calls_it(case: Case) -> None:
    pump = case.pump()
    server = pump.add(case.machine(2), SERVER)
    server.machine.close(None, pump.now_us)
    pump.inject(case.first_datagram(), OTHER, SERVER)
    pump.run(100_000)
    assert dict(server.machine.statistics.dropped) == {"endpoint_closed": 1}
    assert pump.sent == 0


@over(where=lambda variant: variant.handshake)
def test_a_call_pending_at_close_is_unknown(case: Case) -> None:
    pump = case.pump()
    client = pump.add(case.machine(), ("client", 1))
    token = pump.connect(client, SERVER)
    client.machine.close(None, pump.now_us)
    pump.settle(client)
    assert client.outcomes[token] == ConnectUnknown(token, SERVER, CloseReason.SHUT_DOWN)


@over(where=lambda variant: not variant.handshake)
def test_an_address_whose_conversation_is_closing_cannot_be_connected_to(case: Case) -> None:
    pair, caller = closing_server(case)
    with pytest.raises(CannotConnect, match=r"is still closing$"):
        pair.server.machine.connect(caller.address, pair.pump.now_us)


# Sending.


Ask = Callable[[Machine, Peer, int], object]
ASKS: tuple[Ask, ...] = (
    lambda machine, peer, now_us: machine.send(peer, b"hello", now_us),
    lambda machine, peer, now_us: machine.send_many(peer, [b"hello"], now_us),
    lambda machine, peer, now_us: machine.ping(peer, now_us),
    lambda machine, peer, now_us: machine.room(peer),
)


@over()
@pytest.mark.parametrize("ask", ASKS, ids=["send", "send_many", "ping", "room"])
def test_a_closing_conversation_takes_nothing_more(case: Case, ask: Ask) -> None:
    pair, caller = closing_server(case)
    with pytest.raises(NoSuchPeer, match=rf"^{case.variant.protocol} has no open conversation with \('client', 1\)"):
        ask(pair.server.machine, caller, pair.pump.now_us)


@over(dtls=BOTH)
@pytest.mark.parametrize(
    "ask",
    [*ASKS, lambda machine, peer, now_us: machine.close(peer, now_us)],
    ids=["send", "send_many", "ping", "room", "close"],
)
def test_a_stranger_is_named_in_the_same_words(case: Case, ask: Ask) -> None:
    pair = case.pair()
    stranger = Peer(("nobody", 7), 4_242 if case.variant.handshake else None)
    with pytest.raises(NoSuchPeer, match=rf"^{case.variant.protocol} has no open conversation with \('nobody', 7\)"):
        ask(pair.client.machine, stranger, pair.pump.now_us)


@over(dtls=BOTH)
def test_a_message_that_is_too_large_is_refused_in_the_same_words(case: Case) -> None:
    limit = case.variant.body_bytes_max
    overrides: dict[str, object] = {}
    if limit is None:
        overrides, limit = {"message_bytes_max": 5_000}, 5_000
    pair = case.pair(client=overrides)
    expected = f"^a message of {limit + 1} bytes is too large: {case.variant.protocol} carries at most {limit}"
    with pytest.raises(BadMessage, match=expected):
        pair.client.machine.send(pair.peer, bytes(limit + 1), pair.pump.now_us)
    with pytest.raises(BadMessage, match=expected):
        pair.client.machine.send_many(pair.peer, [b"good", bytes(limit + 1)], pair.pump.now_us)
    assert pair.client.machine.unfinished() == 0
    pair.pump.run(1_000_000)
    assert pair.server.bodies == []


@over(where=lambda variant: variant.protocol != "udpc", dtls=BOTH)
def test_flags_and_answers_are_refused_in_the_same_words(case: Case) -> None:
    pair = case.pair()
    with pytest.raises(CallerError) as caught:
        pair.client.machine.send(pair.peer, b"hello", pair.pump.now_us, flags=1)
    expected = f"{case.variant.protocol} messages carry neither flags nor answers; those belong to udpc"
    assert str(caught.value) == expected


@over(dtls=BOTH)
def test_nothing_is_writable_after_close(case: Case) -> None:
    pair = case.pair(client={"send_queue_messages_max": 8, "window": 1})
    pair.send_all(numbered(8))
    with pytest.raises(QueueFull):
        pair.client.machine.send(pair.peer, b"ninth", pair.pump.now_us)
    pair.client.machine.close(pair.peer, pair.pump.now_us)
    pair.pump.run(10_000_000)
    assert pair.client.all_of(Writable) == []
    assert len(pair.server.received) == 8


@over(dtls=BOTH)
def test_what_waits_does_not_count_as_sent(case: Case) -> None:
    pair = case.pair(client={"window": 1})
    pair.send_all(numbered(5))
    assert pair.client.machine.statistics.messages_sent == 1
    pair.pump.run(5_000_000)
    assert pair.client.machine.statistics.messages_sent == 5


@over(where=lambda variant: variant.protocol != "rup")
def test_pings_are_bounded_for_each_peer(case: Case) -> None:
    pair = case.pair(client={"pings_max": 1})
    other = pair.pump.add(case.machine(5), OTHER)
    machine, second = pair.client.machine, pair.pump.connected(pair.client, OTHER)
    assert other.machine is not machine
    pair.send_all([b"hello"])
    pair.pump.send(pair.client, second, b"hello")
    pair.pump.run(1_000_000)
    machine.ping(pair.peer, pair.pump.now_us)
    with pytest.raises(QueueFull, match=r"^pings_max is 1 and so many pings to \('server', 9\) wait for their answer$"):
        machine.ping(pair.peer, pair.pump.now_us)
    machine.ping(second, pair.pump.now_us)


@over(where=lambda variant: variant.protocol != "rup", dtls=BOTH)
def test_a_ping_without_an_answer_is_unknown(case: Case) -> None:
    pair = case.pair()
    pair.send_all([b"hello"])
    pair.pump.run(1_000_000)
    pair.pump.remove(pair.server)
    token = pair.client.machine.ping(pair.peer, pair.pump.now_us)
    pair.pump.settle(pair.client)
    pair.pump.run(6_000_000)
    assert pair.client.outcomes[token] == DeliveryUnknown(pair.peer, (token,), NO_ANSWER)


@over(dtls=BOTH)
def test_a_message_without_acknowledgement_is_unknown(case: Case) -> None:
    pair = case.pair()
    pair.pump.lose(case.of_kind("data", pair.client.address))
    (token,) = pair.send_all([b"hello"])
    pair.pump.run_until(lambda: token in pair.client.outcomes, MINUTE_US)
    event = pair.client.outcomes[token]
    assert isinstance(event, DeliveryUnknown)
    assert (list(event.tokens), event.reason) == ([token], NO_ACKNOWLEDGEMENT)


# Receiving.


@over(deferred=(False, True))
def test_a_message_beyond_the_open_receipts_is_counted(case: Case) -> None:
    pair = case.pair(server={"open_receipts_max": 1}, commits=False)
    pair.send_all([b"one", b"two"])
    pair.pump.run(100_000)
    assert pair.server.bodies == [b"one"]
    dropped = pair.server.machine.statistics.dropped
    assert dropped["receipts_full"] >= 1
    assert set(dropped) == {"receipts_full"}


@over(where=lambda variant: not variant.handshake)
def test_a_message_beyond_what_is_remembered_is_counted(case: Case) -> None:
    pair = case.pair(server={"remembered_max": 1})
    pair.send_all([b"one", b"two"])
    pair.pump.run(100_000)
    assert pair.server.bodies == [b"one"]
    assert set(pair.server.machine.statistics.dropped) == {"remembered_full"}


@over()
def test_a_message_to_a_closing_conversation_is_counted(case: Case) -> None:
    pair, _ = closing_server(case)
    pair.send_all([b"late"])
    pair.pump.run(100_000)
    assert pair.server.bodies == [b"first"]
    assert pair.server.machine.statistics.dropped["closing"] >= 1
    assert set(pair.server.machine.statistics.dropped) == {"closing"}


# The end.


def _closed(node: Node) -> list[CloseReason]:
    return [event.reason for event in node.events if isinstance(event, Closed)]


@over()
def test_closing_one_conversation_is_local_and_twice_changes_nothing(case: Case) -> None:
    pair, caller = closing_server(case)
    pair.server.machine.close(caller, pair.pump.now_us)
    pair.pump.run(2 * MINUTE_US)
    assert _closed(pair.server) == [CloseReason.LOCAL]


@over()
def test_closing_the_endpoint_shuts_every_conversation_down(case: Case) -> None:
    pair, _ = with_caller(case)
    for _ in range(2):
        pair.client.machine.close(None, pair.pump.now_us)
        pair.pump.settle(pair.client)
    pair.pump.run(2 * MINUTE_US)
    assert _closed(pair.client) == [CloseReason.SHUT_DOWN]


@over(deferred=(True,))
def test_a_closing_conversation_can_still_be_stored(case: Case) -> None:
    pair, caller = closing_server(case)
    assert pair.server.machine.snapshot(caller)


@over(UDPC, MRP_STAMPED, MRP_PIGGYBACK, PYDEVTS)
def test_what_is_open_cannot_be_restored(case: Case) -> None:
    pair, caller = with_caller(case)
    snapshot = pair.server.machine.snapshot(caller)
    with pytest.raises(AlreadyOpen, match=r"^the conversation with \('client', 1\) is open already"):
        pair.server.machine.restore(snapshot, pair.pump.now_us)


# Options.


@pytest.mark.parametrize("protocol", NAMES)
def test_an_old_name_of_an_option_is_unknown(protocol: str) -> None:
    for option in OLD_OPTIONS:
        with pytest.raises(BadOption, match=f"^there is no option '{option}'; known are"):
            make_options(protocol, **{option: 1})


@pytest.mark.parametrize("protocol", NAMES)
def test_the_unit_of_an_option_is_followed_by_nothing_but_its_bound(protocol: str) -> None:
    names = [field.name for field in fields(options_class(protocol))]
    assert [name for name in names if re.search(r"_(min|max|limit)_(us|bytes)$|_us_(?!min$|max$)", name)] == []
