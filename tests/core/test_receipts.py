"""Open receipts of a conversation: whatever is committed, in whatever portions, is freed once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairway.core.machine import Options
from fairway.core.receipts import OpenReceipts, Piece, ReceiptSlots

MESSAGES, BODY_BYTES = 1_000, 10


def opened() -> tuple[OpenReceipts, ReceiptSlots]:
    slots = ReceiptSlots(Options(open_receipts_max=MESSAGES, open_receipt_bytes_max=MESSAGES * BODY_BYTES))
    return OpenReceipts(slots), slots


def test_a_single_message_is_committed_without_breaking_up_the_batches_beside_it() -> None:
    receipts, _ = opened()
    receipts.add_one(1, BODY_BYTES, b"n")
    receipts.add(2, 100, BODY_BYTES, bytes(100))
    assert receipts.commit(1, 1) == [Piece(1, 1, BODY_BYTES, b"n")]
    assert receipts.commit(2, 100) == [Piece(2, 100, BODY_BYTES, bytes(100))]


def test_a_part_of_a_batch_is_cut_out_and_the_rest_stays_whole() -> None:
    receipts, slots = opened()
    receipts.add(10, 20, BODY_BYTES, bytes(range(10, 30)))
    assert receipts.commit(15, 5) == [Piece(15, 5, BODY_BYTES, bytes(range(15, 20)))]
    assert receipts.commit(0, 100) == [
        Piece(10, 5, BODY_BYTES, bytes(range(10, 15))),
        Piece(20, 10, BODY_BYTES, bytes(range(20, 30))),
    ]
    assert (slots.messages_left, slots.bytes_left) == (MESSAGES, MESSAGES * BODY_BYTES)


def test_a_message_without_a_receipt_slot_is_not_taken() -> None:
    receipts, slots = opened()
    assert receipts.add(1, MESSAGES, BODY_BYTES, b"")
    assert not receipts.add_one(MESSAGES + 1, 0, b"n")
    receipts.commit(1, 1)
    assert not receipts.add_one(MESSAGES + 1, BODY_BYTES + 1, b"n")
    assert receipts.add_one(MESSAGES + 1, BODY_BYTES, b"n")
    assert slots.messages_left == 0


Batches = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 3)), min_size=1, max_size=12)
Commits = st.lists(st.tuples(st.integers(0, 250), st.integers(1, 60)), max_size=30)


@given(batches=Batches, commits=Commits)
def test_commits_free_exactly_what_is_open_of_their_range(
    batches: list[tuple[int, int]], commits: list[tuple[int, int]]
) -> None:
    receipts, slots = opened()
    open_numbers: set[int] = set()
    following = 1
    for length, gap in batches:
        first = following + gap
        taken = (
            receipts.add_one(first, BODY_BYTES, b"n") if length == 1 else receipts.add(first, length, BODY_BYTES, b"")
        )
        assert taken
        open_numbers.update(range(first, first + length))
        following = first + length
    for first, count in commits:
        wanted = [number for number in range(first, first + count) if number in open_numbers]
        pieces = receipts.commit(first, count)
        assert [number for piece in pieces for number in range(piece.first, piece.end)] == wanted
        open_numbers.difference_update(wanted)
        assert slots.messages_left == MESSAGES - len(open_numbers)
        assert all((number in receipts) == (number in open_numbers) for number in range(following + 2))
    ranges = receipts.ranges()
    assert sorted(number for low, high in ranges for number in range(low, high + 1)) == sorted(open_numbers)
