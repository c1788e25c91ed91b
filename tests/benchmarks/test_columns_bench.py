"""The measure of the column decoders measures what it says."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.columns import DAMAGED_EVERY, measure, mixed
from fairway.protocols import NAMES, columns


def test_every_protocol_has_a_row_and_a_rate() -> None:
    rows = list(measure(seconds=0, rows=500))
    assert [row["protocol"] for row in rows] == list(NAMES)
    for row in rows:
        assert isinstance(row["headers_per_s"], int)
        assert row["headers_per_s"] > 0


@pytest.mark.parametrize("protocol", NAMES)
def test_the_buffer_holds_data_answers_and_cut_datagrams_of_about_a_hundred_bytes(protocol: str) -> None:
    data, offsets, lengths = mixed(protocol, 2_000)
    table = columns(protocol).decode_columns(np.frombuffer(data, np.uint8), offsets, lengths)
    counts = np.bincount(table.kind)
    assert 5 <= counts[0] <= 1 + 2_000 // DAMAGED_EVERY
    assert np.count_nonzero(counts[1:] > 400) == 2
    assert 75 <= len(data) // 2_000 <= 125
