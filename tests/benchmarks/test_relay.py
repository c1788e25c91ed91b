"""The relay does what its seed says, and nothing else."""

from __future__ import annotations

import socket

import pytest

from fairway.demo import relay as module
from fairway.demo.relay import Relay, Way, relaying
from fairway.sim.pipe import Faults

BAD = Faults(loss=50_000, duplicate=30_000, reorder=40_000, reorder_us=5_000, delay_us=0)
NONE = Faults(delay_us=0)


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the relay's clock."""
    monkeypatch.setattr(module, "now_us", lambda: 0)


def passed(faults: Faults, count: int, seed: int) -> list[int]:
    """Return the numbers of the datagrams that leave, in order."""
    way, leaving = Way(faults, seed), list[bytes]()
    for number in range(count):
        way.send(number.to_bytes(4, "big"), leaving.append)
    way.deliver(2 * faults.longest_us)
    return [int.from_bytes(datagram, "big") for datagram in leaving]


@pytest.mark.usefixtures("still")
def test_the_same_seed_does_the_same_and_another_something_else() -> None:
    assert passed(BAD, 5_000, 7) == passed(BAD, 5_000, 7)
    assert passed(BAD, 5_000, 7) != passed(BAD, 5_000, 8)


@pytest.mark.usefixtures("still")
def test_without_faults_everything_passes_in_order() -> None:
    assert passed(NONE, 1_000, 7) == list(range(1_000))


@pytest.mark.usefixtures("still")
def test_faults_have_the_shares_that_were_asked_for_and_are_counted() -> None:
    way, leaving = Way(BAD, 3), list[bytes]()
    for number in range(20_000):
        way.send(number.to_bytes(4, "big"), leaving.append)
    assert way.deliver(2 * BAD.longest_us) == 2 * BAD.longest_us + 1_000_000
    lost, doubled = way.happened["loss"], way.happened["duplicate"]
    assert 800 < lost < 1_200
    assert 470 < doubled < 690
    assert 650 < way.happened["reorder"] < 870
    assert len(leaving) == way.happened["delivered"] == 20_000 - lost + doubled


@pytest.mark.usefixtures("still")
def test_a_datagram_that_is_held_back_leaves_when_it_is_due() -> None:
    way, leaving = Way(Faults(reorder=1_000_000, reorder_us=5_000, delay_us=0), 1), list[bytes]()
    way.send(b"alone", leaving.append)
    due_us = way.deliver(0)
    assert 0 < due_us <= 5_000
    assert leaving == []
    way.deliver(due_us)
    assert leaving == [b"alone"]


def udp() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    sock.settimeout(120)
    return sock


def test_answers_find_the_caller_they_are_for() -> None:
    with udp() as listener, udp() as one, udp() as other:
        relay = Relay(listener.getsockname(), NONE, 1)
        try:
            for caller, word in ((one, b"one"), (other, b"other")):
                caller.sendto(word, relay.address)
                relay.turn(1.0)
            for _ in range(2):
                word, way = listener.recvfrom(100)
                listener.sendto(word.upper(), way)
                relay.turn(1.0)
            assert (one.recv(100), other.recv(100)) == (b"ONE", b"OTHER")
        finally:
            relay.close()


def test_a_relay_process_returns_what_happened() -> None:
    with udp() as listener, udp() as caller:
        with relaying(listener.getsockname(), NONE, 1) as (address, stop):
            caller.sendto(b"there", address)
            word, way = listener.recvfrom(100)
            listener.sendto(b"and back", way)
            assert (word, caller.recv(100)) == (b"there", b"and back")
            counts = stop()
        for happened in counts.values():
            assert happened.pop("late_us") >= 0
            assert happened == {"packets": 1, "delivered": 1}
