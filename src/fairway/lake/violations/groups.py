"""What screens look at: the records of each protocol, and groups of them by what they speak of."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fairway.core.columns import Integers
from fairway.lake.analysis.packets import Packets
from fairway.lake.analysis.spoken import KIND
from fairway.lake.arrays import Mask, begins, mixed

Number = TypeVar("Number", bound=np.generic)

NOTHING, NEVER = np.iinfo(np.int64).min, np.iinfo(np.int64).max
"""The greatest, and the least, of no values."""


class Groups:
    """Rows brought together by a key; a value of a group is the least or the greatest among some of its rows."""

    def __init__(self, *key: NDArray[np.generic]) -> None:
        words = mixed(*key)
        self.order = np.argsort(words, kind="stable")
        self.starts = np.flatnonzero(begins(words[self.order])) if len(words) else np.zeros(0, dtype=np.int64)

    def least(self, values: Integers, where: Mask | bool = True) -> Integers:
        """Gives the least of each group; the greatest number there is if there is none."""
        return self._reduced(np.minimum, np.where(where, values, NEVER))

    def most(self, values: Integers, where: Mask | bool = True) -> Integers:
        """Gives the greatest of each group; the least number there is if there is none."""
        return self._reduced(np.maximum, np.where(where, values, NOTHING))

    def count(self, where: Mask) -> Integers:
        """Gives how many rows of each group count."""
        return self._reduced(np.add, where.astype(np.int64))

    def differ(self, values: Integers, where: Mask | bool = True) -> Mask:
        """Tells which groups have different values."""
        least, most = self.least(values, where), self.most(values, where)
        different: Mask = (least != most) & (least != NEVER)
        return different

    def first(self, where: Mask) -> Integers:
        """Gives the place of the first such row of each group that has one."""
        places = self.order[where[self.order]]
        group = np.searchsorted(self.starts, np.flatnonzero(where[self.order]), side="right")
        return places[begins(group)] if len(places) else places

    def of_each(self, values: Integers) -> Integers:
        """Gives every row the value of its group."""
        spread = np.empty(len(self.order), dtype=np.int64)
        spread[self.order] = np.repeat(values, np.diff(self.starts, append=len(self.order)))
        return spread

    def any(self, where: Mask) -> Mask:
        """Tells which groups have such a row."""
        some: Mask = self.count(where) > 0
        return some

    def one(self, values: NDArray[Number]) -> NDArray[Number]:
        """Gives the value of any row of each group, which is the same for all."""
        return values[self.order[self.starts]]

    def _reduced(self, function: np.ufunc, values: Integers) -> Integers:
        reduced: Integers = function.reduceat(values[self.order], self.starts) if len(self.starts) else values[:0]
        return reduced


class Seen:
    """Packets, with the records of each protocol by themselves."""

    def __init__(self, packets: Packets) -> None:
        self.packets = packets
        self._rows: dict[int, Speakers] = {}

    def of(self, protocol: int) -> Speakers:
        """Gives the well-formed records of a protocol."""
        if protocol not in self._rows:
            self._rows[protocol] = Speakers(self.packets, protocol)
        return self._rows[protocol]


class Speakers:
    """The well-formed records of a protocol, with what its screens look at."""

    def __init__(self, packets: Packets, protocol: int) -> None:
        spoken, sessions = packets.spoken, packets.sessions
        places = np.flatnonzero(spoken.protocol[sessions.rows] == protocol)
        rows = sessions.rows[places]
        self.places, self.rows = places, rows
        self._packets = packets
        self.kind, self.at, self.flow = spoken.kind[rows], spoken.at_ns[rows], spoken.flow[rows]
        self.forward, self.point = spoken.forward[rows], spoken.point[rows]
        self.session, self.from_caller = sessions.number[places], sessions.from_caller[places]
        self.body_bytes = spoken.body_bytes[rows]
        self.there = mixed(self.point, self.flow)
        """The flow at the point."""

    def number(self, name: str) -> Integers:
        """Gives a header field."""
        return self._packets.spoken.number(name)[self.rows]

    def has(self, *names: str) -> Mask:
        """Tells which are of these kinds."""
        found: Mask = np.isin(self.kind, [KIND[name] for name in names])
        return found

    def crc(self, name: str) -> Integers:
        """Gives the CRC of the body; the same for all whose body was not captured whole."""
        return self.number(f"{name}_body_crc")
