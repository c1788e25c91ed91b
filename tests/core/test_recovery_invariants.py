"""What holds in the loss recovery whatever is called in whatever order, against a plain set of waiting packets."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairway.core.recovery.congestion import NewReno
from fairway.core.recovery.flight import STALE_MAX
from fairway.core.recovery.marks import MarkRecovery
from fairway.core.recovery.parts import PartRecovery
from fairway.core.recovery.recovery import Kind, Recovery
from fairway.core.recovery.runs import FLYING, LOST, NEVER, SETTLED, URGENT, Run, Stream
from fairway.core.recovery.timing import Fixed, PingLoss, RoundTrip
from fairway.core.statistics import Statistics

LAST = 40
KINDS = {
    "udpc": Kind(life_us=3_000_000),
    "stamped": Kind(ordered=True),
    "piggyback": Kind(ordered=True),
    "parts": Kind(stall_us=2_000_000),
    "pydevts": Kind(by_name=False, transmissions_max=3),
    "requests": Kind(by_name=False, sampled=False, life_us=1_000_000),
}
TYPES: dict[str, type[Recovery]] = {"piggyback": MarkRecovery, "parts": PartRecovery}
LAWS: dict[str, type[RoundTrip]] = {"stamped": PingLoss, "piggyback": PingLoss}


def make(name: str) -> Recovery:
    law = LAWS.get(name, RoundTrip)
    timing = Fixed(300_000) if name == "pydevts" else law(initial_us=200_000, min_us=20_000, max_us=3_000_000)
    return TYPES.get(name, Recovery)(KINDS[name], timing, None if name == "requests" else NewReno(64), Statistics())


class Model:
    """One recovery with three streams, and for each the set of numbers that wait."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.kind = KINDS[name]
        self.recovery = make(name)
        self.streams = [Stream(serial, LAST if name == "parts" else NEVER) for serial in range(3)]
        self.next = [0, 0, 0]
        self.waiting: list[set[int]] = [set(), set(), set()]
        self.most = 0
        self.now_us = 0

    def send(self, serial: int, count: int) -> None:
        stream = self.streams[serial]
        if self.name == "parts":
            count = min(count, LAST + 1 - self.next[serial])
        if count > 0:
            first = self.next[serial]
            if isinstance(self.recovery, PartRecovery) and not stream.answered:
                self.recovery.slots.begin(stream)
            self.recovery.sent(stream, first, count, self.now_us, token=first)
            self.waiting[serial].update(range(first, first + count))
            self.next[serial] += count
            self.most = max(self.most, self.recovery.left)

    def acknowledge(self, serial: int, index: int, count: int) -> None:
        """Acknowledge some from the `index`-th waiting packet on."""
        stream, waiting = self.streams[serial], sorted(self.waiting[serial])
        if not waiting:
            assert self.recovery.acknowledge(stream, self.next[serial], 3, self.now_us) == []
            return
        first = waiting[index % len(waiting)]
        if isinstance(self.recovery, MarkRecovery):
            mark = min(first + count, self.next[serial])
            if isinstance(self.recovery, PartRecovery):
                self.recovery.heard(stream, self.now_us)
            pieces = self.recovery.acknowledge_to(stream, mark, self.now_us)
            first, count = 0, mark
            if isinstance(self.recovery, PartRecovery) and not stream.left and self.next[serial] > LAST:
                self.recovery.finished(stream, self.now_us)
        else:
            if count == 1 and (single := self.recovery.acknowledge_one(stream, first, self.now_us)) is not None:
                assert (single.first, single.count, len(single.sent_us)) == (first, 1, 1)
                self.waiting[serial].remove(first)
                return
            run = stream.find(first)
            assert run is not None
            nth = index % len(run.sent_us) if self.name == "stamped" and count == 1 else -1
            pieces = self.recovery.acknowledge(stream, first, count, self.now_us, nth)
        numbers = [number for piece in pieces for number in range(piece.first, piece.first + piece.count)]
        assert numbers == [token for piece in pieces for token in piece.tokens]
        assert numbers == [number for number in waiting if first <= number < first + count]
        self.waiting[serial].difference_update(numbers)

    def request(self, serial: int, index: int, count: int) -> None:
        waiting = sorted(self.waiting[serial])
        if isinstance(self.recovery, PartRecovery) and waiting:
            self.recovery.heard(self.streams[serial], self.now_us)
            self.recovery.requested(self.streams[serial], waiting[index % len(waiting)], self.now_us)

    def repeat(self, serial: int, index: int, count: int) -> None:
        if isinstance(self.recovery, MarkRecovery):
            for _ in range(count):
                self.recovery.repeated(self.streams[serial], self.now_us)

    def wait(self, _: int, index: int, count: int) -> None:
        """Let time pass, wake and send what is lost."""
        recovery = self.recovery
        self.now_us += index * count * 1_000
        for run in recovery.wake(self.now_us):
            numbers = set(range(run.first, run.end))
            assert numbers <= self.waiting[run.stream.serial], "given up twice, or after its acknowledgement"
            self.waiting[run.stream.serial] -= numbers
            if isinstance(recovery, PartRecovery):
                self.withdraw(run.stream.serial, 1, 1)
        while (again := recovery.next_retransmission(self.now_us)) is not None:
            assert again.state == FLYING or self.now_us < again.again_us < NEVER, "neither in flight nor with a timer"
            assert again.sent_us[-1] == self.now_us
            assert set(range(again.first, again.end)) <= self.waiting[again.stream.serial]
        if not recovery.gives_up(self.now_us):
            assert recovery.next_us() > self.now_us
        if recovery.left and not recovery.has_lost:
            assert recovery.next_us() < NEVER, "something waits and nothing will ever happen"

    def withdraw(self, serial: int, index: int, count: int) -> None:
        if index == count == 1:
            runs = self.recovery.withdraw(self.streams[serial])
            assert {number for run in runs for number in range(run.first, run.end)} == self.waiting[serial]
            self.waiting[serial].clear()

    def check(self) -> None:
        recovery = self.recovery
        if isinstance(recovery, PartRecovery):
            ignored = {stream.serial for stream in self.streams if stream.ignored}
            assert ignored == set(recovery._ignored)
            assert (recovery.slots.ignored, recovery.slots.offered >= 0) == (len(ignored), True)
        runs: list[Run] = []
        for stream, waiting in zip(self.streams, self.waiting, strict=True):
            withheld = {number for run in stream.withheld for number in range(run.first, run.end)}
            assert withheld <= waiting - {stream.mark}
            assert [n for run in stream.runs() for n in range(run.first, run.end)] == sorted(waiting - withheld)
            assert stream.left == len(waiting - withheld)
            assert (recovery.streams.get(stream.serial) is stream) == bool(waiting)
            assert stream.lowest() == min(waiting, default=None)
            runs += stream.runs()
        assert recovery.left == sum(run.count for run in runs)
        assert recovery.in_flight == sum(run.count for run in runs if run.state == FLYING)
        assert recovery._flight.settled == sum(run.count for run in runs if run.state == SETTLED)
        self.check_states(runs)

    def check_states(self, runs: list[Run]) -> None:
        """Every run is in the list of its state, and there only."""
        recovery = self.recovery
        ring: list[Run] = []
        run = recovery._flight.head.following
        while run is not recovery._flight.head:
            assert run.following.preceding is run
            ring.append(run)
            run = run.following
        assert all(one.order + one.count <= other.order for one, other in pairwise(ring))
        assert set(map(id, ring)) == {id(run) for run in runs if run.state == FLYING}
        lost = {id(entry[3]) for entry in recovery._flight.lost}
        urgent = set(map(id, recovery._flight.urgent))
        timed = {(id(run), due_us) for due_us, _, run in recovery._flight.timers}
        for run in runs:
            assert len(run.sent_us) == len(run.orders)
            if run.again_us != NEVER:
                assert (id(run), run.again_us) in timed
            elif run.state == LOST:
                assert id(run) in lost
            elif run.state == URGENT:
                assert id(run) in urgent
            elif not self.kind.by_name:
                pytest.fail("a packet in flight has no timer")
        assert len(recovery._flight.timers) <= 2 * self.most + STALE_MAX + 1
        assert len(recovery._flight.lost) <= 2 * self.most + STALE_MAX
        if isinstance(recovery, PartRecovery):
            assert len(recovery._ignored) <= len(recovery.streams)


