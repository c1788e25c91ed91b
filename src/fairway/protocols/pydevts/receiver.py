"""What one peer has sent us: keys that are known, acks that wait for a close, messages that wait for a commit."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from fairway.core.serial import widen
from fairway.protocols.pydevts.wire import CRC_MASK, KEY_MASK

BITS = 16
GAPS_MAX = 1_024
"""Ranges of free numbers that are kept; what falls out counts as used, and a late message there moves on by a turn."""


class Widener:
    """Numbers given to the messages of one peer. Everything up to `highest` is used, except the gaps."""

    __slots__ = ("gaps", "highest")

    def __init__(self, highest: int = -1, gaps: list[tuple[int, int]] | None = None) -> None:
        self.highest = highest
        self.gaps = [] if gaps is None else gaps
        """Free numbers as ascending ranges (start, end), end excluded."""

    def copy(self) -> Widener:
        return Widener(self.highest, list(self.gaps))

    def above(self, wire_id: int) -> int | None:
        """Return the number of a message with this id if it is above all before; else None. Marks nothing."""
        wide = wire_id if self.highest < 0 else widen(wire_id, self.highest, BITS)
        return wide if wide > self.highest else None

    def take(self, wire_id: int) -> int:
        """Give a new message with this id a number that no other has."""
        wide = self.above(wire_id)
        if wide is None:
            wide = widen(wire_id, self.highest, BITS)
            if self._fill(wide):
                return wide
            wide += 1 << BITS
        self.take_run(wide, 1)
        return wide

    def take_run(self, first: int, count: int) -> None:
        """Mark numbers above the highest as used."""
        if first > self.highest + 1:
            self._add_gap(len(self.gaps), self.highest + 1, first)
        self.highest = first + count - 1

    def release(self, number: int) -> None:
        """Make a used number free again: its message is not known after all."""
        at = bisect_right(self.gaps, (number, self.highest + 1))
        if at and self.gaps[at - 1][1] == number:
            self.gaps[at - 1] = (self.gaps[at - 1][0], number + 1)
        else:
            self._add_gap(at, number, number + 1)

    def _fill(self, number: int) -> bool:
        """Take a number out of its gap, if it is in one."""
        at = bisect_right(self.gaps, (number, self.highest + 1)) - 1
        if at < 0 or self.gaps[at][1] <= number:
            return False
        start, end = self.gaps[at]
        self.gaps[at : at + 1] = [(low, high) for low, high in ((start, number), (number + 1, end)) if low < high]
        self._trim()
        return True

    def _add_gap(self, at: int, start: int, end: int) -> None:
        self.gaps.insert(at, (start, end))
        self._trim()

    def _trim(self) -> None:
        if len(self.gaps) > GAPS_MAX:
            del self.gaps[0]


ID_SHIFT = 32
SIZE_SHIFT = 48


class Arrival(NamedTuple):
    """Messages that arrived together; their numbers follow one another."""

    first_us: int
    keys: Sequence[int]


class Receiver:
    """The receiving side towards one peer.

    A key is *known* from its arrival on; *incoming* while its ack is repeated; *held* while it is delivered and
    not committed; *silent* if its conversation ended before the commit, so that it must never be acknowledged.
    """

    __slots__ = ("_deferred", "_more", "_overdue", "arrivals", "incoming", "known", "receipts", "silent", "widener")

    def __init__(self, deferred: bool) -> None:
        self._deferred = deferred
        self.widener = Widener()
        self.known: dict[int, int] = {}
        """Number of each key."""
        self.incoming: dict[int, int] = {}
        """Key of each id; further keys with the same id, which only a lost close makes, are in `_more`."""
        self._more: dict[int, dict[int, None]] = {}
        self.receipts: dict[int, int] = {}
        """By number: the key and, above it, the size of the body."""
        self.silent: dict[int, None] = {}
        self.arrivals: deque[Arrival] = deque()
        """Keys by age, the oldest first: those whose time is not over."""
        self._overdue: dict[int, None] = {}
        """Keys whose time is over, known only because they are incoming or held."""

    # Arrival.

    def accept(self, key: int, size: int, now_us: int) -> int:
        number = self.widener.take(key >> ID_SHIFT)
        self.known[key] = number
        self.receipts[number] = size << SIZE_SHIFT | key
        self.arrivals.append(Arrival(now_us, (key,)))
        return number

    def accept_run(self, keys: tuple[int, ...], size: int, now_us: int) -> int | None:
        """Take new messages with consecutive ids in and return the first number; None if one is not plainly new."""
        first = self.widener.above(keys[0] >> ID_SHIFT)
        if first is None or not self.known.keys().isdisjoint(keys):
            return None
        numbers = range(first, first + len(keys))
        self.widener.take_run(first, len(keys))
        self.known.update(zip(keys, numbers, strict=True))
        above = size << SIZE_SHIFT
        self.receipts.update(zip(numbers, [above | key for key in keys], strict=True))
        self.arrivals.append(Arrival(now_us, keys))
        return first

    def answerable(self, key: int) -> bool:
        """Return whether duplicates of a known key are acknowledged."""
        return not self.held(key) and key not in self.silent

    def held(self, key: int) -> bool:
        """Return whether a known key waits for a commit before it may be acknowledged."""
        return self._deferred and self.known[key] in self.receipts

    # Incoming.

    def enter(self, keys: Sequence[int]) -> None:
        """Note that these are acknowledged and wait for their close."""
        if len(keys) == 1:
            self._enter_one(keys[0] >> ID_SHIFT, keys[0])
            return
        ids = [key >> ID_SHIFT for key in keys]
        if len(set(ids)) == len(ids) and self.incoming.keys().isdisjoint(ids):
            self.incoming.update(zip(ids, keys, strict=True))
            return
        for message_id, key in zip(ids, keys, strict=True):
            self._enter_one(message_id, key)

    def _enter_one(self, message_id: int, key: int) -> None:
        present = self.incoming.get(message_id)
        if present is None:
            self.incoming[message_id] = key
        elif present != key:
            self._more.setdefault(message_id, {})[key] = None

    def is_incoming(self, key: int) -> bool:
        message_id = key >> ID_SHIFT
        return self.incoming.get(message_id) == key or (bool(self._more) and key in self._more.get(message_id, ()))

    def leave(self, key: int) -> bool:
        """End the repeats of an ack; return whether there were any."""
        if not self.is_incoming(key):
            return False
        message_id = key >> ID_SHIFT
        more = self._more.get(message_id)
        if more is None:
            del self.incoming[message_id]
        else:
            if self.incoming[message_id] == key:
                self.incoming[message_id], _ = more.popitem()
            else:
                del more[key]
            if not more:
                del self._more[message_id]
        self._forget_overdue(key)
        return True

    def leave_all(self, message_id: int) -> bool:
        """End the repeats of every ack with this id."""
        keys = [key for key in (self.incoming.get(message_id), *self._more.get(message_id, ())) if key is not None]
        for key in keys:
            self.leave(key)
        return bool(keys)

    def closed(self, keys: Sequence[int]) -> int:
        """Take closes; return how many of them ended something."""
        if self._more or self._overdue:
            return sum(self.leave(key) if key & CRC_MASK else self.leave_all(key >> ID_SHIFT) for key in keys)
        incoming, ended = self.incoming, 0
        for key in keys:
            present = incoming.get(key >> ID_SHIFT)
            if present == key or (present is not None and not key & CRC_MASK):
                del incoming[key >> ID_SHIFT]
                ended += 1
        return ended

    def all_incoming(self) -> list[int]:
        """List the keys that wait for a close."""
        return [*self.incoming.values(), *(key for keys in self._more.values() for key in keys)]

    # Commit and the end.

    def all_held(self) -> set[int]:
        """Return the numbers of the messages that wait for a commit before they may be acknowledged."""
        return set(self.receipts) if self._deferred else set()

    def commit(self, number: int) -> tuple[int, int] | None:
        """Free the slot of a message and return its key and size; None if it has none."""
        entry = self.receipts.pop(number, None)
        return None if entry is None else (entry & KEY_MASK, entry >> SIZE_SHIFT)

    def release(self) -> tuple[int, int]:
        """Free all slots; what was never acknowledged stays silent. Return their number and their bytes."""
        entries = list(self.receipts.values())
        self.receipts.clear()
        for key in [entry & KEY_MASK for entry in entries] if self._deferred else ():
            self.silent[key] = None
            self._forget_overdue(key)
        return len(entries), sum(entry >> SIZE_SHIFT for entry in entries)

    # Forgetting.

    def expire(self, before_us: int) -> None:
        """Forget what arrived before that time; what is incoming or held stays until it no longer is."""
        while self.arrivals and self.arrivals[0].first_us <= before_us:
            for key in self.arrivals.popleft().keys:
                if self.held(key) or self.is_incoming(key):
                    self._overdue[key] = None
                else:
                    self._forget(key)

    def _forget_overdue(self, key: int) -> None:
        if key in self._overdue and not self.held(key) and not self.is_incoming(key):
            del self._overdue[key]
            self._forget(key)

    def _forget(self, key: int) -> None:
        del self.known[key]
        self.silent.pop(key, None)

    def overdue(self) -> list[int]:
        """List the keys that are known beyond their time."""
        return list(self._overdue)
