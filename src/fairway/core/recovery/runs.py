"""Packets that were transmitted and wait for their acknowledgement, in runs of those that left together.

A batch of a hundred packets costs a few operations to send and, when its acknowledgements come as a range, a few to
take off: it stays one `Run` as long as all of it has the same history. What happens to a part of it only (an
acknowledgement in the middle, a retransmission) splits it. A packet on its own is a run of one, found by its number.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from fairway.core.machine import Buffer
from fairway.core.recovery.congestion import Departure

FLYING, SETTLED, LOST, URGENT, OVER = range(5)
"""Where a run is: in the network, as far as is known; out of it, arrived or not; lost, until window and pacing let it
leave again; to be retransmitted outside of them; acknowledged or given up."""
NEVER = 1 << 62
"""Later than every time."""
ATTEMPTS_MAX = 8
"""How often an ignored stream leaves when the peer has room, before it counts as one that the peer never takes."""


class Run:
    """Packets `first` to `first + count - 1` of one stream with one history.

    Orders, tokens and bytes are those of packet `base`; those of the packets after it follow.
    """

    __slots__ = (
        "again_us", "base", "count", "cut", "data", "departure", "first", "following", "landed", "losses",
        "named", "orders", "preceding", "requested", "segment_bytes", "sent_us", "state", "stream", "sure", "token",
    )  # fmt: skip

    def __init__(
        self,
        stream: Stream,
        first: int,
        count: int,
        data: Buffer,
        segment_bytes: int,
        token: int,
        sent_us: int,
        order: int,
    ) -> None:
        self.stream = stream
        self.base = first
        self.first = first
        self.count = count
        self.data = data
        """The datagrams one after another, `segment_bytes` each; empty where the protocol encodes them again."""
        self.segment_bytes = segment_bytes
        self.token = token
        self.sent_us = [sent_us]
        """When each transmission left, the latest last."""
        self.orders = [order]
        self.sure = 0
        """The first transmission that can have arrived: the peer has said of those before that they did not."""
        self.state = FLYING
        self.losses = 0
        """How often these packets were taken for lost."""
        self.cut = 0
        """The cut of the window that their first loss counts for; 0 if it counted for none."""
        self.departure: Departure | None = None
        """What the controller wants to know when the latest transmission is acknowledged."""
        self.landed = False
        """Whether the controller has been told that these packets arrived, or are out of the network."""
        self.named = False
        """Whether the peer has asked for this packet by name."""
        self.requested = False
        """Whether it waits to leave because the peer asked for it."""
        self.again_us = NEVER
        """When the run's own timer runs out; what the heap of timers says otherwise is stale."""
        self.preceding = self
        self.following = self
        """Neighbours in the flight, by the order of their latest transmission."""

    @property
    def end(self) -> int:
        return self.first + self.count

    @property
    def order(self) -> int:
        """The order of the latest transmission of the first packet."""
        return self.orders[-1] + self.first - self.base

    @property
    def tokens(self) -> range:
        token = self.token + self.first - self.base
        return range(token, token + self.count)

    def datagrams(self) -> Buffer:
        """Return the bytes of all packets as they were first sent."""
        if self.count == 1 and len(self.data) == self.segment_bytes:
            return self.data
        start = (self.first - self.base) * self.segment_bytes
        return self.data[start : start + self.count * self.segment_bytes]

    def piece(self, first: int, count: int) -> Run:
        """Return a run of some of these packets with the same history, in no list yet."""
        other = Run(self.stream, self.base, count, self.data, self.segment_bytes, self.token, 0, 0)
        other.first = first
        other.sent_us = self.sent_us.copy()
        other.orders = self.orders.copy()
        other.sure = self.sure
        other.state = self.state
        other.losses = self.losses
        other.cut = self.cut
        other.departure = self.departure
        other.landed = self.landed
        other.named = self.named
        return other


class Acknowledged(NamedTuple):
    """Neighbouring packets of one history that were acknowledged just now."""

    run: Run
    first: int
    count: int  # type: ignore[assignment]  # the field matters more than tuple.count

    @property
    def tokens(self) -> range:
        token = self.run.token + self.first - self.run.base
        return range(token, token + self.count)


