"""Who may speak, how fast, and with how many sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairway.core.events import Peer
from fairway.gateway.guard import HALF_OPEN_US, Guard
from fairway.gateway.settings import build
from fairway.protocols.mrp import wire as mrp_wire
from fairway.protocols.udpc import wire as udpc_wire

SYN = udpc_wire.datagram(1, 5, 0, udpc_wire.SYN)
HEARTBEAT = udpc_wire.datagram(9, 5, 0, udpc_wire.HBT)
CONNECT = mrp_wire.encode(mrp_wire.Connect(ver=0, cl_conid=1))


def guard(**given: Any) -> Guard:
    return Guard(build({"urls": ["udpc://127.0.0.1:0"], "lake": Path("lake"), **given}))


def test_networks_are_allowed_and_denied_and_deny_wins() -> None:
    judge = guard(allow=["10.0.0.0/8", "2001:db8::/32"], deny=["10.1.0.0/16"])
    assert judge.admits("udpc", SYN, ("10.2.3.4", 1), 0)
    assert judge.admits("rup", b"d", ("2001:db8::7", 1, 0, 0), 0)
    assert not judge.admits("udpc", SYN, ("10.1.3.4", 1), 0)
    assert not judge.admits("udpc", SYN, ("192.0.2.1", 1), 0)
    assert judge.refused == {("udpc", "denied"): 2}


def test_before_a_handshake_only_the_lists_of_networks_are_asked() -> None:
    judge = guard(allow=["10.0.0.0/8"], datagrams_per_second=4)
    assert judge.has_lists
    assert all(judge.lets_in("udpc", SYN, ("10.2.3.4", 1), 0) for _ in range(10))
    assert not judge.lets_in("udpc", b"d" * 30, ("192.0.2.1", 1), 0, 10)
    assert judge.refused == {("udpc", "denied"): 3}
    assert not guard().has_lists


def test_a_prefix_gets_its_datagrams_a_second_and_no_more() -> None:
    judge = guard(datagrams_per_second=1_000)
    passed = sum(judge.admits("rup", b"d", ("192.0.2.1", port), 0) for port in range(1_000))
    assert passed == 250
    assert judge.admits("rup", b"d", ("192.0.2.2", 1), 0), "another prefix has its own"
    later = sum(judge.admits("rup", b"d", ("192.0.2.1", 1), 100_000) for _ in range(1_000))
    assert later == 100
    assert judge.refused["rup", "rate"] == 750 + 900


def test_a_batch_counts_as_its_datagrams() -> None:
    judge = guard(datagrams_per_second=1_000)
    assert judge.admits("rup", b"d" * 250, ("192.0.2.1", 1), 0, 1)
    assert not judge.admits("rup", b"d" * 30, ("192.0.2.1", 1), 0, 1)
    assert judge.refused["rup", "rate"] == 30


def test_an_ipv6_prefix_of_64_bits_counts_as_one() -> None:
    judge = guard(half_open_per_prefix_max=2)
    hosts = [f"2001:db8::{number}" for number in range(1, 4)]
    assert [judge.admits("udpc", SYN, (host, 1, 0, 0), 0) for host in hosts] == [True, True, False]
    assert judge.admits("udpc", SYN, ("2001:db8:0:1::1", 1, 0, 0), 0)
    assert judge.refused == {("udpc", "half_open_full"): 1}


def test_a_half_open_call_counts_until_it_completes_or_its_time_is_over() -> None:
    judge = guard(half_open_per_prefix_max=1)
    first, second = ("192.0.2.1", 1), ("192.0.2.1", 2)
    assert judge.admits("udpc", SYN, first, 0)
    assert judge.admits("udpc", SYN, first, 0), "a repeated call is no second one"
    assert not judge.admits("udpc", SYN, second, 0)
    judge.opened(Peer(first, 7), 0)
    assert judge.admits("udpc", SYN, second, 0)
    assert not judge.admits("udpc", SYN, ("192.0.2.1", 3), HALF_OPEN_US - 1)
    assert judge.admits("udpc", SYN, ("192.0.2.1", 3), HALF_OPEN_US)


def test_sessions_of_an_address_and_of_a_prefix_are_capped_and_those_open_go_on() -> None:
    judge = guard(sessions_per_address_max=1, sessions_per_prefix_max=2)
    one, other, third = (("2001:db8::1", 1, 0, 0), ("2001:db8::2", 1, 0, 0), ("2001:db8::3", 1, 0, 0))
    judge.opened(Peer(one, 7), 0)
    assert not judge.admits("udpc", SYN, ("2001:db8::1", 2, 0, 0), 0)
    judge.opened(Peer(other, 8), 0)
    assert not judge.admits("udpc", SYN, third, 0)
    assert judge.refused == {("udpc", "address_full"): 1, ("udpc", "prefix_full"): 1}
    assert judge.admits("udpc", HEARTBEAT, one, 0)
    judge.closed(Peer(other, 8), 0)
    assert judge.admits("udpc", SYN, third, 0)


def test_a_known_address_cannot_open_more_connections_than_it_may() -> None:
    judge = guard(sessions_per_address_max=2)
    address = ("192.0.2.1", 1)
    judge.opened(Peer(address, 7, 7), 0)
    assert judge.admits("mrp", CONNECT, address, 0)
    judge.opened(Peer(address, 8, 8), 0)
    assert not judge.admits("mrp", CONNECT, address, 0)
    assert judge.admits("mrp", b"MRP\x03" + bytes(20), address, 0)


def test_many_calls_from_one_port_are_as_many_sessions() -> None:
    judge = guard(sessions_per_address_max=5)
    connects = [mrp_wire.encode(mrp_wire.Connect(ver=0, cl_conid=number)) for number in range(1, 101)]
    address = ("192.0.2.1", 1)
    assert sum(judge.admits("mrp", connect, address, 0) for connect in connects) == 5
    assert judge.admits("mrp", connects[0], address, 0), "a repeated call is no second one"
    judge.opened(Peer(address, 7, 7), 0)
    assert not judge.admits("mrp", connects[50], address, 0)
    assert judge.refused == {("mrp", "address_full"): 96}


def test_half_open_calls_from_one_port_count_one_by_one() -> None:
    judge = guard(half_open_per_prefix_max=5)
    calls = [udpc_wire.datagram(1, number, 0, udpc_wire.SYN) for number in range(1, 101)]
    assert sum(judge.admits("udpc", call, ("192.0.2.1", 1), 0) for call in calls) == 5
    assert judge.refused == {("udpc", "half_open_full"): 95}


def test_a_call_at_the_end_of_a_batch_of_other_datagrams_is_seen() -> None:
    judge = guard(half_open_per_prefix_max=1)
    longer = udpc_wire.datagram(9, 5, 0, udpc_wire.HBT) + b"1234567"
    assert judge.admits("udpc", longer + SYN, ("192.0.2.1", 1), 0, len(longer))
    assert not judge.admits("udpc", longer + SYN, ("192.0.2.1", 2), 0, len(longer))


def test_a_session_that_moves_is_counted_where_it_is() -> None:
    judge = guard(sessions_per_address_max=1)
    peer, elsewhere = Peer(("192.0.2.1", 1), 7), ("192.0.2.9", 4)
    judge.opened(peer, 0)
    judge.moved(peer, elsewhere, 0)
    assert judge.admits("udpc", SYN, ("192.0.2.1", 2), 0)
    assert not judge.admits("udpc", SYN, ("192.0.2.9", 5), 0)
    judge.closed(peer, 0)
    assert judge.admits("udpc", SYN, ("192.0.2.9", 5), 0)


def test_protocols_without_sessions_know_no_caps() -> None:
    judge = guard(sessions_per_address_max=1, half_open_per_prefix_max=1)
    assert all(judge.admits("pydevts", b"x", ("192.0.2.1", port), 0) for port in range(1, 100))