ACTIONS: dict[str, Callable[[Model, int, int, int], None]] = {
    "ack": Model.acknowledge,
    "request": Model.request,
    "repeat": Model.repeat,
    "wait": Model.wait,
    "withdraw": Model.withdraw,
}
steps = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "ack", "ack", "wait", "wait", "request", "repeat", "withdraw"]),
        st.integers(0, 2),
        st.integers(0, 40),
        st.integers(1, 9),
    ),
    max_size=120,
)


@pytest.mark.parametrize("name", KINDS)
@settings(derandomize=True, max_examples=100)
@given(steps=steps)
def test_every_packet_is_in_one_place_and_has_one_outcome(name: str, steps: list[tuple[str, int, int, int]]) -> None:
    model = Model(name)
    for action, serial, index, count in steps:
        if action == "send":
            model.send(serial, count)
        else:
            ACTIONS[action](model, serial, index, count)
        model.check()


def state(recovery: Recovery, stream: Stream) -> object:
    packets = [
        (number, run.state, [order + number - run.base for order in run.orders], run.sent_us, run.losses, run.cut)
        for run in stream.runs()
        for number in range(run.first, run.end)
    ]
    timing = recovery.timing
    return packets, recovery.left, recovery.in_flight, recovery._evidence.top, timing.smoothed_us, timing.delay_us


