"""The relay does what its seed says, and nothing else."""

from __future__ import annotations

import socket

from fairway.demo.relay import HELD_S, OVERTAKEN_BY_MAX, Fate, Faults, Parcel, Relay, relaying

BAD = Faults(loss_per_million=50_000, copies_per_million=30_000, reordered_per_million=40_000, seed=7)


def passed(faults: Faults, count: int, direction: int = 0) -> list[int]:
    """Return the numbers of the datagrams that leave, in order."""
    fate = Fate(faults, direction)
    leaving: list[Parcel] = []
    for number in range(count):
        leaving += fate.take(Parcel(number.to_bytes(4, "big")), 0.0)
    leaving += fate.overdue(HELD_S)
    return [int.from_bytes(parcel.datagram, "big") for parcel in leaving]


def test_the_same_seed_does_the_same_and_another_or_the_other_direction_do_otherwise() -> None:
    first = passed(BAD, 5_000)
    assert first == passed(BAD, 5_000)
    assert first != passed(Faults(50_000, 30_000, 40_000, seed=8), 5_000)
    assert first != passed(BAD, 5_000, direction=1)


def test_as_much_is_lost_or_copied_as_was_asked_for_in_order() -> None:
    assert passed(Faults(seed=7), 1_000) == list(range(1_000))
    lossy = passed(Faults(loss_per_million=50_000, seed=3), 20_000)
    assert 19_000 - 200 < len(lossy) < 19_000 + 200
    assert lossy == sorted(set(lossy))
    copied = passed(Faults(copies_per_million=100_000, seed=3), 10_000)
    assert 11_000 - 200 < len(copied) < 11_000 + 200
    assert copied == sorted(copied)
    assert sorted(set(copied)) == list(range(10_000))


def test_what_is_held_back_is_overtaken_by_a_few_and_never_lost() -> None:
    left = passed(Faults(reordered_per_million=100_000, seed=3), 10_000)
    assert sorted(left) == list(range(10_000))
    late = [
        number for place, number in enumerate(left) if any(after < number for after in left[place + 1 : place + 20])
    ]
    assert len(late) > 500
    assert all(abs(number - place) <= 4 * OVERTAKEN_BY_MAX for place, number in enumerate(left))


def test_a_datagram_that_nothing_overtakes_leaves_after_a_while() -> None:
    fate = Fate(Faults(reordered_per_million=1_000_000, seed=1), 0)
    parcel = Parcel(b"alone")
    assert fate.take(parcel, 10.0) == []
    assert fate.overdue(10.0 + HELD_S / 2) == []
    assert fate.overdue(10.0 + HELD_S) == [parcel]
    assert not fate.holds


def test_counts_add_up() -> None:
    fate = Fate(BAD, 0)
    for number in range(3_000):
        fate.take(Parcel(number.to_bytes(4, "big")), 0.0)
    counts = fate.counts
    assert counts.lost > 0
    assert counts.copied > 0
    assert counts.reordered > 0
    held = 3_000 + counts.copied - counts.lost - counts.passed
    assert 0 <= held <= counts.reordered


def udp() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    sock.settimeout(120)
    return sock


def test_answers_find_the_caller_they_are_for() -> None:
    with udp() as listener, udp() as one, udp() as other:
        relay = Relay(listener.getsockname(), Faults())
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


def test_a_relay_process_tells_what_it_did() -> None:
    with udp() as listener, udp() as caller:
        with relaying(listener.getsockname(), Faults(seed=1)) as (address, stop):
            caller.sendto(b"there", address)
            word, way = listener.recvfrom(100)
            listener.sendto(b"and back", way)
            assert (word, caller.recv(100)) == (b"there", b"and back")
            counts = stop()
        assert counts["forth"] == counts["back"] == {"passed": 1, "lost": 0, "copied": 0, "reordered": 0}
