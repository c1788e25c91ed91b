"""Counting offsets in little memory agrees with counting them one by one."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fairway.lake.landing import reconcile
from fairway.lake.landing.reconcile import Coverage

_OFFSETS = st.lists(st.lists(st.integers(0, 40), max_size=20), max_size=16)


@given(_OFFSETS, st.integers(0, 45), st.integers(0, 45))
def test_any_order_of_batches_gives_the_count_of_a_set(batches: list[list[int]], first: int, end: int) -> None:
    block, reconcile.BLOCK = reconcile.BLOCK, 8
    try:
        seen = Coverage()
        for batch in batches:
            seen.add(np.array(batch, dtype=np.int64))
        rows = Counter(offset for batch in batches for offset in batch)
        assert seen.double == sum(rows.values()) - len(rows)
        assert seen.count(first, end) == sum(1 for offset in rows if first <= offset < end)
        assert seen.end() == max(rows, default=-1) + 1
    finally:
        reconcile.BLOCK = block


def test_a_complete_block_is_held_as_a_number_only() -> None:
    seen = Coverage()
    seen.add(np.arange(reconcile.BLOCK))
    assert (len(seen._open), len(seen._full)) == (0, 1)
    seen.add(np.array([5], dtype=np.int64))
    assert seen.double == 1
