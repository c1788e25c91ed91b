"""One `Recovery` over one link in virtual time, with a peer that does just what a script says.

No protocol: packets are numbers of streams, and an answer is one call of the recovery.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from typing import Literal

from fairway.core.recovery.congestion import NewReno
from fairway.core.recovery.marks import MarkRecovery
from fairway.core.recovery.parts import PartRecovery
from fairway.core.recovery.recovery import Kind, Recovery
from fairway.core.recovery.runs import NEVER, Run, Stream
from fairway.core.recovery.timing import Fixed, PingLoss, RoundTrip
from fairway.core.statistics import Statistics

RTT_US = 20_000

Answers = Literal["each", "stamped", "mark", "strict", "parts"]
"""How the peer answers: every packet by name, or with the transmission; by a mark; by a mark, dropping what is ahead of
it in silence; by a mark for each stream, asking once for what is missing."""


class Watched(NewReno):
    """Counts what it is told."""

    def __init__(self, window: int) -> None:
        super().__init__(window)
        self.cuts = 0
        self.undone = 0
        self.time_outs = 0

    def lost(self, sent_us: int, now_us: int) -> bool:
        cut = super().lost(sent_us, now_us)
        self.cuts += cut
        return cut

    def undo(self) -> None:
        super().undo()
        self.undone += 1

    def timed_out(self, sent_us: int, now_us: int) -> None:
        before = self._cut_us
        super().timed_out(sent_us, now_us)
        self.time_outs += self._cut_us != before


@dataclass(frozen=True)
class Sent:
    """One transmission of one packet."""

    at_us: int
    serial: int
    number: int
    nth: int
    order: int


@dataclass
class Link:
    """A table row's network and peer."""

    answers: Answers = "each"
    loses: Callable[[Sent], bool] = lambda sent: False
    loses_answer: Callable[[Sent], bool] = lambda sent: False
    rtt_us: Callable[[int], int] = lambda now_us: RTT_US
    batch_us: int = 0
    """Answers that arrive within one such time arrive at its end, the latest first."""
    streams_at_once: int = 1 << 30
    """Streams that the peer receives at a time; it ignores the others."""
    ignores: Callable[[Sent], bool] = lambda sent: False
    """What arrives and is never answered."""
    commit_us: int = 0
    """From the arrival of the last packet of a stream to its answer and to the end of its claim on the peer."""
    poll_us: int = 0
    """The peer repeats its request for the packet at the mark so often."""


