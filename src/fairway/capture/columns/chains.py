"""The search for a record boundary from any byte: a chain of plausible headers, each leading to the next.

One plausible header proves little. A chain is believed when it reaches the end of the file, when it is longer than any
datagram (so that a capture inside a payload cannot pass for the one around it), or when it has very many links. A chain
that fails does so at one place, and every link before that place fails with it: each is tried once, and the search
takes a time that grows with the bytes and not with their square.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

CHAIN_BYTES = 65_536
CHAIN_LINKS = 64
CUT_CHAIN_LINKS_MIN = 2
"""A chain whose last record is cut off by the end of the file is believed with so many whole ones before."""

SEARCH_BYTES = 1 << 18
"""Bytes of which all candidates are found at once."""

Link = Callable[[int], int | None]
"""Gives where the record at an offset ends, None if it is not plausible; past the end of the file if it is cut off."""


def first_chain(candidates: Iterable[int], link: Link, size: int) -> int | None:
    """Gives the first candidate at which a chain begins that is believed."""
    failed: set[int] = set()
    for candidate in candidates:
        if _holds(candidate, link, size, failed):
            return candidate
    return None


def _holds(start: int, link: Link, size: int, failed: set[int]) -> bool:
    seen: list[int] = []
    offset = start
    while offset not in failed:
        after = link(offset)
        if after is None:
            break
        if after == size:
            return True
        if after > size:
            if len(seen) >= CUT_CHAIN_LINKS_MIN:
                return True
            break
        seen.append(offset)
        offset = after
        if len(seen) >= CHAIN_LINKS or offset - start >= CHAIN_BYTES:
            return True
    failed.update(seen)
    failed.add(offset)
    return False


def windows(offset: int, stop: int) -> Iterator[tuple[int, int]]:
    """Cuts the bytes of a search into pieces."""
    while offset < stop:
        yield offset, min(offset + SEARCH_BYTES, stop)
        offset += SEARCH_BYTES
