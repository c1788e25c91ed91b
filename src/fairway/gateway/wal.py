"""SQLite's write-ahead log, read frame by frame: what lies behind a damaged frame, where SQLite itself stops reading.

    header   magic, version, page size, number, salt 1, salt 2, checksum 1, checksum 2     (32 bits each, big-endian)
    frame    page number, pages of the file after a commit or 0, salt 1, salt 2, checksum 1, checksum 2, the page

A checksum goes on from that of the frame before, over the first two words and the page. SQLite takes frames as long as
salts and checksums fit, and forgets the rest without a word. That is right for a torn tail: one transaction is under
way at a time and none begins before the last is synced, so a power cut damages frames of one transaction, of which at
most one frame is marked as a commit. Where two such marks follow, a transaction was damaged that had been synced.

Each frame can still be checked by itself, with the checksum that stands in the one before.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

HEADER = struct.Struct(">8I")
FRAME = struct.Struct(">6I")
MAGIC = 0x377F0682
"""The lowest bit says that words are summed as big-endian ones."""
SYNCED_COMMITS_MIN = 2

Checksum = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Frame:
    """One page as a transaction left it. `pages` is the size of the whole file if it is the last of a transaction."""

    page: int
    pages: int
    at: int
    """Where its page begins in the log."""
    salts: Checksum
    checksum: Checksum


@dataclass(slots=True)
class Walk:
    """What a log holds up to its end, as far as it was ever synced."""

    frames: list[Frame] = field(default_factory=list)
    """Up to the last commit."""
    damaged: set[int] = field(default_factory=set)
    """Places of frames whose checksum does not fit."""
    behind: int = 0
    """How many frames SQLite would not take, though transactions with them were synced."""

    @property
    def is_damaged(self) -> bool:
        """Tells whether SQLite would forget transactions that were synced."""
        return self.behind > 0

    def latest(self) -> dict[int, int]:
        """Gives for each page the place of its last frame."""
        return {frame.page: place for place, frame in enumerate(self.frames)}

    def lost(self) -> set[int]:
        """Gives the pages whose last frame is damaged."""
        return {page for page, place in self.latest().items() if place in self.damaged}


def walk(data: bytes, page_bytes: int) -> Walk:
    """Follows a log from its beginning over damaged frames, as long as synced transactions follow."""
    frames = _frames(data, page_bytes)
    if not frames:
        return Walk()
    header = HEADER.unpack_from(data)
    order = ">" if header[0] & 1 else "<"
    summed = checksum(data[:24], (0, 0), order)
    is_whole = summed == header[6:8] and header[0] | 1 == MAGIC | 1
    salts = (header[4], header[5]) if is_whole else frames[0].salts
    found = Walk()
    seeds: list[Checksum] = [(header[6], header[7]), summed]
    first_damaged: int | None = None if is_whole else 0
    for place, frame in enumerate(frames):
        sums = [_sum(data, frame, page_bytes, seed, order) for seed in seeds]
        fits = frame.checksum in sums
        if (not fits or frame.salts != salts) and first_damaged is None:
            first_damaged = place
        if not fits:
            if _commits(frames[place:], salts) < SYNCED_COMMITS_MIN:
                break
            found.damaged.add(place)
        if place > 0 and fits and place - 1 in found.damaged and frame.checksum == sums[-1] != sums[0]:
            # Only the checksum itself of the frame before was damaged.
            found.damaged.discard(place - 1)
        seeds = [frame.checksum] if fits else [frame.checksum, sums[0]]
        found.frames.append(frame)
    _cut(found, salts)
    if first_damaged is not None and _commits(found.frames[first_damaged:], salts) >= SYNCED_COMMITS_MIN:
        found.behind = len(found.frames) - first_damaged
    return found


def _frames(data: bytes, page_bytes: int) -> list[Frame]:
    size = FRAME.size + page_bytes
    count = max(0, len(data) - HEADER.size) // size
    found = []
    for place in range(count):
        begin = HEADER.size + place * size
        page, pages, *rest = FRAME.unpack_from(data, begin)
        found.append(Frame(page, pages, begin + FRAME.size, (rest[0], rest[1]), (rest[2], rest[3])))
    return found


def _commits(frames: Sequence[Frame], salts: Checksum) -> int:
    return sum(frame.pages > 0 and frame.salts == salts for frame in frames)


def _cut(found: Walk, salts: Checksum) -> None:
    """Takes off what no commit follows."""
    while found.frames and not (found.frames[-1].pages and found.frames[-1].salts == salts):
        found.frames.pop()
    found.damaged = {place for place in found.damaged if place < len(found.frames)}


def newest(data: bytes, found: Walk, page_bytes: int) -> dict[int, bytes]:
    """Gives the pages in the log as its last commit left them; one that is damaged there is left empty.

    So nobody takes an older state of a page for the newest.
    """
    pages = {}
    for page, place in found.latest().items():
        at = found.frames[place].at
        if 0 < page <= found.frames[-1].pages:
            pages[page] = bytes(page_bytes) if place in found.damaged else data[at : at + page_bytes]
    return pages


def versions(data: bytes, found: Walk, page_bytes: int) -> list[bytes]:
    """Gives all that the log has of the lost pages, older states and damaged ones, the oldest first."""
    lost = found.lost()
    return [data[frame.at : frame.at + page_bytes] for frame in found.frames if frame.page in lost]


def merge(database: Path, data: bytes, found: Walk, page_bytes: int, target: Path) -> None:
    """Writes the file as it is with the log in it."""
    shutil.copyfile(database, target)
    with open(target, "r+b") as file:
        file.truncate(found.frames[-1].pages * page_bytes)
        for page, content in newest(data, found, page_bytes).items():
            file.seek((page - 1) * page_bytes)
            file.write(content)


# Checksums: s0 += even + s1, s1 += odd + s0, for each pair of words. Since that is linear, a whole page is one product
# with the powers of the step.


def checksum(data: bytes, seed: Checksum, order: str) -> Checksum:
    """Gives the checksum of bytes that follow those of `seed`."""
    import numpy as np

    words = np.frombuffer(data, dtype=f"{order}u4").astype(np.uint32)
    even, odd = words[0::2], words[1::2]
    powers = _powers(len(even))
    both = even + odd
    first = powers[1:, 0] * even + powers[1:, 1] * both
    second = powers[1:, 2] * even + powers[1:, 3] * both
    start = powers[0].tolist()
    return (
        (start[0] * seed[0] + start[1] * seed[1] + int(first.sum(dtype=np.uint64))) & 0xFFFFFFFF,
        (start[2] * seed[0] + start[3] * seed[1] + int(second.sum(dtype=np.uint64))) & 0xFFFFFFFF,
    )


def _sum(data: bytes, frame: Frame, page_bytes: int, seed: Checksum, order: str) -> Checksum:
    begin = frame.at - FRAME.size
    return checksum(data[begin : begin + 8] + data[frame.at : frame.at + page_bytes], seed, order)


@cache
def _powers(pairs: int) -> Any:
    """Gives the step to the powers `pairs` down to 0, each a 2 by 2 matrix in a row, modulo 2^32."""
    import numpy as np

    rows = [(1, 0, 0, 1)]
    for _ in range(pairs):
        a, b, c, d = rows[-1]
        rows.append(((a + b) & 0xFFFFFFFF, (a + 2 * b) & 0xFFFFFFFF, (c + d) & 0xFFFFFFFF, (c + 2 * d) & 0xFFFFFFFF))
    return np.array(rows[::-1], dtype=np.uint32)