@dataclass
class World:
    """Sends `sizes` packets, one number for each stream, and keeps a record."""

    type: type[Recovery]
    kind: Kind
    timing: RoundTrip
    link: Link
    sizes: list[int]
    window: int = 1_000
    controlled: bool = True
    jumps: dict[int, int] = field(default_factory=dict)
    """The process sleeps: at this time the clock is found to have moved by so much."""

    def __post_init__(self) -> None:
        self.statistics = Statistics()
        self.controller = Watched(self.window)
        self.recovery = self.type(self.kind, self.timing, self.controller if self.controlled else None, self.statistics)
        named = len(self.sizes) > 1 or self.link.answers == "parts"
        self.streams = [Stream(serial, size - 1 if named else NEVER) for serial, size in enumerate(self.sizes)]
        self.next = [0] * len(self.sizes)
        self.now_us = 0
        self.count = 0
        self.sent: list[Sent] = []
        self.times: Counter[tuple[int, int]] = Counter()
        self.events: list[tuple[int, int, int, Callable[[], None]]] = []
        self.acknowledged: dict[tuple[int, int], int] = {}
        self.given_up: dict[tuple[int, int], int] = {}
        self.ended: set[int] = set()
        self.gave_up_us = -1
        self.arrived: list[set[int]] = [set() for _ in self.sizes]
        self.marks = [0] * len(self.sizes)
        self.committed: set[int] = set()
        self.asked: set[tuple[int, int]] = set()
        self.in_flight_most = 0

    # The sender.

    def run(self, until_us: int = NEVER) -> World:
        """Run until nothing waits any more, the recovery gives up, or time is over."""
        total = sum(self.sizes)
        steps = 0
        while len(self.acknowledged) + len(self.given_up) < total:
            steps += 1
            assert steps < 2_000_000
            self._transmit()
            due_us = self._next_us()
            if due_us > until_us:
                break
            assert due_us < NEVER, "nothing would ever happen again"
            self.now_us = max(self.now_us, due_us)
            for at_us in sorted(self.jumps):
                if self.now_us >= at_us:
                    self.now_us += self.jumps.pop(at_us)
            while self.events and self.events[0][0] <= self.now_us:
                heappop(self.events)[3]()
            if self.recovery.gives_up(self.now_us):
                self.gave_up_us = self.now_us
                break
            for run in self.recovery.wake(self.now_us):
                self._give_up(run)
        return self

    def _next_us(self) -> int:
        due_us = min(self.recovery.next_us(), self.events[0][0] if self.events else NEVER)
        if self.recovery.has_lost or self._next_stream() is not None:
            due_us = min(due_us, self.recovery.next_room_us(self.now_us))
        return due_us

    def _transmit(self) -> None:
        while (run := self.recovery.next_retransmission(self.now_us)) is not None:
            self._leave(run.stream, range(run.first, run.end), run.order)
        while (new := self._next_stream()) is not None:
            room = self.recovery.room(self.now_us)
            serial, first = new.serial, self.next[new.serial]
            count = min(room, self.sizes[serial] - first)
            if count <= 0:
                return
            order = self.recovery._flight.order
            if isinstance(self.recovery, PartRecovery) and not first:
                self.recovery.slots.begin(new)
            self.recovery.sent(new, first, count, self.now_us, token=first)
            self.next[serial] += count
            self._leave(new, range(first, first + count), order)

    def _next_stream(self) -> Stream | None:
        for stream in self.streams:
            serial = stream.serial
            if stream.ignored or self.next[serial] == self.sizes[serial] or serial in self.ended:
                continue
            if self.next[serial] or not isinstance(self.recovery, PartRecovery):
                return stream
            return stream if self.recovery.slots.may_begin(stream) else None
        return None

    def _give_up(self, run: Run) -> None:
        serial = run.stream.serial
        lost = [*self.recovery.withdraw(run.stream), run] if len(self.sizes) > 1 else [run]
        numbers = [number for each in lost for number in range(each.first, each.end)]
        if len(self.sizes) > 1:
            self.ended.add(serial)
            numbers += range(self.next[serial], self.sizes[serial])
        for number in numbers:
            assert (serial, number) not in self.given_up
            assert (serial, number) not in self.acknowledged
            self.given_up[serial, number] = self.now_us

    # The link and the peer.

    def _leave(self, stream: Stream, numbers: range, order: int) -> None:
        self.in_flight_most = max(self.in_flight_most, self.recovery.in_flight)
        for index, number in enumerate(numbers):
            key = stream.serial, number
            sent = Sent(self.now_us, *key, self.times[key], order + index)
            self.times[key] += 1
            self.sent.append(sent)
            if not self.link.loses(sent):
                self._at(self.now_us + self.link.rtt_us(self.now_us) // 2, partial(self._arrive, sent))

    def _at(self, due_us: int, act: Callable[[], None], rank: int = 0) -> None:
        self.count += 1
        heappush(self.events, (due_us, rank, self.count, act))

    def _answer(self, sent: Sent, act: Callable[[], None]) -> None:
        if self.link.loses_answer(sent):
            return
        rtt_us = self.link.rtt_us(sent.at_us)
        due_us, rank = sent.at_us + rtt_us // 2 + rtt_us // 2, 0
        if self.link.batch_us:
            due_us += -due_us % self.link.batch_us
            rank = -sent.order
        self._at(due_us, act, rank)

    def _arrive(self, sent: Sent) -> None:
        link, serial, number = self.link, sent.serial, sent.number
        if link.ignores(sent) or (link.streams_at_once < len(self.sizes) and self._is_ignored(serial)):
            return
        if link.answers in ("each", "stamped"):
            self._answer(sent, lambda: self._acknowledge(sent))
            return
        if link.answers == "strict" and number > self.marks[serial]:
            return
        arrived = self.arrived[serial]
        arrived.add(number)
        before = self.marks[serial]
        while self.marks[serial] in arrived:
            self.marks[serial] += 1
        mark = self.marks[serial]
        missing: list[int] = []
        if link.answers == "parts":
            missing = [one for one in range(mark, number) if one not in arrived and (serial, one) not in self.asked]
            self.asked.update((serial, one) for one in missing)
        if mark == self.sizes[serial] and link.commit_us:
            if mark > before:
                self._at(self.now_us + link.commit_us, lambda: self._commit(sent))
        elif missing or mark > before or number < before or link.answers != "parts":
            self._answer(sent, lambda: self._hear(sent, mark, missing))
        if link.poll_us and before == 0 and mark < self.sizes[serial]:
            self._at(self.now_us + link.poll_us, lambda: self._poll(sent))

    def _commit(self, sent: Sent) -> None:
        self.committed.add(sent.serial)
        half_us, mark = self.link.rtt_us(self.now_us) // 2, self.sizes[sent.serial]
        self._at(self.now_us + half_us, lambda: self._hear(sent, mark, []))

    def _poll(self, sent: Sent) -> None:
        mark = self.marks[sent.serial]
        if mark < self.sizes[sent.serial]:
            half_us = self.link.rtt_us(self.now_us) // 2
            self._at(self.now_us + half_us, lambda: self._hear(sent, mark, [mark]))
            self._at(self.now_us + self.link.poll_us, lambda: self._poll(sent))

    def _is_ignored(self, serial: int) -> bool:
        if self.arrived[serial]:
            return False
        return sum(map(bool, self.arrived)) - len(self.committed) >= self.link.streams_at_once

    def _acknowledge(self, sent: Sent) -> None:
        stream, number, recovery = self.streams[sent.serial], sent.number, self.recovery
        run = None
        if self.link.answers != "stamped" or sent.nth == 0:
            run = recovery.acknowledge_one(stream, number, self.now_us)
        if run is None:
            nth = sent.nth if self.link.answers == "stamped" else -1
            if not recovery.acknowledge(stream, number, 1, self.now_us, nth):
                recovery.heard_us = self.now_us
                return
        self._settle(stream.serial, range(number, number + 1))

    def _hear(self, sent: Sent, mark: int, missing: list[int]) -> None:
        stream, recovery = self.streams[sent.serial], self.recovery
        assert isinstance(recovery, MarkRecovery)
        if stream.serial in self.ended:
            return
        if isinstance(recovery, PartRecovery):
            recovery.heard(stream, self.now_us)
        if mark > stream.mark:
            pieces = recovery.acknowledge_to(stream, mark, self.now_us)
            for piece in pieces:
                self._settle(stream.serial, range(piece.first, piece.first + piece.count))
            if isinstance(recovery, PartRecovery) and mark == self.sizes[stream.serial] and len(self.sizes) > 1:
                recovery.withdraw(stream)
                recovery.finished(stream, self.now_us)
        elif mark == stream.mark and sent.number > mark and not missing:
            recovery.repeated(stream, self.now_us)
        if isinstance(recovery, PartRecovery):
            for number in missing:
                recovery.requested(stream, number, self.now_us)

    def _settle(self, serial: int, numbers: range) -> None:
        for number in numbers:
            assert (serial, number) not in self.acknowledged
            assert (serial, number) not in self.given_up
            self.acknowledged[serial, number] = self.now_us

    # The record.

    def again(self) -> dict[int, list[float]]:
        """Return when each retransmission of stream 0 left, in round trips after the first transmission."""
        first: dict[int, int] = {}
        found: dict[int, list[float]] = {}
        for sent in self.sent:
            if sent.serial == 0:
                if sent.nth:
                    found.setdefault(sent.number, []).append((sent.at_us - first[sent.number]) / RTT_US)
                else:
                    first[sent.number] = sent.at_us
        return found


def udpc() -> tuple[type[Recovery], Kind, RoundTrip]:
    return Recovery, Kind(life_us=30_000_000), RoundTrip(initial_us=200_000, min_us=20_000, max_us=3_000_000)


def stamped() -> tuple[type[Recovery], Kind, RoundTrip]:
    timing = PingLoss(initial_us=200_000, min_us=20_000, max_us=3_000_000)
    return Recovery, Kind(ordered=True, stall_us=30_000_000), timing


def piggyback() -> tuple[type[Recovery], Kind, RoundTrip]:
    kind = Kind(ordered=True, stall_us=30_000_000)
    return MarkRecovery, kind, PingLoss(initial_us=200_000, min_us=20_000, max_us=3_000_000)


def parts() -> tuple[type[Recovery], Kind, RoundTrip]:
    kind = Kind(silence_us=10_000_000, stall_us=30_000_000)
    return PartRecovery, kind, RoundTrip(initial_us=200_000, min_us=20_000, max_us=3_000_000)


def pydevts() -> tuple[type[Recovery], Kind, RoundTrip]:
    return Recovery, Kind(by_name=False, transmissions_max=11), Fixed(3_000_000)


def requests() -> tuple[type[Recovery], Kind, RoundTrip]:
    timing = RoundTrip(initial_us=200_000, min_us=20_000, max_us=3_000_000)
    return Recovery, Kind(by_name=False, sampled=False, life_us=5_000_000), timing
