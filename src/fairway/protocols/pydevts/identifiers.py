"""Message ids of a sender: counted up, without those that a receiver could take for a duplicate.

An id must not be used again with the same crc for 120 s. Two memories answer for that:

* per peer and block of 256 ids, when it was last used: below 546 messages a second to a peer a block has rested for
  120 s when its turn comes again, and nothing else is asked;
* `RecentUses`, one per machine, for faster senders: every pair of id and crc, up to a bound. Beyond the bound a block
  as a whole counts as used, so that memory stays bounded and only a fast sender has to wait.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

IDS = 1 << 16
BLOCK_BITS = 8
BLOCK = 1 << BLOCK_BITS
PERIODS = 2
"""Periods in a rest; a use is remembered for the rest of its own period and as many more."""
_SALT_SHIFT = 48


def blocks_between(first: int, last: int) -> list[int]:
    """List the blocks of the ids from `first` on, up to the block of `last`, which is left out."""
    blocks = IDS >> BLOCK_BITS
    return [block % blocks for block in range(first >> BLOCK_BITS, (first >> BLOCK_BITS) + _blocks_ahead(first, last))]


def _blocks_ahead(first: int, last: int) -> int:
    return ((last >> BLOCK_BITS) - (first >> BLOCK_BITS)) % (IDS >> BLOCK_BITS)


class RecentUses:
    """Which keys of which peers were used recently: a set per period, so that the oldest goes as a whole."""

    def __init__(self, rest_us: int, uses_max: int) -> None:
        self._period_us = max(1, rest_us // PERIODS)
        self._max = uses_max
        self._period = 0
        self._sets: list[set[int]] = [set() for _ in range(PERIODS + 1)]
        """The current period last."""

    def __len__(self) -> int:
        return sum(map(len, self._sets))

    def _turn(self, now_us: int) -> None:
        period = now_us // self._period_us
        if period != self._period:
            fresh = min(max(period - self._period, 0), PERIODS + 1)
            self._sets = self._sets[fresh:] + [set() for _ in range(fresh)]
            self._period = period

    def add(self, keys: Sequence[int], now_us: int) -> bool:
        """Remember that these keys are used now; return whether there was room."""
        self._turn(now_us)
        if len(self) + len(keys) > self._max:
            return False
        self._sets[-1].update(keys)
        return True

    def free(self, keys: Sequence[int], now_us: int) -> int:
        """Return how many of these keys, from the first on, were not used recently."""
        self._turn(now_us)
        if all(uses.isdisjoint(keys) for uses in self._sets):
            return len(keys)
        return next(index for index, key in enumerate(keys) if any(key in uses for uses in self._sets))

    def first_free(self, keys: Sequence[int], now_us: int) -> int | None:
        """Return the index of the first of these keys that was not used recently."""
        self._turn(now_us)
        if any(uses.issuperset(keys) for uses in self._sets):
            return None
        return next((index for index, key in enumerate(keys) if not any(key in uses for uses in self._sets)), None)


class Taken(NamedTuple):
    """Consecutive ids that were given out: the wide number of the first, and the keys."""

    number: int
    keys: list[int]


class Identifiers:
    """The ids towards one peer. A wide number counts without end; its last 16 bits are the id on the wire."""

    __slots__ = ("_last_used_us", "_recent", "_rest_us", "_rested_since_us", "_salt", "_turn", "_unrecorded_us", "next")

    def __init__(self, first: int, recent: RecentUses, salt: int, rest_us: int) -> None:
        self.next = first
        self._recent = recent
        self._salt = salt << _SALT_SHIFT
        self._rest_us = rest_us
        self._last_used_us: dict[int, int] = {}
        """By block."""
        self._unrecorded_us: dict[int, int] = {}
        """By block, when a use found no room in `RecentUses`."""
        self._turn = -1
        self._rested_since_us: int | None = None
        """When the block that `next` is in was last used in an earlier turn; None for never."""

    def rest(self, used_blocks: dict[int, int]) -> None:
        """Let blocks of ids rest as a whole that were used at these times: their single uses are not known."""
        self._last_used_us.update(used_blocks)
        self._unrecorded_us.update(used_blocks)

    def used_blocks(self, since_us: int) -> dict[int, int]:
        """Return the blocks of ids used since that time, and when."""
        return {block: used_us for block, used_us in self._last_used_us.items() if used_us > since_us}

    def take(self, crcs: Sequence[int], open_ids: Container[int], now_us: int) -> list[Taken]:
        """Return ids for messages with these CRCs, in order; for fewer of them when no id is free."""
        taken: list[Taken] = []
        done = 0
        while done < len(crcs):
            some = self._take_next(crcs[done : done + BLOCK], open_ids, now_us)
            some = some or self._take_one(crcs[done], open_ids, now_us)
            if some is None:
                break
            done += len(some.keys)
            if taken and taken[-1].number + len(taken[-1].keys) == some.number:
                taken[-1].keys.extend(some.keys)
            else:
                taken.append(some)
        return taken

    def _take_next(self, crcs: Sequence[int], open_ids: Container[int], now_us: int) -> Taken | None:
        """Take the ids that come next in this block, up to the first that is open or was used recently."""
        self._enter()
        first = self.next % IDS
        count = min(len(crcs), BLOCK - first % BLOCK)
        for position in range(count):
            if first + position in open_ids:
                count = position
                break
        keys = [first + position << 32 | crcs[position] for position in range(count)]
        if not self._rested(self._rested_since_us, now_us):
            del keys[self._free(first >> BLOCK_BITS, keys, now_us) :]
        return self._give(self.next, keys, now_us) if keys else None

    def _take_one(self, crc: int, open_ids: Container[int], now_us: int) -> Taken | None:
        """Look for the next id that is neither open nor recently used with this crc, block by block."""
        start, end = self.next, self.next + IDS
        while start < end:
            stop = min(end, start - start % BLOCK + BLOCK)
            keys = [number % IDS << 32 | crc for number in range(start, stop) if number % IDS not in open_ids]
            key = self._first_free((start % IDS) >> BLOCK_BITS, keys, now_us)
            if key is not None:
                self.next = start + ((key >> 32) - start) % IDS
                self._enter()
                return self._give(self.next, [key], now_us)
            start = stop
        return None

    def _first_free(self, block: int, keys: Sequence[int], now_us: int) -> int | None:
        if not keys or self._rested(self._last_used_us.get(block), now_us):
            return keys[0] if keys else None
        if not self._rested(self._unrecorded_us.get(block), now_us):
            return None
        index = self._recent.first_free([self._salt | key for key in keys], now_us)
        return None if index is None else keys[index]

    def _rested(self, since_us: int | None, now_us: int) -> bool:
        return since_us is None or now_us - since_us >= self._rest_us

    def _free(self, block: int, keys: Sequence[int], now_us: int) -> int:
        if not self._rested(self._unrecorded_us.get(block), now_us):
            return 0
        return self._recent.free([self._salt | key for key in keys], now_us)

    def _enter(self) -> None:
        """Note when a block was last used, before its new turn adds uses of its own."""
        turn = self.next >> BLOCK_BITS
        if turn != self._turn:
            self._turn = turn
            self._rested_since_us = self._last_used_us.get(turn % (IDS >> BLOCK_BITS))

    def _give(self, number: int, keys: list[int], now_us: int) -> Taken:
        block = (number % IDS) >> BLOCK_BITS
        self._last_used_us[block] = now_us
        if not self._recent.add([self._salt | key for key in keys], now_us):
            self._unrecorded_us[block] = now_us
        self.next = number + len(keys)
        return Taken(number, keys)
