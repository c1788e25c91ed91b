"""The way to one peer, and what a machine has to say: datagrams, events, counts."""

from __future__ import annotations

from fairway.core.amplification import Ledger
from fairway.core.events import Address, Event, Peer
from fairway.core.machine import Buffer, Transmit
from fairway.core.statistics import Statistics

INDEX_MASK = (1 << 32) - 1
NEVER = 1 << 63
"""Later than every deadline."""


def following(index: int, count: int = 1) -> int:
    """Gives the wide index `count` after this one; 0 is skipped at each wrap."""
    wide = index + count
    return wide if wide >> 32 == index >> 32 else wide + 1


class Outbox:
    """What leaves the machine. Neighbouring datagrams of one size for one address leave as one transmit."""

    __slots__ = ("_events", "_pending", "_token", "ledger", "statistics", "unfinished")

    def __init__(self, statistics: Statistics, ledger: Ledger) -> None:
        self.statistics = statistics
        self.ledger = ledger
        self.unfinished = 0
        """Tokens without an outcome."""
        self._token = 0
        self._events: list[Event] = []
        self._pending: list[tuple[Address, int, list[Buffer]]] = []

    def tokens(self, count: int) -> range:
        """Gives new tokens."""
        first = self._token + 1
        self._token += count
        return range(first, first + count)

    def report(self, event: Event) -> None:
        self._events.append(event)

    def drop(self, reason: str, count: int = 1) -> None:
        """Counts refused datagrams."""
        self.statistics.dropped[reason] += count

    def transmit(self, address: Address, data: Buffer, segment_bytes: int, count: int = 1) -> None:
        """Queues `count` datagrams of `segment_bytes` each."""
        statistics = self.statistics
        statistics.datagrams_sent += count
        statistics.bytes_sent += len(data)
        pending = self._pending
        if pending and pending[-1][1] == segment_bytes and pending[-1][0] == address:
            pending[-1][2].append(data)
        else:
            pending.append((address, segment_bytes, [data]))

    def transmits(self) -> list[Transmit]:
        pending, self._pending = self._pending, []
        return [_joined(*entry) for entry in pending]

    def events(self) -> list[Event]:
        events, self._events = self._events, []
        return events


def _joined(address: Address, segment_bytes: int, pieces: list[Buffer]) -> Transmit:
    data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    return Transmit(address, data, segment_bytes if len(data) > segment_bytes else None)


class Link:
    """Where the datagrams of one session go, and which index the next one takes."""

    __slots__ = (
        "address",
        "armed_us",
        "index_limit",
        "next_index",
        "outbox",
        "peer",
        "proved",
        "session_id",
        "wake_us",
    )

    def __init__(self, outbox: Outbox, peer: Peer, session_id: int, next_index: int) -> None:
        self.outbox = outbox
        self.peer = peer
        self.address = peer.address
        self.session_id = session_id
        self.next_index = next_index
        self.index_limit = NEVER
        """The highest index that may be used for now: so far past the oldest packet that waits."""
        self.proved = True
        """False only at an address to which the session moved and that has not answered yet."""
        self.wake_us = NEVER
        """The earliest deadline since the last wake."""
        self.armed_us = NEVER
        """The deadline that the machine has noted for this session."""

    def wake_by(self, due_us: int) -> None:
        """Asks for a wake at that time at the latest."""
        self.wake_us = min(self.wake_us, due_us)

    def take_index(self, count: int = 1) -> int:
        """Gives the first of `count` new indices, which must not cross the wrap; 0 is skipped after it."""
        index = self.next_index
        wide = index + count
        self.next_index = wide if wide & INDEX_MASK else wide + 1
        return index

    def indices_to_wrap(self) -> int:
        """Tells how many indices follow one another before 0 is skipped."""
        return INDEX_MASK + 1 - (self.next_index & INDEX_MASK)

    def transmit(self, data: Buffer, segment_bytes: int, count: int = 1) -> None:
        """Sends datagrams, unless the three-times limit withholds them."""
        if not self.proved and not self.outbox.ledger.allows(self.address, len(data)):
            self.outbox.statistics.amplification_withheld += count
            return
        self.outbox.transmit(self.address, data, segment_bytes, count)
