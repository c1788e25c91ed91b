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


STREAMS = {
    "a long piece that differs at its end": [BLOCK * 2 + b"\0" + BLOCK[1:]],
    "a changed byte": [BLOCK[:200_000] + bytes([BLOCK[200_000] ^ 1]) + BLOCK[200_001:]],
    **{f"a hole of {size}": [BLOCK[:50_000], BLOCK[50_000 + size :]] for size in (1_158, 1_200, 32_768)},
}


@pytest.mark.parametrize("pieces", STREAMS.values(), ids=STREAMS)
def test_what_is_wrong_with_a_stream_is_found(pieces: list[bytes]) -> None:
    check = StreamCheck(9 * BLOCK_BYTES)
    with pytest.raises(Corrupt):
        check.take(pieces)


def test_numbers_that_begin_again_are_told_apart_by_how_many_have_come() -> None:
    sent, in_flight = cycle(64), 2 * batch_messages(64)
    stream = [sent[number % len(sent)] for number in range(12 * in_flight)]
    check = MessageCheck(64, len(stream), len(sent))
    # The first of those in flight comes last, again and again; and the application takes many at once.
    late = [one for start in range(0, len(stream), in_flight) for one in stream[start : start + in_flight][::-1]]
    for start in range(0, len(late), 3 * in_flight + 7):
        check.take(late[start : start + 3 * in_flight + 7])
    assert check.complete


SENT = messages(10)
WRONG = {
    "twice": [SENT[:6], SENT[5:]],
    "9 came, 10 with duplicates": [[*SENT[:9], SENT[8]]],
    "differs": [[SENT[0], SENT[1][:-1] + b"\0", SENT[2]]],
    "bytes": [[SENT[0][:-1]]],
    "none": [[message(10, tail(64))]],
}


@pytest.mark.parametrize("complaint", WRONG)
def test_what_is_wrong_with_messages_is_found(complaint: str) -> None:
    check, (*before, last) = MessageCheck(64, 10, None), WRONG[complaint]
    for batch in before:
        check.take(batch)
    with pytest.raises(Corrupt, match=complaint):
        check.take(last)


@pytest.mark.parametrize("change", ["twice", "differs"])
def test_a_large_message_that_comes_twice_or_changed_is_found(change: str) -> None:
    body = next(large_messages(2 * LARGE_BYTES))
    check = BlockCheck(2 * LARGE_BYTES)
    check.take([body])
    with pytest.raises(Corrupt, match=change):
        check.take([body if change == "twice" else body[:-1] + b"\0"])
