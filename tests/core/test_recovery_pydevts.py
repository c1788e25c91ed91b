"""Recovery by timer only, as pydevts has it: a fixed delay, a number of transmissions, damaged packets."""

from __future__ import annotations

from fairway.core.recovery.congestion import NewReno
from fairway.core.recovery.queue import SendQueue
from fairway.core.recovery.recovery import Kind, Recovery
from fairway.core.recovery.runs import Stream
from fairway.core.recovery.timing import Fixed
from fairway.core.statistics import Statistics

SECOND = 1_000_000
AFTER_US = 3 * SECOND


class Conversation:
    """A recovery with one stream of packets that have a timer each."""

    def __init__(self, transmissions_max: int = 11, window: int = 100) -> None:
        self.controller = NewReno(window)
        self.statistics = Statistics()
        kind = Kind(by_name=False, transmissions_max=transmissions_max)
        self.recovery = Recovery(kind, Fixed(AFTER_US), self.controller, self.statistics)
        self.stream = Stream()

    def send(self, first: int, count: int, now_us: int) -> None:
        for number in range(first, first + count):
            self.recovery.sent(self.stream, number, 1, now_us, bytes([number]), 1, number)

    def acknowledge(self, number: int, now_us: int) -> None:
        assert self.recovery.acknowledge(self.stream, number, 1, now_us)

    def retransmitted(self, now_us: int) -> list[int]:
        found: list[int] = []
        while (run := self.recovery.next_retransmission(now_us)) is not None:
            found += range(run.first, run.end)
        return found


def test_packets_with_a_timer_of_their_own_leave_on_it_although_the_window_is_full() -> None:
    one = Conversation()
    one.send(0, 10, 0)
    for number in (7, 8, 9):
        one.acknowledge(number, 20_000)
    assert one.recovery.in_flight == 0
    one.send(10, one.controller.window, SECOND)
    assert one.recovery.room(AFTER_US) == 0
    assert one.recovery.wake(AFTER_US) == []
    assert one.retransmitted(AFTER_US) == list(range(7))


def test_a_packet_that_was_overtaken_is_no_repair_where_only_the_timer_repairs() -> None:
    one = Conversation()
    one.send(0, 10, 0)
    for number in range(1, 10):
        one.acknowledge(number, 20_000)
    assert (one.recovery.in_flight, one.statistics.repairs) == (0, 0)
    assert one.retransmitted(20_000) == []
    one.recovery.wake(AFTER_US)
    assert (one.retransmitted(AFTER_US), one.statistics.repairs) == ([0], 0)


def test_a_timer_shorter_than_the_round_trip_cuts_no_window() -> None:
    one = Conversation()
    one.send(0, 10, 0)
    one.recovery.wake(AFTER_US)
    one.retransmitted(AFTER_US)
    for number in range(10):
        one.acknowledge(number, AFTER_US + SECOND // 2)
    window = one.controller.window
    assert window > 10
    one.send(10, 20, 4 * SECOND)
    one.recovery.wake(4 * SECOND + AFTER_US)
    one.retransmitted(4 * SECOND + AFTER_US)
    assert one.controller.window == window


def test_a_damaged_packet_leaves_at_once_counts_as_a_transmission_and_restarts_its_timer() -> None:
    one = Conversation(transmissions_max=3)
    one.recovery.sent(one.stream, 0, 5, 0, bytes(5), 1, 0)
    window = one.controller.window
    run = one.recovery.damaged(one.stream, 2, SECOND)
    assert run is not None
    assert (run.first, run.count, one.recovery.in_flight) == (2, 1, 5)
    assert (one.statistics.repairs, one.statistics.retransmissions) == (1, 1)
    one.recovery.wake(AFTER_US)
    assert one.retransmitted(AFTER_US) == [0, 1, 3, 4]
    one.recovery.wake(SECOND + AFTER_US)
    assert one.retransmitted(SECOND + AFTER_US) == [2]
    assert one.controller.window == window


def test_a_damaged_packet_that_left_as_often_as_is_allowed_waits_for_its_timer_only() -> None:
    one = Conversation(transmissions_max=2)
    one.send(0, 1, 0)
    assert one.recovery.damaged(one.stream, 0, SECOND) is not None
    assert one.recovery.damaged(one.stream, 0, 2 * SECOND) is None
    assert [run.first for run in one.recovery.wake(SECOND + AFTER_US)] == [0]


def test_what_is_not_open_cannot_arrive_damaged() -> None:
    one = Conversation()
    one.send(0, 1, 0)
    one.acknowledge(0, 20_000)
    assert one.recovery.damaged(one.stream, 0, 30_000) is None
    assert one.statistics.retransmissions == 0


def test_messages_of_one_size_that_are_sent_one_by_one_leave_together() -> None:
    queue = SendQueue()
    for token, body in ((1, b"aa"), (2, b"bb"), (3, b"c"), (5, b"d"), (6, b"e")):
        queue.add((body,), token, equal=True)
    queue.add((b"f", b"g"), 7, equal=True)
    queue.add((b"h",), 9, equal=True)
    assert queue.messages == 8
    assert [queue.take(10) for _ in range(5)] == [
        (1, [b"aa", b"bb"]), (3, [b"c"]), (5, [b"d", b"e"]), (7, (b"f", b"g")), (9, [b"h"]),
    ]  # fmt: skip
    assert not queue.messages


def test_what_joins_the_queue_while_it_is_taken_keeps_no_body_that_has_left() -> None:
    queue = SendQueue()
    for token in range(4):
        queue.add((b"a",), token, equal=True)
    assert queue.take(2) == (0, [b"a", b"a"])
    queue.add((b"b",), 4, equal=True)
    assert [queue.take(10), queue.take(10)] == [(2, [b"a", b"a"]), (4, [b"b"])]
    queue.add((b"c",), 5, equal=True)
    assert queue.take(10) == (5, [b"c"])
