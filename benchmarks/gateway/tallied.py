"""The table beside the ledger of a crowd: every body compared, every number counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.gateway.crowd import PEER_SHIFT
from benchmarks.gateway.landed import numbers_of, rows_of
from fairway.core.tables import MESSAGES
from fairway.store.lakes import Lake


@dataclass(frozen=True, slots=True)
class Tally:
    """What the comparison found. The last three must be 0."""

    in_table: int
    missing: int
    """Acknowledged and not in the table."""
    double: int
    foreign: int
    """In the table, but never sent, or with another body than was sent."""


def tally(lake: Path, outcomes: Sequence[bytes], acknowledged: int) -> Tally:
    """Compares the table with the outcomes of each peer's messages, of which those marked so must be there."""
    import pyarrow as pa

    counts = [np.zeros(len(numbers), dtype=np.uint8) for numbers in outcomes]
    in_table = foreign = 0
    for batch in Lake(lake, create=False).delta(MESSAGES.name).rows(pa.schema([("body", pa.binary())])):
        if not len(batch):
            continue
        problems: list[str] = []
        numbers = numbers_of(rows_of(batch.column(0)), problems)
        in_table += len(numbers)
        foreign += len(problems)
        peers, places = numbers >> PEER_SHIFT, numbers & ((1 << PEER_SHIFT) - 1)
        for peer in np.unique(peers):
            own = places[peers == peer]
            known = own[own < len(counts[peer])] if peer < len(counts) else own[:0]
            foreign += len(own) - len(known)
            if peer < len(counts):
                np.add.at(counts[peer], known, 1)
    double = sum(int((count > 1).sum()) for count in counts)
    marks = [np.frombuffer(numbers, dtype=np.uint8) == acknowledged for numbers in outcomes]
    missing = sum(int((mark & (count == 0)).sum()) for mark, count in zip(marks, counts, strict=True))
    return Tally(in_table, missing, double, foreign)
