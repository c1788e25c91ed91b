"""The relay holds back what its faults say and finds the way back."""

from __future__ import annotations

import socket

import pytest

from fairway.demo import relay as module
from fairway.demo.relay import Relay, Way, relaying
from fairway.sim.pipe import Faults

NONE = Faults(delay_us=0)


def test_a_datagram_that_is_held_back_leaves_when_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "now_us", lambda: 0)
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
