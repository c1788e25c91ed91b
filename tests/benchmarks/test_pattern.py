"""Whatever a transport could do to what was sent, the comparison finds."""

from __future__ import annotations

import pytest

from benchmarks.transport.pattern import (
    BLOCK,
    BLOCK_BYTES,
    LARGE_BYTES,
    BlockCheck,
    Corrupt,
    MessageCheck,
    StreamCheck,
    batch_messages,
    cycle,
    large_messages,
    message,
    tail,
)


def messages(count: int, size: int = 64) -> list[bytes]:
    return [message(number, tail(size)) for number in range(count)]


def test_a_stream_cut_anywhere_is_right() -> None:
    check, stream = StreamCheck(3 * BLOCK_BYTES), BLOCK * 3
    for start in range(0, len(stream), 99_991):
        check.take([stream[start : start + 99_991]])
    assert check.total == 3 * BLOCK_BYTES


def test_a_long_piece_of_a_stream_is_compared_to_its_end() -> None:
    check = StreamCheck(9 * BLOCK_BYTES)
    with pytest.raises(Corrupt, match="differs"):
        check.take([BLOCK * 2 + b"\0" + BLOCK[1:]])


def test_a_changed_byte_of_a_stream_is_found() -> None:
    damaged = bytearray(BLOCK)
    damaged[200_000] ^= 1
    with pytest.raises(Corrupt):
        StreamCheck(BLOCK_BYTES).take([damaged])


@pytest.mark.parametrize("left_out", [1_158, 1_200, 32_768])
def test_a_hole_in_a_stream_is_found(left_out: int) -> None:
    check = StreamCheck(9 * BLOCK_BYTES)
    check.take([BLOCK[:50_000]])
    with pytest.raises(Corrupt):
        check.take([BLOCK[50_000 + left_out :]])


def test_messages_in_any_order_are_right() -> None:
    check = MessageCheck(64, 100, None)
    check.take(messages(100)[50:])
    assert not check.complete
    check.take(messages(100)[:50][::-1])
    assert check.complete


def test_numbers_that_begin_again_are_told_apart_by_how_many_have_come() -> None:
    sent, in_flight = cycle(64), 2 * batch_messages(64)
    stream = [sent[number % len(sent)] for number in range(12 * in_flight)]
    check = MessageCheck(64, len(stream), len(sent))
    # The first of those in flight comes last, again and again; and the application takes many at once.
    late = [one for start in range(0, len(stream), in_flight) for one in stream[start : start + in_flight][::-1]]
    for start in range(0, len(late), 3 * in_flight + 7):
        check.take(late[start : start + 3 * in_flight + 7])
    assert check.complete


def test_a_message_that_comes_twice_is_found() -> None:
    check = MessageCheck(64, 100, None)
    check.take(messages(100)[:10])
    with pytest.raises(Corrupt, match="twice"):
        check.take(messages(100)[9:20])


def test_a_copy_in_place_of_a_missing_message_is_found() -> None:
    sent = messages(10)
    with pytest.raises(Corrupt, match="9 came, 10 with duplicates"):
        MessageCheck(64, 10, None).take([*sent[:9], sent[8]])


def test_a_changed_byte_of_a_message_is_found() -> None:
    sent = messages(3)
    with pytest.raises(Corrupt, match="differs"):
        MessageCheck(64, 10, None).take([sent[0], sent[1][:-1] + b"\0", sent[2]])


def test_a_message_with_another_length_is_found() -> None:
    with pytest.raises(Corrupt, match="bytes"):
        MessageCheck(64, 10, None).take([messages(1)[0][:-1]])


def test_a_number_that_was_never_sent_is_found() -> None:
    with pytest.raises(Corrupt, match="none"):
        MessageCheck(64, 10, None).take([message(10, tail(64))])


def test_large_messages_in_any_order_are_right() -> None:
    size = 3 * LARGE_BYTES + BLOCK_BYTES
    sent = list(large_messages(size))
    assert [len(body) for body in sent] == [LARGE_BYTES] * 3 + [BLOCK_BYTES]
    check = BlockCheck(size)
    check.take(sent[::-1])
    assert check.complete
    assert check.total == size


@pytest.mark.parametrize("change", ["twice", "differs"])
def test_a_large_message_that_comes_twice_or_changed_is_found(change: str) -> None:
    body = next(large_messages(2 * LARGE_BYTES))
    check = BlockCheck(2 * LARGE_BYTES)
    check.take([body])
    with pytest.raises(Corrupt, match=change):
        check.take([body if change == "twice" else body[:-1] + b"\0"])