class Stream:
    """Packets numbered one after another: those of a conversation, or the parts of one message.

    `left` counts those that wait. Numbers may be skipped, and new ones are higher than all before.
    """

    __slots__ = (
        "_firsts", "_runs", "_singles", "answered", "attempts", "behind", "burst", "ignored", "last", "left",
        "left_us", "mark", "partial", "probed_us", "progress_us", "requested", "same", "serial", "since_us", "single",
        "strays", "withheld",
    )  # fmt: skip

    def __init__(self, serial: int = 0, last: int = NEVER) -> None:
        self.serial = serial
        """Older streams are served first."""
        self.last = last
        """The number of the last packet, where there is one: its acknowledgement comes without delay."""
        self.left = 0
        self.left_us = 0
        """When one of its packets last left."""
        self.mark = 0
        """Where acknowledgements are cumulative: everything below is acknowledged."""
        self.answered = False
        """Whether the peer has said anything about this stream."""
        self.progress_us = 0
        """When something new was last learned of it."""
        self.since_us = 0
        """From when a peer that says nothing counts as gone for this stream."""
        self.probed_us = 0
        """When it last had a probe or progress, or began: the one waiting longest is probed next, so that new ones
        do not keep an older one from its turn."""
        self.same = 0
        """Answers in a row that repeated the mark."""
        self.requested = 0
        """Packets that wait to leave because the peer asked for them."""
        self.attempts = 0
        """How often it left again after the peer had ignored it, when there was room for it as far as is known; where
        nothing else was under way that counts three times."""
        self.ignored = False
        """Whether the peer said nothing of it but something of later ones."""
        self.partial = False
        """Whether it has left in part."""
        self.behind = 0
        """How many others had left in part when it began to leave."""
        self.withheld: list[Run] = []
        """Packets that wait for the first answer before they leave again: the peer seems to ignore the stream."""
        self.strays: dict[int, Run] = {}
        """Packets below the mark that the peer asked for all the same."""
        self.burst = 0
        """How many packets from the mark on may be under repair: as many as repairs have moved it in a row."""
        self._runs: list[Run] = []
        self._firsts: list[int] = []
        self._singles: dict[int, Run] = {}
        self.single = self._singles.get
        """Return the run of a packet that is one on its own, or None."""

    @property
    def is_hopeless(self) -> bool:
        """Whether the peer seems never to take it."""
        return self.attempts >= ATTEMPTS_MAX

    def add(self, run: Run) -> None:
        if run.count == 1:
            self._singles[run.first] = run
        else:
            at = bisect_right(self._firsts, run.first)
            self._firsts.insert(at, run.first)
            self._runs.insert(at, run)

    def remove(self, run: Run) -> None:
        if run.count == 1 and self._singles.get(run.first) is run:
            del self._singles[run.first]
            return
        at = bisect_left(self._firsts, run.first)
        del self._runs[at], self._firsts[at]

    def split(self, run: Run, at: int) -> Run:
        """Cut a run in two; it keeps the packets below `at`, and the others are the run returned."""
        right = run.piece(at, run.first + run.count - at)
        self.remove(run)
        run.count = at - run.first
        self.add(run)
        self.add(right)
        return right

    def trim(self, run: Run, count: int) -> None:
        """Take the first packets of a run out, but not all of them."""
        at = bisect_left(self._firsts, run.first)
        run.first += count
        run.count -= count
        if run.count == 1:
            del self._runs[at], self._firsts[at]
            self._singles[run.first] = run
        else:
            self._firsts[at] = run.first

    def find(self, number: int) -> Run | None:
        """Return the run that holds the packet, while it waits."""
        run = self._singles.get(number)
        if run is not None or not self._runs:
            return run
        at = bisect_right(self._firsts, number) - 1
        if at < 0:
            return None
        run = self._runs[at]
        return run if number < run.first + run.count else None

    def __contains__(self, number: int) -> bool:
        return self.find(number) is not None

    def lowest(self) -> int | None:
        """Return the lowest waiting number. Checks every packet on its own: ask when needed, not for each packet."""
        lowest = min(self._singles, default=None)
        if self._firsts and (lowest is None or self._firsts[0] < lowest):
            return self._firsts[0]
        return lowest

    def highest(self) -> int:
        """Return the highest waiting number, or -1; as slow as `lowest`."""
        last = self._runs[-1].end - 1 if self._runs else -1
        return max(last, max(self._singles, default=-1))

    def runs(self) -> list[Run]:
        found = [*self._runs, *self._singles.values()]
        found.sort(key=_first)
        return found


def _first(run: Run) -> int:
    return run.first
