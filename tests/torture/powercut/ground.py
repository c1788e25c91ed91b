"""The folder as it lies on disk after a power cut.

Of every file there is what a completed sync covers, and of every folder the names that one covers. Of the rest, by the
chance that is handed in, nothing, or any part: single writes, torn at the borders of sectors, single names. That is
harder than what a journalling file system does, and no harder than what it promises.

A name that moves is never lost on both sides: it has its new path, or still its old one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random

from tests.torture.powercut.trace import Cut, Event, Linked, Made, Moved, Removed, Synced, Wrote

SECTOR_BYTES = 512


@dataclass(slots=True, eq=False)
class Inode:
    """A file: its changes in order, and how many of them are safe."""

    changes: list[Wrote | Cut] = field(default_factory=list)
    safe: int = 0
    folder: bool = False


@dataclass(slots=True)
class Naming:
    """A change of names. `gives` and `takes` say which names, each in a folder of its own."""

    event: Event
    inode: Inode
    gives: Path | None
    takes: Path | None
    given_safe: bool = False
    taken_safe: bool = False


class Ground:
    """Follows the events up to a moment."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._live: dict[Path, Inode] = {}
        self._namings: list[Naming] = []

    def follow(self, events: Iterable[Event], cut_us: int) -> None:
        """Take in everything that began before the cut; what had not ended then may or may not have happened."""
        for event in events:
            if event.begin_us >= cut_us:
                break
            match event:
                case Made(path=path, folder=folder) if path not in self._live:
                    self._name(event, Inode(folder=folder), gives=path)
                case Made(path=path, empties=True):
                    self._live[path].changes.append(
                        Cut(begin_us=event.begin_us, end_us=event.end_us, path=path, size=0)
                    )
                case Linked(path=path, target=target):
                    self._name(event, self._live[path], gives=target)
                case Moved(path=path, target=target):
                    self._name(event, self._live[path], gives=target, takes=path)
                case Removed(path=path):
                    self._name(event, self._live[path], takes=path)
                case Wrote(path=path) | Cut(path=path):
                    self._live[path].changes.append(event)
                case Synced(path=path) if event.end_us <= cut_us:
                    self._sync(event, path)

    def _name(self, event: Event, inode: Inode, *, gives: Path | None = None, takes: Path | None = None) -> None:
        if takes is not None:
            self._live.pop(takes)
        if gives is not None:
            self._live[gives] = inode
        self._namings.append(Naming(event, inode, gives, takes))

    def _sync(self, event: Synced, path: Path) -> None:
        """Make safe what had ended when the sync began."""
        inode = self._live.get(path)
        if inode is not None and not inode.folder:
            inode.safe = sum(change.end_us <= event.begin_us for change in inode.changes)
            return
        for naming in self._namings:
            if naming.event.end_us <= event.begin_us:
                naming.given_safe |= naming.gives is not None and naming.gives.parent == path
                naming.taken_safe |= naming.takes is not None and naming.takes.parent == path

    # What is left.

    def build(self, target: Path, random: Random, per_million: int) -> None:
        """Write the folder, below another, as the cut leaves it; what is not safe is there with this probability."""
        names: dict[Path, Inode] = {}
        for naming in self._namings:
            given = naming.gives is not None and (naming.given_safe or _happens(random, per_million))
            if naming.gives is not None and given:
                names[naming.gives] = naming.inode
            if naming.takes is not None and (given or naming.gives is None):
                gone = naming.taken_safe or _happens(random, per_million)
                if gone and names.get(naming.takes) is naming.inode:
                    del names[naming.takes]
        target.mkdir(parents=True)
        for path in sorted(names):
            target_path = target / path.relative_to(self._root.parent)
            if not target_path.parent.is_dir():
                continue  # the folder above it did not get its name
            if names[path].folder:
                target_path.mkdir(exist_ok=True)
            else:
                target_path.write_bytes(content(names[path], random, per_million))

    def segments(self, landing: Path) -> set[str]:
        """Return the names of segments that could be read before the cut."""
        return {path.name for path in self._live if path.parent == landing and path.suffix == ".parquet"}


def content(inode: Inode, random: Random, per_million: int) -> bytes:
    """Return the bytes of a file: what is safe, and at random some of the rest."""
    data = bytearray()
    for number, change in enumerate(inode.changes):
        safe = number < inode.safe
        if isinstance(change, Cut):
            if safe or _happens(random, per_million):
                _resize(data, change.size)
        elif safe:
            _put(data, change.offset, change.data)
        elif _happens(random, per_million):
            for offset, piece in sectors(change):
                if random.random() < 0.9:  # mostly whole, sometimes torn
                    _put(data, offset, piece)
    return bytes(data)


def sectors(change: Wrote) -> list[tuple[int, bytes]]:
    """Cut a write at the borders of sectors."""
    begin, end = change.offset, change.offset + len(change.data)
    borders = [begin, *range(begin - begin % SECTOR_BYTES + SECTOR_BYTES, end, SECTOR_BYTES), end]
    return [(low, change.data[low - begin : high - begin]) for low, high in pairwise(borders)]


def _put(data: bytearray, offset: int, piece: bytes) -> None:
    if len(data) < offset:
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(piece)] = piece


def _resize(data: bytearray, size: int) -> None:
    del data[size:]
    data.extend(bytes(size - len(data)))


def _happens(random: Random, per_million: int) -> bool:
    return random.randrange(1_000_000) < per_million
