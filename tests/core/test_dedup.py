"""`Seen` against a plain set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairway.core.serial import Seen

SPAN = 64
steps = st.lists(st.tuples(st.integers(-40, 90), st.integers(1, 12)), max_size=60)


class NaiveSeen:
    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self.highest = -1

    def add(self, first: int, count: int) -> None:
        self.highest = max(self.highest, first + count - 1)
        self.numbers.update(range(first, first + count))
        self.numbers = {number for number in self.numbers if number > self.highest - SPAN}


@given(steps)
def test_it_remembers_exactly_what_a_set_of_the_last_span_remembers(moves: list[tuple[int, int]]) -> None:
    seen, naive, highest = Seen(SPAN), NaiveSeen(), 1_000
    for move, count in moves:
        first = max(0, highest + move)
        seen.add(first, count)
        naive.add(first, count)
        highest = naive.highest
        assert seen.highest == naive.highest
        for number in range(max(0, highest - 2 * SPAN), highest + 3):
            assert (number in seen) == (number in naive.numbers)
            assert seen.too_old(number) == (number <= highest - SPAN)


@given(steps)
def test_ranges_give_the_same_memory_back(moves: list[tuple[int, int]]) -> None:
    seen = Seen(SPAN)
    for move, count in moves:
        seen.add(max(0, 500 + move), count)
    ranges = seen.ranges()
    again = Seen.from_ranges(SPAN, ranges)
    assert again.ranges() == ranges
    assert again.highest == seen.highest


def test_in_order_arrival_makes_no_bitmap() -> None:
    seen = Seen(65_536)
    for first in range(1, 200_000, 100):
        seen.add(first, 100)
    assert seen._bits is None
    assert 199_999 in seen
    assert seen.too_old(200_000 - 65_536)
    seen.add(300_000)
    assert seen._bits is not None
    assert 299_999 not in seen
    assert 300_000 in seen
