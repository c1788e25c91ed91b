"""What is to be sent: datagrams in order, joined where one system call can carry them, and the three-times limit.

Nothing leaves a machine but through here, so the limit towards unproved addresses and the counts cannot be missed.
"""

from __future__ import annotations

from fairway.core.amplification import Ledger
from fairway.core.events import Address
from fairway.core.machine import UDP_PAYLOAD_BYTES_MAX, Buffer, Transmit
from fairway.core.statistics import Statistics

SEGMENTS_MAX = 64
"""Linux takes so many datagrams in one call everywhere; some kernels take more."""


class Outbox:
    """Queues datagrams and counts them."""

    __slots__ = ("_ledger", "_proved", "_queue", "_statistics")

    def __init__(self, statistics: Statistics, unproved_max: int) -> None:
        self._statistics = statistics
        self._ledger = Ledger(unproved_max)
        self._proved: dict[Address, None] = {}
        self._queue: list[Transmit] = []

    def prove(self, address: Address) -> None:
        """Lifts the limit for an address that has shown that it receives, or that our application named."""
        if address not in self._proved:
            self._proved[address] = None
            self._ledger.forget(address)

    def disown(self, address: Address) -> None:
        """Puts the limit back: the conversation that proved the address is over."""
        self._proved.pop(address, None)

    def is_proved(self, address: Address) -> bool:
        return address in self._proved

    def received(self, address: Address, count: int) -> None:
        """Credits bytes that came from an address."""
        if address not in self._proved:
            self._ledger.received(address, count)

    def budget(self, address: Address) -> int | None:
        """Tells how many bytes may leave for an address; None when there is no limit."""
        return None if address in self._proved else self._ledger.budget(address)

    def send(self, address: Address, data: Buffer) -> bool:
        """Queues one datagram, unless the limit withholds it."""
        return self.send_burst(address, data, len(data), 1)

    def send_burst(self, address: Address, data: Buffer, segment_bytes: int, count: int) -> bool:
        """Queues datagrams of one size, only the last of which may be shorter, unless the limit withholds them."""
        if address not in self._proved and not self._ledger.allows(address, len(data)):
            self._statistics.amplification_withheld += count
            return False
        self._statistics.datagrams_sent += count
        self._statistics.bytes_sent += len(data)
        self._queue.append(Transmit(address, data, segment_bytes if count > 1 else None))
        return True

    def take(self) -> list[Transmit]:
        """Hands over what is queued, single datagrams of equal size joined."""
        queue, self._queue = self._queue, []
        return queue if len(queue) < 2 else _joined(queue)


def _joined(queue: list[Transmit]) -> list[Transmit]:
    """Joins neighbouring single datagrams for one address; within a joined one only the last may be shorter."""
    joined: list[Transmit] = []
    group: list[Buffer] = []
    group_bytes = 0
    address: Address = None
    for transmit in queue:
        size = len(transmit.data)
        fits = (
            group
            and transmit.segment_bytes is None
            and transmit.address == address
            and size <= len(group[0]) == len(group[-1])
            and len(group) < SEGMENTS_MAX
            and group_bytes + size <= UDP_PAYLOAD_BYTES_MAX
        )
        if not fits:
            _close(joined, address, group)
            group, group_bytes, address = [], 0, transmit.address
        if transmit.segment_bytes is None:
            group.append(transmit.data)
            group_bytes += size
        else:
            joined.append(transmit)
    _close(joined, address, group)
    return joined


def _close(joined: list[Transmit], address: Address, group: list[Buffer]) -> None:
    if len(group) == 1:
        joined.append(Transmit(address, group[0]))
    elif group:
        joined.append(Transmit(address, b"".join(group), len(group[0])))
