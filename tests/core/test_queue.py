"""The bounds of what `send` accepts, and the messages that wait to leave."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fairway.core.events import Peer, Writable
from fairway.core.machine import Buffer, Options
from fairway.core.outputs import Outputs
from fairway.core.recovery.queue import Backlog, SendQueue

PEER = Peer("peer")


def backlog(messages: int = 8, size: int = 100) -> Backlog:
    options = Options(send_queue_messages_max=messages, send_queue_bytes_max=size)
    return Backlog(options, Outputs(options), PEER)


def settle(backlog: Backlog, count: int, size: int) -> bool:
    """Settle messages and return whether `Writable` was reported."""
    backlog.settle(count, size)
    return backlog._outputs.events() == [Writable(PEER)]


def test_an_empty_backlog_accepts_a_message_above_its_limit_and_nothing_beside_it() -> None:
    full = backlog()
    assert full.accepts(1_000)
    full.add(1, 1_000)
    assert not full.accepts(1)
    assert full.room() == 0
    assert settle(full, 1, 1_000), "what was turned away is called back"
    assert (full.messages, full.bytes, full.wanted) == (0, 0, False)


@pytest.mark.parametrize(
    ("held", "sizes", "accepted"),
    [
        ((0, 0), [10] * 9, 8),
        ((0, 0), [60, 40, 1], 2),
        ((0, 0), [1_000, 1], 1),
        ((0, 0), [], 0),
        ((1, 50), [60, 1], 0),
        ((1, 50), [50], 1),
        ((8, 8), [1], 0),
        ((1, 100), [0, 0], 0),
    ],
)
def test_a_batch_is_accepted_as_far_as_number_and_bytes_allow(
    held: tuple[int, int], sizes: list[int], accepted: int
) -> None:
    limits = backlog()
    limits.add(*held)
    assert limits.accepts_of(sizes) == accepted
    assert limits.wanted == (accepted < len(sizes))


def test_writable_waits_for_a_quarter_of_room_and_comes_once() -> None:
    full = backlog()
    full.add(8, 80)
    assert not settle(full, 1, 10), "nobody was turned away"
    full.add(1, 10)
    assert not full.accepts(10)
    assert [settle(full, 1, 10) for _ in range(4)] == [False, True, False, False]


def test_writable_waits_for_bytes_too() -> None:
    full = backlog()
    full.add(2, 100)
    assert not full.accepts(1)
    assert not settle(full, 1, 10)
    full.add(1, 0)
    assert settle(full, 1, 20)


def test_messages_leave_in_order_and_in_batches_of_one_size() -> None:
    queue = SendQueue()
    queue.add([b"aa", b"bb", b"c", b"dd"], 10, equal=False)
    queue.add([b"ee", b"ff", b"gg"], 14, equal=True)
    assert queue.messages == 7
    taken = [queue.take(2) for _ in range(5)]
    assert taken == [(10, [b"aa", b"bb"]), (12, [b"c"]), (13, [b"dd"]), (14, [b"ee", b"ff"]), (16, [b"gg"])]
    assert queue.messages == 0


def test_a_batch_that_leaves_whole_is_not_cut_out_of_its_list() -> None:
    queue, bodies = SendQueue(), [b"aa", b"bb"]
    queue.add(bodies, 0, equal=True)
    assert queue.take(100)[1] is bodies


def test_what_did_not_leave_is_first_again() -> None:
    queue = SendQueue()
    queue.add([b"aa", b"bb", b"cc"], 5, equal=True)
    token, bodies = queue.take(2)
    queue.put_back(bodies, token)
    assert queue.messages == 3
    assert queue.take(9) == (5, [b"aa", b"bb"])
    assert queue.take(9) == (7, [b"cc"])


def test_clearing_returns_what_never_left() -> None:
    queue = SendQueue()
    queue.add([b"aa", b"bb", b"cc"], 5, equal=True)
    queue.add([b"dddd"], 8, equal=True)
    queue.take(1)
    assert queue.clear() == [(range(6, 8), 4), (range(8, 9), 4)]
    assert queue.messages == 0


def test_bodies_that_their_owner_could_change_are_kept_as_bytes() -> None:
    plain, second = [b"aa", b"bb"], bytearray(b"bb")
    queue = SendQueue()
    queue.add(plain, 1, equal=True)
    assert queue.take(2)[1] is plain
    mixed: list[Sequence[Buffer]] = [[b"aa", second], [second]]
    for bodies in mixed:
        queue.add(bodies, 3, equal=True)
        second[:] = b"xx"
        kept = queue.take(2)[1]
        assert kept == plain[-len(bodies) :]
        assert set(map(type, kept)) == {bytes}
        second[:] = b"bb"
