"""Strangers get little back, fill no table past its bound, and do not disturb healthy conversations."""

from __future__ import annotations

import zlib

import pytest

from benchmarks.footprint import footprint
from fairway.core.events import Connected
from fairway.core.machine import Machine

from .variants import BOTH, CLIENT, SECOND, SERVER, Case, numbered, over

STRANGER = ("stranger", 6)


def bytes_to(case: Case, target: object, datagrams: list[bytes]) -> int:
    """Count the bytes that a server ever sends to an address from which these datagrams came, over a minute."""
    pump = case.pump()
    pump.add(case.machine(2), SERVER)
    for datagram in datagrams:
        pump.inject(datagram, target, SERVER)
        pump.run(10_000)
    pump.run(60 * SECOND)
    return sum(len(datagram.data) for datagram in pump.log if datagram.target == target)


@over(deferred=BOTH)
@pytest.mark.parametrize(("size", "times"), [(0, 1), (1, 1), (30, 1), (1_100, 1), (60_000, 1), (1, 20)])
def test_forged_first_datagrams_get_at_most_three_times_their_bytes_back(case: Case, size: int, times: int) -> None:
    if size == 0 and not case.variant.carries_empty:
        size = 2
    first = case.first_datagram(bytes(size))
    assert bytes_to(case, STRANGER, [first] * times) <= 3 * times * len(first)


def made_up(case: Case, first: bytes, number: int) -> bytes:
    """Return a caller's first datagram an id of its own."""
    wide = number + 1
    match case.variant.protocol:
        case "udpc":
            return wide.to_bytes(4, "big") + (wide + 7).to_bytes(4, "big") + first[8:]
        case "mrp":
            return first[:5] + wide.to_bytes(3, "big")
        case "rup":
            return first[:2] + f"{wide:032x}".encode() + first[34:]
        case _:
            body = b"%07d" % number
            return bytes(2) + (wide & 0xFFFF).to_bytes(2, "big") + zlib.crc32(body).to_bytes(4, "big") + body


SMALL_BOUNDS: dict[str, object] = {
    "peers_max": 64,
    "half_open_max": 32,
    "unproved_max": 64,
    "open_receipts_max": 100,
    "send_queue_messages_max": 100,
}
SMALL_OWN_BOUNDS: dict[str, dict[str, object]] = {
    "pydevts": {"remembered_max": 200},
    "rup": {"incoming_messages_max": 100, "incoming_messages_per_peer_max": 50, "remembered_max": 200},
}
SLOTS = 64 + 32 + 64 + 100 + 100 + 100 + 200
ENTRIES_PER_SLOT = 8
"""Tables, timers and queues in which one slot of a bound may have an entry."""


def small(case: Case) -> Machine:
    """Make a server with small bounds."""
    return case.machine(2, **SMALL_BOUNDS, **SMALL_OWN_BOUNDS.get(case.variant.protocol, {}))


@over(deferred=BOTH)
@pytest.mark.parametrize("one_address", BOTH, ids=["many addresses", "one address"])
def test_thousands_of_made_up_callers_leave_every_table_at_its_bound(case: Case, one_address: bool) -> None:
    pump = case.pump()
    server = pump.add(small(case), SERVER)
    first = case.first_datagram(b"made up")
    sizes = []
    for number in range(3_000):
        source = STRANGER if one_address else ("stranger", number)
        pump.inject(made_up(case, first, number), source, SERVER)
        if number % 300 == 299:
            pump.run(10_000)
            sizes.append(footprint(server.machine).entries)
    assert 0 < max(sizes) <= ENTRIES_PER_SLOT * SLOTS
    assert max(sizes[5:]) <= max(sizes[:5]) + 50


@over(deferred=BOTH)
def test_strangers_that_are_gone_make_room_for_others(case: Case) -> None:
    pump = case.pump()
    server = pump.add(small(case), SERVER)
    first = case.first_datagram(b"made up")
    for number in range(500):
        pump.inject(made_up(case, first, number), ("stranger", number), SERVER)
        pump.run(100)
    pump.run(400 * SECOND)
    client = pump.add(case.machine(1), CLIENT)
    token = pump.send(client, pump.connected(client, SERVER), b"let me in")
    pump.delivers(client, [token])
    assert server.bodies[-1] == b"let me in"


@over(where=lambda variant: variant.handshake)
def test_half_open_conversations_are_bounded_and_the_oldest_goes_first(case: Case) -> None:
    pump, opening = case.pump(), case.of_kind("opening")
    server = pump.add(case.machine(2, half_open_max=2), SERVER)
    completing = pump.hold(lambda datagram: datagram.target == SERVER and not opening(datagram))
    for port in (1, 2, 3):
        pump.connected(pump.add(case.machine(port), ("client", port)), SERVER)
    completing.release()
    pump.run(SECOND)
    assert [event.peer.address for event in server.all_of(Connected)] == [("client", 2), ("client", 3)]  # type: ignore[union-attr]
    assert server.machine.statistics.dropped["half_open_evicted"] == 1


@over(where=lambda variant: variant.handshake)
def test_forged_packets_of_a_conversation_from_another_address_are_dropped(case: Case) -> None:
    pair = case.pair()
    pair.deliver([b"mine"])
    sent = pair.pump.sent
    for datagram in [d for d in pair.pump.log if d.source == CLIENT and not case.of_kind("opening")(d)]:
        pair.pump.inject(datagram.data, STRANGER, SERVER)
    pair.pump.run(SECOND)
    assert [d for d in pair.pump.sent_by(pair.server, sent) if d.target == STRANGER] == []
    assert pair.server.bodies == [b"mine"]


@over(deferred=BOTH, dtls=BOTH)
def test_replaying_the_whole_conversation_delivers_nothing_again(case: Case) -> None:
    pair = case.pair()
    pair.deliver(numbered(20))
    pair.pump.run(SECOND)
    for datagram in list(pair.pump.log):
        pair.pump.inject(datagram.data, datagram.source, datagram.target)
    pair.pump.run(5 * SECOND)
    assert sorted(pair.server.bodies) == numbered(20)
    assert pair.client.bodies == []
    pair.deliver([b"goes on"])
