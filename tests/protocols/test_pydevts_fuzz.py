"""Random, cut and changed datagrams: nothing raises, nothing grows past its bound, and healthy messages get through."""

from __future__ import annotations

from zlib import crc32

from fairway.core.events import Delivered, MessageReceived, MessagesReceived, Peer
from fairway.core.random_source import Seeded
from fairway.protocols.pydevts import wire
from fairway.protocols.pydevts.machine import PydevtsMachine
from fairway.protocols.pydevts.options import PydevtsOptions

DATAGRAMS = 50_000
HERE, THERE, ELSEWHERE = ("here", 1), ("there", 2), ("elsewhere", 3)
BOUNDS = {"remembered_max": 2_000, "open_receipts_max": 300, "peers_max": 50, "unproved_max": 40}


def hostile(chance: Seeded) -> bytes:
    """A datagram that is random, or good but for a cut or a changed bit."""
    shape = chance.below(4)
    if shape == 0:
        return chance.bits(8 * 20).to_bytes(20, "big")[: chance.below(21)]
    body = bytes(chance.below(4))
    header = wire.key(chance.below(1 << 16), crc32(body)) | chance.below(4) << wire.TYPE_SHIFT
    data = bytearray(wire.datagram(header, body))
    if shape == 1:
        data[chance.below(len(data))] ^= 1 << chance.below(8)
    elif shape == 2:
        del data[chance.below(len(data)) :]
    return bytes(data)


class Storm:
    """A server that is talked to by one healthy client and by whoever else."""

    def __init__(self) -> None:
        self.server = PydevtsMachine(PydevtsOptions(**BOUNDS), Seeded(1))  # type: ignore[arg-type]
        self.client = PydevtsMachine(PydevtsOptions(), Seeded(2))
        self.client.connect(THERE, 0)
        self.received: list[bytes] = []
        self.delivered = 0
        self.from_strangers = 0
        self.to_strangers = 0

    def settle(self, now_us: int) -> None:
        for _ in range(4):
            for data in self.client.transmits():
                self.server.receive(data.data, HERE, now_us, data.segment_bytes)
            for data in self.server.transmits():
                if data.address == HERE:
                    self.client.receive(data.data, THERE, now_us, data.segment_bytes)
                else:
                    self.to_strangers += len(data.data)
        for event in self.server.events():
            if isinstance(event, MessageReceived | MessagesReceived):
                self.server.commit(event.receipt, now_us)
                messages = [event] if isinstance(event, MessageReceived) else list(event)
                self.received += [one.body for one in messages if one.peer.address == HERE]
        self.delivered += sum(len(event.tokens) for event in self.client.events() if isinstance(event, Delivered))


def test_fifty_thousand_hostile_datagrams_harm_nobody() -> None:
    chance, storm, now_us = Seeded(3), Storm(), 0
    expected: list[bytes] = []
    for number in range(DATAGRAMS):
        now_us += 2_000
        data = hostile(chance)
        storm.from_strangers += len(data)
        storm.server.receive(data, (*ELSEWHERE, chance.below(60)), now_us)
        if number % 100 == 0:
            body = b"healthy" + number.to_bytes(4, "big")
            expected.append(body)
            storm.client.send(Peer(THERE), body, now_us)
            storm.server.wake(now_us)
            storm.client.wake(now_us)
        if number % 20 == 0:
            storm.settle(now_us)
        assert len(storm.server.peers()) <= BOUNDS["peers_max"]
    for _ in range(60):
        now_us += 1_000_000
        storm.server.wake(now_us)
        storm.client.wake(now_us)
        storm.settle(now_us)
    assert sorted(storm.received) == sorted(expected)
    assert storm.delivered == len(expected)
    assert storm.client.unfinished() == 0
    assert storm.to_strangers <= 3 * storm.from_strangers
    dropped = storm.server.statistics.dropped
    for reason in (*wire.REASONS[1:5], "bad_crc", "unknown_close", "peers_full"):
        assert dropped[reason] > 0, reason


def test_hostile_super_buffers_of_every_segment_size_raise_nothing() -> None:
    chance, server = Seeded(4), PydevtsMachine(PydevtsOptions(**BOUNDS), Seeded(1))  # type: ignore[arg-type]
    for number in range(5_000):
        data = b"".join(hostile(chance) for _ in range(1 + chance.below(4)))
        server.receive(memoryview(data), ELSEWHERE, number, 1 + chance.below(12))
        server.transmits()
        server.events()
    assert server.statistics.datagrams_received > 5_000
