"""A super-buffer has the result of its datagrams one by one, whatever they are."""

from __future__ import annotations

from fairway.core.events import MessageReceived, Peer
from fairway.core.machine import split
from fairway.core.random_source import Seeded
from fairway.protocols.rup import wire
from fairway.protocols.rup.machine import RupMachine
from fairway.protocols.rup.options import RupOptions

PART_BYTES = 22
BODIES = [bytes((7 * place + number) % 251 for place in range(size)) for number, size in enumerate((2_200, 1_555, 660))]
IDS = [f"{number:032x}".encode() for number in (1, 2, 3)]
DATAGRAMS = [
    [
        wire.part(identity, start, len(body), body[start : start + PART_BYTES])
        for start in range(0, len(body), PART_BYTES)
    ]
    for identity, body in zip(IDS, BODIES, strict=True)
]


def test_a_message_in_super_buffers_is_taken_as_a_whole() -> None:
    machine = RupMachine(RupOptions(), Seeded(1))
    for start in range(0, 100, 25):
        machine.receive(b"".join(DATAGRAMS[0][start : start + 25]), "a", start, 64)
    assert machine.statistics.batches == 4
    assert [event.body for event in machine.events() if isinstance(event, MessageReceived)] == [BODIES[0]]


def test_a_batch_with_a_hole_asks_for_it_and_is_taken_as_a_whole() -> None:
    machine = RupMachine(RupOptions(), Seeded(1))
    holed = DATAGRAMS[0][:10] + DATAGRAMS[0][11:]
    machine.receive(b"".join(holed), "a", 0, 64)
    assert machine.statistics.batches == 1
    assert wire.control(wire.REQUEST, IDS[0], 220) in [
        bytes(one) for transmit in machine.transmits() for one in split(transmit.data, 38)
    ]
    machine.receive(DATAGRAMS[0][10], "a", 1)
    assert [event.body for event in machine.events() if isinstance(event, MessageReceived)] == [BODIES[0]]


def test_two_messages_in_one_super_buffer_do_not_mix() -> None:
    machine = RupMachine(RupOptions(), Seeded(1))
    mixed = [datagram for pair in zip(DATAGRAMS[0][:30], DATAGRAMS[2], strict=True) for datagram in pair]
    machine.receive(b"".join(mixed + DATAGRAMS[0][30:]), "a", 0, 64)
    received = {event.id: event.body for event in machine.events() if isinstance(event, MessageReceived)}
    assert received == {IDS[0].decode(): BODIES[0], IDS[2].decode(): BODIES[2]}


def test_a_burst_past_the_total_is_not_taken() -> None:
    machine = RupMachine(RupOptions(), Seeded(1))
    total = 10 * PART_BYTES
    burst = [wire.part(IDS[0], index * PART_BYTES, total, bytes(PART_BYTES)) for index in range(20)]
    machine.receive(b"".join(burst[:5] + burst[10:]), "a", 0, 64)
    assert machine.statistics.dropped == {"past_total": 10}
    machine.receive(b"".join(burst[5:10]), "a", 0, 64)
    assert [event.body for event in machine.events() if isinstance(event, MessageReceived)] == [bytes(total)]


def test_a_burst_past_the_total_is_not_taken_while_holes_are_open() -> None:
    machine = RupMachine(RupOptions(), Seeded(1))
    total = 10 * PART_BYTES
    burst = [wire.part(IDS[0], index * PART_BYTES, total, bytes([index]) * PART_BYTES) for index in range(14)]
    machine.receive(b"".join(burst[:3] + burst[5:8]), "a", 0, 64)
    machine.receive(b"".join(burst[8:]), "a", 0, 64)
    assert machine.statistics.dropped == {"past_total": 4}
    machine.receive(b"".join(burst[3:5]), "a", 0, 64)
    expected = b"".join(bytes([index]) * PART_BYTES for index in range(10))
    assert [event.body for event in machine.events() if isinstance(event, MessageReceived)] == [expected]


def test_a_window_leaves_as_bursts_with_a_segment_size() -> None:
    machine = RupMachine(RupOptions(controller="eager", window=200, datagram_bytes_max=64), Seeded(1))
    machine.connect("b", 0)
    machine.send(Peer("b"), BODIES[0], 0)
    transmits = machine.transmits()
    assert [(len(transmit.data), transmit.segment_bytes) for transmit in transmits] == [(100 * 64, 64)]
    sent = b"".join(bytes(one)[42:] for transmit in transmits for one in split(transmit.data, 64))
    assert sent == BODIES[0]