@pytest.mark.parametrize("name", ["udpc", "stamped", "pydevts", "requests"])
@settings(derandomize=True, max_examples=100)
@given(
    batches=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    ranges=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 8), st.integers(1, 9)), max_size=8),
)
@example(batches=[9, 9], ranges=[(1, 0, 9), (0, 3, 2)])
def test_a_range_leaves_the_same_state_as_its_packets_one_by_one(
    name: str, batches: list[int], ranges: list[tuple[int, int, int]]
) -> None:
    whole, single = make(name), make(name)
    streams = Stream(), Stream()
    starts: list[int] = []
    now_us = first = 0
    for count in batches:
        starts.append(first)
        whole.sent(streams[0], first, count, now_us)
        single.sent(streams[1], first, count, now_us)
        first += count
        now_us += 1_000
    now_us += 20_000
    for batch, index, count in ranges:
        start, size = starts[batch % len(starts)], batches[batch % len(starts)]
        begin = start + index % size
        numbers = range(begin, min(start + size, begin + count))
        whole.acknowledge(streams[0], begin, len(numbers), now_us)
        for number in numbers:
            if single.acknowledge_one(streams[1], number, now_us) is None:
                single.acknowledge(streams[1], number, 1, now_us)
        if whole._blame.reordered_us():
            return  # how late is tolerated depends on the average, which moves between the packets
        assert state(whole, streams[0]) == state(single, streams[1])
        now_us += 500


def test_acknowledged_timers_do_not_pile_up() -> None:
    recovery, stream = make("pydevts"), Stream()
    for number in range(10_000):
        recovery.sent(stream, number, 1, number)
        recovery.acknowledge(stream, number, 1, number)
    assert len(recovery._flight.timers) <= STALE_MAX + 2


def test_timers_of_an_ignored_stream_do_not_pile_up_however_many_others_end() -> None:
    model = Model("parts")
    recovery = model.recovery
    assert isinstance(recovery, PartRecovery)
    model.send(0, LAST + 1)
    for serial in range(1, 10_000):
        stream = Stream(serial, 0)
        recovery.sent(stream, 0, 1, serial)
        recovery.acknowledge_to(stream, 1, serial + 20_000)
        recovery.finished(stream, serial + 20_000)
        recovery.wake(serial + 20_000)
        while recovery.next_retransmission(serial + 20_000) is not None:
            pass
    assert len(recovery._flight.timers) <= 2 * LAST + STALE_MAX
