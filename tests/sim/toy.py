"""A tiny stop-and-wait machine: enough of the contract to test the simulator with something that is easily right.

A datagram is a kind (1 data, 2 ack), eight bytes that name the sending process, a u32 number and the body.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import ClassVar

from fairway.core.errors import NotSupported, QueueFull
from fairway.core.events import (
    Address,
    Connected,
    Delivered,
    DeliveryUnknown,
    Event,
    MessageReceived,
    Peer,
    Receipt,
    Writable,
)
from fairway.core.machine import Buffer, Options, Transmit
from fairway.core.random_source import RandomSource
from fairway.core.statistics import Statistics

HEADER = Struct(">BQI")
DATA, ACK = 1, 2
REPEAT_AFTER_US = 300_000
TRIES_MAX = 20


class Outgoing:
    def __init__(self) -> None:
        self.queue: deque[tuple[int, bytes]] = deque()
        self.number = 1
        self.tries = 0
        self.due_us = 0
        self.was_full = False


class ToyMachine:
    name: ClassVar[str] = "toy"

    def __init__(self, options: Options, chance: RandomSource) -> None:
        self.statistics = Statistics()
        self.options = options
        self.process = chance.bits(64)
        self.tokens = 0
        self.outgoing: dict[Address, Outgoing] = {}
        self.newest: dict[tuple[Address, int], int] = {}
        self.open: dict[tuple[Address, int], tuple[int, int]] = {}
        self.out: list[Transmit] = []
        self.happened: list[Event] = []

    def receive(self, data: Buffer, address: Address, now_us: int, segment_bytes: int | None = None) -> None:
        size = segment_bytes or max(len(data), 1)
        for start in range(0, len(data) or 1, size):
            self._receive(bytes(data[start : start + size]), address, now_us)

    def _receive(self, data: bytes, address: Address, now_us: int) -> None:
        self.statistics.datagrams_received += 1
        self.statistics.bytes_received += len(data)
        if len(data) < HEADER.size or data[0] not in (DATA, ACK):
            self.statistics.dropped["malformed"] += 1
            return
        kind, process, number = HEADER.unpack_from(data)
        if kind == ACK:
            self._acknowledged(address, process, number, now_us)
        elif self.is_copy(address, process, number):
            self.statistics.duplicates += 1
            if (address, number) not in self.open or not self.options.deferred:
                self.acknowledge(address, process, number)
        else:
            self._deliver(address, process, number, data[HEADER.size :])

    def is_copy(self, address: Address, process: int, number: int) -> bool:
        return number <= self.newest.get((address, process), 0)

    def _deliver(self, address: Address, process: int, number: int, body: bytes) -> None:
        if len(self.open) >= self.options.open_receipts_max:
            self.statistics.dropped["receipts_full"] += 1
            return
        self.newest[address, process] = number
        self.open[address, number] = (process, number)
        self.happened.append(MessageReceived(Peer(address), number, body))
        if not self.options.deferred:
            self.acknowledge(address, process, number)

    def acknowledge(self, address: Address, process: int, number: int) -> None:
        self.out.append(Transmit(address, HEADER.pack(ACK, process, number)))

    def _acknowledged(self, address: Address, process: int, number: int, now_us: int) -> None:
        outgoing = self.outgoing.get(address)
        if outgoing is None or process != self.process or number != outgoing.number or not outgoing.queue:
            self.statistics.dropped["unknown_ack"] += 1
            return
        token, _ = outgoing.queue.popleft()
        self.happened.append(Delivered(Peer(address), (token,)))
        self._next(address, outgoing, now_us)

    def _next(self, address: Address, outgoing: Outgoing, now_us: int) -> None:
        outgoing.number += 1
        outgoing.tries = 0
        if outgoing.was_full:
            outgoing.was_full = False
            self.happened.append(Writable(Peer(address)))
        if outgoing.queue:
            self._send(address, outgoing, now_us)

    def _send(self, address: Address, outgoing: Outgoing, now_us: int) -> None:
        outgoing.tries += 1
        outgoing.due_us = now_us + REPEAT_AFTER_US
        body = outgoing.queue[0][1]
        self.out.append(Transmit(address, HEADER.pack(DATA, self.process, outgoing.number) + body))

    def connect(self, address: Address, now_us: int) -> int:
        self.tokens += 1
        self.happened.append(Connected(Peer(address), self.tokens))
        return self.tokens

    def send(
        self, peer: Peer, body: Buffer, now_us: int, *, flags: int | None = None, answers: int | None = None
    ) -> int:
        outgoing = self.outgoing.setdefault(peer.address, Outgoing())
        if len(outgoing.queue) >= self.options.send_queue_messages_max:
            outgoing.was_full = True
            raise QueueFull("the queue is full")
        self.tokens += 1
        outgoing.queue.append((self.tokens, bytes(body)))
        if len(outgoing.queue) == 1:
            self._send(peer.address, outgoing, now_us)
        return self.tokens

    def send_many(self, peer: Peer, bodies: Sequence[Buffer], now_us: int) -> range:
        first = self.tokens + 1
        try:
            for body in bodies:
                self.send(peer, body, now_us)
        except QueueFull:
            pass
        return range(first, self.tokens + 1)

    def ping(self, peer: Peer, now_us: int) -> int:
        raise NotSupported("the toy has no ping")

    def commit(self, receipt: Receipt, now_us: int) -> None:
        for number in range(int(receipt.first), int(receipt.first) + receipt.count):
            found = self.open.pop((receipt.peer.address, number), None)
            if found is not None and self.options.deferred:
                self.acknowledge(receipt.peer.address, *found)

    def close(self, peer: Peer | None, now_us: int) -> None:
        pass

    def unreachable(self, address: Address, reason: str, now_us: int) -> None: ...

    def limit_datagrams(self, datagram_bytes: int, *, fragments: bool) -> None: ...

    def wake(self, now_us: int) -> None:
        for address, outgoing in self.outgoing.items():
            if not outgoing.queue or outgoing.due_us > now_us:
                continue
            if outgoing.tries >= TRIES_MAX:
                token, _ = outgoing.queue.popleft()
                self.happened.append(DeliveryUnknown(Peer(address), (token,), "no answer"))
                self._next(address, outgoing, now_us)
            else:
                self.statistics.retransmissions += 1
                self._send(address, outgoing, now_us)

    def transmits(self) -> list[Transmit]:
        out, self.out = self.out, []
        self.statistics.datagrams_sent += len(out)
        self.statistics.bytes_sent += sum(len(transmit.data) for transmit in out)
        return out

    def events(self) -> list[Event]:
        happened, self.happened = self.happened, []
        return happened

    def next_deadline_us(self) -> int | None:
        return min((outgoing.due_us for outgoing in self.outgoing.values() if outgoing.queue), default=None)

    def room(self, peer: Peer) -> int:
        return self.options.send_queue_messages_max - len(self.outgoing.setdefault(peer.address, Outgoing()).queue)

    def unfinished(self) -> int:
        return sum(len(outgoing.queue) for outgoing in self.outgoing.values())

    def peers(self) -> list[Peer]:
        return list(dict.fromkeys(Peer(address) for address, _ in self.newest))

    def snapshot_in_pieces(self, peer: Peer, committing: Sequence[Receipt]) -> tuple[bytes, bytes]:
        return self.snapshot(peer, committing), b""

    def snapshot(self, peer: Peer, committing: Sequence[Receipt] = ()) -> bytes:
        done = {receipt.first for receipt in committing}
        newest = {process: number for (address, process), number in self.newest.items() if address == peer.address}
        for address, number in self.open:
            process = self.open[address, number][0]
            if address == peer.address and number not in done:
                newest[process] = min(newest[process], number - 1)
        return json.dumps([peer.address, list(newest.items())]).encode()

    def restore(self, snapshot: bytes, now_us: int) -> Peer:
        (host, port), newest = json.loads(snapshot)
        for process, number in newest:
            self.newest[(host, port), process] = number
        return Peer((host, port))
