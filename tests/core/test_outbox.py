"""The outbox: order, joining, counts, and the three-times limit."""

from __future__ import annotations

import pytest

from fairway.core.machine import UDP_PAYLOAD_BYTES_MAX, Transmit
from fairway.core.outputs import Outbox
from fairway.core.statistics import Statistics


@pytest.fixture
def statistics() -> Statistics:
    return Statistics()


@pytest.fixture
def outbox(statistics: Statistics) -> Outbox:
    return Outbox(statistics, unproved_max=2)


def test_neighbouring_datagrams_of_one_size_leave_as_one_transmit(outbox: Outbox, statistics: Statistics) -> None:
    outbox.send("a", b"11", 2)
    outbox.send("a", b"2233", 2, 2)
    outbox.send("b", b"44", 2)
    outbox.send("b", b"555", 3)
    assert outbox.take() == [Transmit("a", b"112233", 2), Transmit("b", b"44"), Transmit("b", b"555")]
    assert outbox.take() == []
    assert (statistics.datagrams_sent, statistics.bytes_sent) == (5, 11)


def test_datagrams_are_not_joined_over_another_address_between_them(outbox: Outbox) -> None:
    for address in ("a", "b", "a"):
        outbox.send(address, b"11", 2)
    assert outbox.take() == [Transmit("a", b"11"), Transmit("b", b"11"), Transmit("a", b"11")]


def test_nothing_is_joined_with_what_was_taken_before(outbox: Outbox) -> None:
    outbox.send("a", b"11", 2)
    assert outbox.take() == [Transmit("a", b"11")]
    outbox.send("a", b"22", 2)
    assert outbox.take() == [Transmit("a", b"22")]


def test_nothing_follows_a_shorter_datagram_in_its_transmit(outbox: Outbox) -> None:
    outbox.send("a", b"1111", 4)
    outbox.send("a", b"2222333", 4, 2)
    outbox.send("a", b"4444", 4)
    assert outbox.take() == [Transmit("a", b"11112222333", 4), Transmit("a", b"4444")]


def test_a_single_datagram_below_the_size_of_its_kind_ends_a_transmit(outbox: Outbox) -> None:
    outbox.send("a", b"111", 4)
    outbox.send("a", b"2222", 4)
    assert outbox.take() == [Transmit("a", b"111"), Transmit("a", b"2222")]


def test_no_more_is_joined_than_one_system_call_carries(outbox: Outbox) -> None:
    half = bytes(UDP_PAYLOAD_BYTES_MAX // 2)
    for _ in range(3):
        outbox.send("a", half, len(half))
    assert outbox.take() == [Transmit("a", half + half, len(half)), Transmit("a", half)]


def test_an_unproved_address_gets_three_times_what_came_from_it(outbox: Outbox, statistics: Statistics) -> None:
    outbox.received("a", 2)
    for _ in range(4):
        outbox.answer("a", b"11", 2)
    assert outbox.take() == [Transmit("a", b"111111", 2)]
    assert (statistics.datagrams_sent, statistics.bytes_sent, statistics.amplification_withheld) == (3, 6, 1)
    assert outbox.budget("a") == 0


def test_the_limit_lets_the_first_few_of_a_run_through_as_one_by_one(outbox: Outbox, statistics: Statistics) -> None:
    outbox.received("a", 3)
    outbox.answer("a", b"111122223333", 4, 3)
    assert outbox.take() == [Transmit("a", b"11112222", 4)]
    assert (statistics.datagrams_sent, statistics.amplification_withheld) == (2, 1)
    assert outbox.budget("a") == 1


def test_what_the_limit_withholds_entirely_leaves_nothing_behind(outbox: Outbox, statistics: Statistics) -> None:
    outbox.answer("a", b"1122", 2, 2)
    assert outbox.take() == []
    assert (statistics.datagrams_sent, statistics.bytes_sent, statistics.amplification_withheld) == (0, 0, 2)


def test_a_proved_address_has_no_limit_until_it_is_disowned(outbox: Outbox) -> None:
    outbox.received("a", 1)
    outbox.prove("a")
    assert outbox.is_proved("a")
    assert outbox.budget("a") is None
    outbox.answer("a", b"11112222", 4, 2)
    assert outbox.take() == [Transmit("a", b"11112222", 4)]
    outbox.received("a", 100)
    outbox.disown("a")
    assert not outbox.is_proved("a")
    assert outbox.budget("a") == 0


def test_proof_given_twice_is_taken_back_once(outbox: Outbox) -> None:
    outbox.prove("a")
    outbox.prove("a")
    outbox.disown("a")
    outbox.disown("a")
    assert not outbox.is_proved("a")


def test_one_who_sends_to_an_unproved_address_is_held_to_the_limit_whatever_else_was_proved(outbox: Outbox) -> None:
    outbox.prove("a")
    outbox.send_unproved("a", b"11", 2)
    outbox.send("b", b"22", 2)
    assert outbox.take() == [Transmit("b", b"22")]
