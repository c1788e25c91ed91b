"""What was sent beside what is there, message by message: a stopped gateway's segments and journal, or the table."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.transport.pattern import NUMBER_BYTES, tail
from fairway.core import layout
from fairway.core.tables import MESSAGES
from fairway.store.lakes import Lake

ROWS_AT_ONCE = 65_536
PEER_SHIFT = 32
"""Of a soak's message the upper half of the number is its peer."""


@dataclass(frozen=True, slots=True)
class Held:
    """How many messages a server holds, and which, where that can be read."""

    count: int
    numbers: NDArray[np.int64] | None = None
    problems: list[str] = field(default_factory=list)

    def differences(self, sent: list[tuple[int, int]]) -> list[str]:
        """Compare with what was acknowledged: ranges of numbers, a first one and how many."""
        found = list(self.problems)
        acknowledged = sum(count for _, count in sent)
        if self.count != acknowledged:
            found.append(f"{acknowledged:,} messages were acknowledged and {self.count:,} are there")
        if self.numbers is not None:
            wanted = np.concatenate([np.arange(first, first + count) for first, count in sent] or [np.arange(0)])
            if not np.array_equal(np.sort(self.numbers), np.sort(wanted)):
                found.append("the numbers of the messages are not those that were sent, each once")
        return found


def held(lake: Path, gateway: str) -> Held:
    """Read everything that a stopped gateway has taken: all bodies are compared with what a client sends."""
    problems: list[str] = []
    numbers = [numbers_of(bodies, problems) for bodies in _landed(lake / layout.LANDING / gateway)]
    numbers += _journalled(lake / layout.GATEWAYS / gateway / layout.JOURNAL, problems)
    together = np.concatenate([*numbers, np.empty(0, dtype=np.int64)])
    return Held(len(together), together, problems)


def _landed(folder: Path) -> list[NDArray[np.uint8]]:
    """Return the bodies of all segments, as rows of bytes."""
    import pyarrow.parquet as pq

    found = []
    for path in sorted(folder.glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            found += [rows_of(batch.column(0)) for batch in file.iter_batches(ROWS_AT_ONCE, columns=["body"])]
    return found


def rows_of(bodies: Any) -> NDArray[np.uint8]:
    data = b"".join(bodies.to_pylist())
    return np.frombuffer(data, dtype=np.uint8).reshape(len(bodies), -1)


def _journalled(journal: Path, problems: list[str]) -> list[NDArray[np.int64]]:
    """Return the numbers of what is not sealed yet; rows that are sealed and not yet removed do not count again."""
    from fairway.gateway.journal import open_reader, read_rows

    with closing(open_reader(journal)) as reader:
        sealed_to = reader.execute("SELECT coalesce(max(last), -1) FROM sealed").fetchone()[0]
        rows = read_rows(reader, sealed_to + 1, 1 << 62)
    return [numbers_of(np.frombuffer(row.body, dtype=np.uint8).reshape(row.messages, -1), problems) for row in rows]


def numbers_of(bodies: NDArray[np.uint8], problems: list[str]) -> NDArray[np.int64]:
    """Return the number of each message; note a problem if one is not what is sent."""
    after = np.frombuffer(tail(bodies.shape[1]), dtype=np.uint8)
    if not (bodies[:, NUMBER_BYTES:] == after).all():
        problems.append("a message differs from what was sent")
    return bodies[:, :NUMBER_BYTES].copy().view(">u8").reshape(-1).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Tally:
    """What the comparison of a table found. The last three must be 0."""

    in_table: int
    missing: int
    """Acknowledged and not in the table."""
    double: int
    foreign: int
    """In the table, but never sent, or with another body than was sent."""


def tally(lake: Path, outcomes: Sequence[bytes], acknowledged: int) -> Tally:
    """Compare the table with the outcomes of each peer's messages, of which those marked so must be there."""
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
        peers, own_numbers = numbers >> PEER_SHIFT, numbers & ((1 << PEER_SHIFT) - 1)
        for peer in np.unique(peers):
            own = own_numbers[peers == peer]
            known = own[own < len(counts[peer])] if peer < len(counts) else own[:0]
            foreign += len(own) - len(known)
            if len(known):
                np.add.at(counts[peer], known, 1)
    double = sum(int((count > 1).sum()) for count in counts)
    marks = [np.frombuffer(numbers, dtype=np.uint8) == acknowledged for numbers in outcomes]
    missing = sum(int((mark & (count == 0)).sum()) for mark, count in zip(marks, counts, strict=True))
    return Tally(in_table, missing, double, foreign)
