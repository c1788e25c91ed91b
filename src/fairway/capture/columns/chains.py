"""The search for a record boundary from any byte: a chain of plausible headers, each leading to the next.

One plausible header proves little. A chain is believed when it reaches the end of the file, when it has several links
and is longer than any datagram (so that a capture inside a payload cannot pass for the one around it), or when it has
very many links. A chain that fails does so at one offset, and every link before it fails with it: each is tried
once, and the search takes a time that grows with the bytes and not with their square.

Two chains may both be believed: a false header can lead to a true record, by accident or by malice, and in a file of
equal records everything may repeat some bytes late. A later one proves the earlier one wrong if more speaks for its
records, up to where both are one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, takewhile

CHAIN_BYTES = 65_536
"""No datagram is longer."""
CHAIN_LINKS = 64
CHAIN_LINKS_MIN = 3
CUT_CHAIN_LINKS_MIN = 2
"""A chain whose last record is cut off by the end of the file is believed with so many whole ones before."""

SEARCH_BYTES = 1 << 18
"""Bytes of which all candidates are found at once."""

CONFIRMED = 4
"""What speaks for a record whose content bears out its length; less speaks for a plausible header alone."""

Link = Callable[[int], tuple[int, int] | None]
"""Returns where the record at an offset ends and how much speaks for it, None if it is not plausible.

The end lies past the end of the file if the record is cut off.
"""


@dataclass(frozen=True, slots=True)
class Chain:
    """Records that follow one another, and how much speaks for each."""

    evidence: dict[int, int]
    """By offset, in the order of the file."""
    end: int
    """Where the last of them ends that was checked."""
    believed: bool

    @property
    def several(self) -> bool:
        """Whether it is believed, or too long for an accident."""
        return self.believed or len(self.evidence) >= CHAIN_LINKS_MIN

    @property
    def start(self) -> int:
        """Where the first record is; of a chain without records the end of the file."""
        return next(iter(self.evidence), self.end)

    def disproves(self, other: Chain) -> bool:
        """Return whether more speaks for this chain than for another, up to where they become one.

        What may lie inside one datagram is no proof, unless all of it is borne out and something of the other is not.
        """
        ours, theirs = self._apart(other), other._apart(self)
        if not ours or self.start >= other.end or sum(ours.values()) <= sum(theirs.values()):
            return False
        if min(ours.values()) >= CONFIRMED > min(theirs.values(), default=CONFIRMED):
            return True
        joined = next((offset for offset in self.evidence if offset in other.evidence), None)
        if joined is None:
            return self.start < next(islice(other.evidence, 1, None), other.end)
        return joined - min(self.start, other.start) >= CHAIN_BYTES

    def _apart(self, other: Chain) -> dict[int, int]:
        return dict(takewhile(lambda item: item[0] not in other.evidence, self.evidence.items()))


def first_chain(candidates: Iterable[int], link: Link, size: int) -> int | None:
    """Return the first candidate at which a chain begins that is believed, and that no later one disproves."""
    failed: set[int] = set()
    best: Chain | None = None
    for candidate in candidates:
        if best is not None and candidate >= best.end:
            break
        if best is None or candidate not in best.evidence:
            found = chain_at(candidate, link, size, failed)
            if found.believed and (best is None or found.disproves(best)):
                best = found
    return None if best is None else best.start


def chain_at(start: int, link: Link, size: int, failed: set[int] | None = None) -> Chain:
    """Follow the chain that begins at an offset until it is believed or fails; `failed` are offsets where all do."""
    failed = set() if failed is None else failed
    seen: dict[int, int] = {}
    offset = start
    while offset not in failed and offset < size and (found := link(offset)) is not None:
        after, evidence = found
        if after > size:
            if len(seen) >= CUT_CHAIN_LINKS_MIN:
                return Chain(seen, size, believed=True)
            break
        seen[offset] = evidence
        offset = after
        long = offset - start >= CHAIN_BYTES and len(seen) >= CHAIN_LINKS_MIN
        if after == size or long or len(seen) >= CHAIN_LINKS:
            return Chain(seen, offset, believed=True)
    failed.update(seen)
    failed.add(offset)
    # The last one led to where there is none: its length may be what is wrong.
    last = seen.popitem()[0] if seen else offset
    return Chain(seen, last, believed=False)


def windows(offset: int, stop: int) -> Iterator[tuple[int, int]]:
    """Cut the bytes of a search into pieces."""
    while offset < stop:
        yield offset, min(offset + SEARCH_BYTES, stop)
        offset += SEARCH_BYTES
