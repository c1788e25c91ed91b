"""The names of the stream's files: which batches a file holds can be read off its name.

    QUERY-0000000012-3.parquet               what task 3 of batch 12 wrote
    QUERY-0000000003to0000000012-0.parquet   the first of the files that batches 3 to 12 were compacted to

QUERY is the identity of the stream, kept in its checkpoint. A replay of batch 12 writes the same names. Where batches
up to 12 are compacted, batch 12 was done, and a replay (its commit lost with the power) leaves that folder alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(r"([0-9a-f-]{36})-(\d{10})(?:to(\d{10}))?-(\d+)\.parquet")


@dataclass(frozen=True, slots=True)
class FileName:
    """The parts of a name."""

    query: str
    first: int
    last: int
    number: int
    compacted: bool

    def __str__(self) -> str:
        batches = f"{self.first:010}to{self.last:010}" if self.compacted else f"{self.first:010}"
        return f"{self.query}-{batches}-{self.number}.parquet"


def of_batch(query: str, batch: int, number: int) -> FileName:
    """Names what a task of a batch wrote."""
    return FileName(query, batch, batch, number, compacted=False)


def parse(name: str) -> FileName | None:
    """Gives the parts of a file's name, or None if it is not one of the stream's."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    query, first, last, number = found.groups()
    return FileName(query, int(first), int(last or first), int(number), compacted=last is not None)
