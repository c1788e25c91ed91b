"""What a machine puts out: datagrams, events, tokens and counts; and who may have something to send.

Nothing leaves a machine but through the outbox, so neither the counts nor the limit towards unproved addresses can be
missed. Datagrams are joined where one system call can carry them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from fairway.core.addresses import device_of
from fairway.core.events import Address, Event
from fairway.core.machine import UDP_PAYLOAD_BYTES_MAX, Buffer, Options, Transmit
from fairway.core.statistics import Statistics

FACTOR = 3
ENOUGH = 1 << 62
"""The budget of a device: a handshake has proved its address."""


class Ledger:
    """The three-times limit: bytes got from, and sent to, addresses that have not proved that they receive.

    The table is bounded and the oldest goes first. That is safe: an entry takes what it sent and what it got with it,
    so the sum over an address's successive entries still keeps the limit.
    """

    def __init__(self, unproved_max: int) -> None:
        self._budget: OrderedDict[Address, int] = OrderedDict()
        """Not a plain dict: finding its first key costs more with each key deleted before it."""
        self._max = unproved_max

    def __len__(self) -> int:
        return len(self._budget)

    def received(self, address: Address, count: int) -> None:
        budget = self._budget.get(address)
        if budget is None:
            if len(self._budget) >= self._max:
                self._budget.popitem(last=False)
            budget = 0
        self._budget[address] = budget + FACTOR * count

    def allows(self, address: Address, count: int) -> bool:
        """Take `count` bytes from the address's budget if it holds them."""
        budget = self._budget.get(address, 0)
        if budget < count:
            return device_of(address) is not None
        self._budget[address] = budget - count
        return True

    def budget(self, address: Address) -> int:
        return ENOUGH if device_of(address) is not None else self._budget.get(address, 0)

    def forget(self, address: Address) -> None:
        self._budget.pop(address, None)


class Outbox:
    """Neighbouring datagrams of one size for one address leave as one transmit.

    `send` is for conversations that prove their own addresses, `answer` for protocols that know a peer by its address.
    """

    def __init__(self, statistics: Statistics, unproved_max: int = 0) -> None:
        self.ledger = Ledger(unproved_max)
        self._statistics = statistics
        self._proved: dict[Address, None] = {}
        self.groups: list[tuple[Address, int, list[Buffer]]] = []
        """What the next transmits are joined of: address, size of a segment, datagrams."""
        self._address: Address = None
        self._segment_bytes = 0
        """That of the last group; 0 if nothing may follow in it."""
        self._pieces: list[Buffer] = []
        self._pieces_bytes = 0

    # Who has proved that it receives.

    def prove(self, address: Address) -> None:
        """Lift the limit for an address that has shown that it receives, or that our application named."""
        if address not in self._proved:
            self._proved[address] = None
            self.ledger.forget(address)

    def disown(self, address: Address) -> None:
        """Put the limit back: the conversation that proved the address is over."""
        self._proved.pop(address, None)

    def is_proved(self, address: Address) -> bool:
        return address in self._proved

    def received(self, address: Address, count: int) -> None:
        if address not in self._proved:
            self.ledger.received(address, count)

    def budget(self, address: Address) -> int | None:
        """Return how many bytes may leave for an address; None when there is no limit."""
        return None if address in self._proved else self.ledger.budget(address)

    # What leaves.

    def send(self, address: Address, data: Buffer, segment_bytes: int, count: int = 1) -> None:
        """Queue `count` datagrams of `segment_bytes` each, only the last of which may be shorter."""
        size = len(data)
        statistics = self._statistics
        statistics.datagrams_sent += count
        statistics.bytes_sent += size
        whole = self._pieces_bytes + size
        if segment_bytes == self._segment_bytes and address == self._address and whole <= UDP_PAYLOAD_BYTES_MAX:
            self._pieces.append(data)
            self._pieces_bytes = whole
        else:
            self._address, self._segment_bytes = address, segment_bytes
            self._pieces, self._pieces_bytes = [data], size
            self.groups.append((address, segment_bytes, self._pieces))
        if size % segment_bytes:
            self._segment_bytes = 0

    def answer(self, address: Address, data: Buffer, segment_bytes: int, count: int = 1) -> None:
        """Queue datagrams for an address of which perhaps nothing is known, within what it may get."""
        if address in self._proved:
            self.send(address, data, segment_bytes, count)
        else:
            self.send_unproved(address, data, segment_bytes, count)

    def send_unproved(self, address: Address, data: Buffer, segment_bytes: int, count: int = 1) -> None:
        """Queue what the limit lets through: as one by one, all of the datagrams or the first few."""
        allows = self.ledger.allows
        if allows(address, len(data)):
            self.send(address, data, segment_bytes, count)
            return
        passed = 0
        while passed < count - 1 and allows(address, segment_bytes):
            passed += 1
        self._statistics.amplification_withheld += count - passed
        if passed:
            self.send(address, data[: passed * segment_bytes], segment_bytes, passed)

    def take(self) -> list[Transmit]:
        transmits: list[Transmit] = []
        for address, segment_bytes, pieces in self.groups:
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            transmits.append(Transmit(address, data, segment_bytes if len(data) > segment_bytes else None))
        self.groups.clear()
        self._segment_bytes = 0
        return transmits


Sending = TypeVar("Sending")


class Outputs(Generic[Sending]):
    """One per machine, shared by all its conversations."""

    def __init__(self, options: Options) -> None:
        self.statistics = Statistics()
        self.outbox = Outbox(self.statistics, options.unproved_max)
        self.unfinished = 0
        """Tokens without an outcome."""
        self.ready: dict[Sending, int] = {}
        """Who may have something to send, and since when: it leaves with the machine's next output, so that what one
        call and many ask for fills a batch alike."""
        self._token = 0
        self.reported: list[Event] = []
        """What has happened and nobody has taken yet."""
        self.report = self.reported.append
        """Add an event."""

    def token(self) -> int:
        self._token += 1
        return self._token

    def tokens(self, count: int) -> range:
        first = self._token + 1
        self._token += count
        return range(first, first + count)

    def drop(self, reason: str, count: int = 1) -> None:
        self.statistics.dropped[reason] += count

    def events(self) -> list[Event]:
        events = self.reported
        if not events:
            return []
        self.reported = []
        self.report = self.reported.append
        return events
