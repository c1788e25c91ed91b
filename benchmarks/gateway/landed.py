"""What a gateway holds after it was stopped, message by message: its segments, and what is still in its journal."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.transport.pattern import NUMBER_BYTES, tail
from fairway.core import layout

ROWS_AT_ONCE = 65_536


@dataclass(frozen=True, slots=True)
class Held:
    """How many messages a server holds, and which, where that can be read."""

    count: int
    numbers: NDArray[np.int64] | None = None
    problems: list[str] = field(default_factory=list)

    def differences(self, sent: list[tuple[int, int]]) -> list[str]:
        """Compares with what was acknowledged: ranges of numbers, a first one and how many."""
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
    """Reads everything that a stopped gateway has taken: all bodies are compared with what a client sends."""
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
    """Return bodies of one size as rows of bytes."""
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
