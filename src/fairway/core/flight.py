"""Packets in flight: what was sent and not yet acknowledged, when to repeat it, and what overtook it.

A packet has a wide number (it never wraps) and each transmission has an *order*: the count of transmissions so far.
Packets that left together stay together as one `Run` until one of them is repeated, so that a batch of a hundred
costs a few operations to send and, when its acknowledgements come as a range, a few to take off. A packet on its own,
repeated or not, is a run of one and is looked up by its number.

Repair by name: a packet is *overtaken* once three transmissions later than its own latest one have been acknowledged.
Its repair gets a new order, so it is overtaken again only by what left after the repair.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from fairway.core.machine import Buffer
from fairway.core.timers import STALE_MAX

OVERTAKEN_BY = 3
"""Later transmissions acknowledged before a packet counts as lost: reordering by less is common on real paths."""

_WAITING, _GONE = 0, 1
_USED_UP = -1
"""The timer of a run that was handed out: makes a second heap entry for the same instant stale."""


class Run:
    """Packets `first` to `first + count - 1`, sent together. `data` holds their datagrams, `segment_bytes` each."""

    __slots__ = ("count", "data", "due_us", "first", "gone", "left", "orders", "segment_bytes", "sent_us", "token")

    def __init__(
        self,
        first: int,
        count: int,
        data: Buffer,
        segment_bytes: int,
        token: int,
        sent_us: int,
        order: int,
        due_us: int,
    ) -> None:
        self.first = first
        self.count = count
        self.data = data
        self.segment_bytes = segment_bytes
        self.token = token
        """The token of `first`; those of the others follow."""
        self.sent_us = [sent_us]
        """When each transmission left, the latest last."""
        self.orders = [order]
        """The order of each transmission of `first`; those of the others follow."""
        self.due_us = due_us
        self.left = count
        self.gone: bytearray | None = None
        """One flag a packet: acknowledged, or moved out to a run of its own. None while all are waiting."""

    @property
    def transmissions(self) -> int:
        return len(self.sent_us)

    def waiting(self, most: int | None = None) -> Iterator[int]:
        """Numbers of the packets still in this run, or of those among its first `most`."""
        end = self.count if most is None else min(most, self.count)
        if self.gone is None:
            yield from range(self.first, self.first + end)
            return
        position = self.gone.find(_WAITING, 0, end)
        while position >= 0:
            yield self.first + position
            position = self.gone.find(_WAITING, position + 1, end)

    def datagram(self, number: int) -> Buffer:
        """The bytes of one packet as they were first sent."""
        start = (number - self.first) * self.segment_bytes
        return self.data if self.count == 1 else self.data[start : start + self.segment_bytes]


class Acknowledged(NamedTuple):
    """Neighbouring packets of one run that were acknowledged just now."""

    run: Run
    first: int
    count: int  # type: ignore[assignment]  # the field matters more than tuple.count

    @property
    def tokens(self) -> range:
        token = self.run.token + self.first - self.run.first
        return range(token, token + self.count)


class Flight:
    """The packets of one conversation that wait for their acknowledgement. `len()` counts them."""

    __slots__ = ("_due", "_firsts", "_order", "_runs", "_serial", "_singles", "_top", "left")

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._firsts: list[int] = []
        self._singles: dict[int, Run] = {}
        """Runs of one by number, in the order of their latest transmission."""
        self._due: list[tuple[int, int, Run]] = []
        self._serial = 0
        self._order = 0
        self.left = 0
        """How many wait; the same as `len()`, without its detour."""
        self._top = [-1] * OVERTAKEN_BY
        """The highest acknowledged orders, ascending; what is below the first has been overtaken."""

    def __len__(self) -> int:
        return self.left

    def __contains__(self, number: int) -> bool:
        return self.find(number) is not None

    def add(
        self, first: int, count: int, data: Buffer, segment_bytes: int, token: int, now_us: int, due_us: int
    ) -> Run:
        """Takes note of new packets that leave now; numbers must be higher than all before."""
        run = Run(first, count, data, segment_bytes, token, now_us, self._order, due_us)
        self._order += count
        self.left += count
        if count == 1:
            self._singles[first] = run
        else:
            self._runs.append(run)
            self._firsts.append(first)
        self._arm(run)
        return run

    def add_one(self, number: int, data: Buffer, token: int, now_us: int, due_us: int) -> None:
        """Takes note of one new packet, as `add` does."""
        order = self._order
        self._singles[number] = run = Run(number, 1, data, len(data), token, now_us, order, due_us)
        self._order = order + 1
        self.left += 1
        self._serial = serial = self._serial + 1
        heap = self._due
        heappush(heap, (due_us, serial, run))
        if len(heap) > STALE_MAX:
            self._drop_stale()

    def acknowledge_one(self, number: int) -> Run | None:
        """Takes off a packet that left on its own, in a single transmission; None if it is no such packet."""
        run = self._singles.get(number)
        if run is None or len(run.orders) > 1:
            return None
        del self._singles[number]
        self.left -= 1
        run.left = 0
        order, top = run.orders[0], self._top
        if order > top[-1]:
            del top[0]
            top.append(order)
        else:
            self._raise_top(order, 1)
        return run

    def find(self, number: int) -> Run | None:
        """Gives the run that holds the packet, while it is waiting."""
        run = self._singles.get(number)
        if run is not None or not self._runs:
            return run
        position = bisect_right(self._firsts, number) - 1
        if position < 0:
            return None
        run = self._runs[position]
        offset = number - run.first
        if offset >= run.count or (run.gone is not None and run.gone[offset] != _WAITING):
            return None
        return run

    def acknowledge(self, first: int, count: int = 1, transmission: int = 0) -> list[Acknowledged]:
        """Takes off the packets of a range that are still waiting and gives them piece by piece.

        `transmission` says which transmission of a repeated packet was acknowledged (-1: the latest). Where the
        protocol cannot tell, the first is assumed: that never takes a packet for overtaken that was not.
        """
        pieces: list[Acknowledged] = []
        number, end = first, first + count
        while number < end:
            run = self.find(number)
            if run is None:
                number += 1
                continue
            piece = self._piece(run, number, end)
            order = run.orders[transmission if len(run.orders) > 1 else 0] + piece.first - run.first
            self._raise_top(order + piece.count - 1, piece.count)
            self._take_off(run, piece.first, piece.count)
            pieces.append(piece)
            number += piece.count
        return pieces

    def _piece(self, run: Run, number: int, end: int) -> Acknowledged:
        """Finds how many waiting packets follow one another in the run from `number` on."""
        most = min(end, run.first + run.count) - number
        if run.gone is not None:
            start = number - run.first
            gone = run.gone.find(_GONE, start, start + most)
            if gone >= 0:
                most = gone - start
        return Acknowledged(run, number, most)

    def _take_off(self, run: Run, first: int, count: int) -> None:
        self.left -= count
        run.left -= count
        if run.count == 1:
            del self._singles[first]
            return
        if run.left == 0:
            position = bisect_right(self._firsts, run.first) - 1
            del self._runs[position], self._firsts[position]
            return
        if run.gone is None:
            run.gone = bytearray(run.count)
        start = first - run.first
        run.gone[start : start + count] = b"\x01" * count

    def _raise_top(self, order: int, count: int) -> None:
        top = self._top
        if order <= top[0]:
            return
        for one in range(order, order - min(count, OVERTAKEN_BY), -1):
            if one > top[0] and one not in top:
                top[0] = one
                top.sort()

    def overtaken(self) -> list[int]:
        """Lists the waiting packets that three acknowledged later transmissions have overtaken, oldest first.

        Each must be repeated at once: until then it is listed again.
        """
        line = self._top[0]
        found: list[int] = []
        for run in self._runs:
            order = run.orders[0]
            if order >= line:
                break
            found.extend(run.waiting(line - order))
        for number, run in self._singles.items():
            if run.orders[-1] >= line:
                break
            found.append(number)
        if len(found) > 1:
            found.sort()
        return found

    def repeat(self, number: int, now_us: int, due_us: int) -> Run:
        """Takes note that a waiting packet leaves again, and gives the run of one that it now is."""
        run = self.find(number)
        if run is None:
            raise KeyError(number)
        if run.count > 1:
            run = self._move_out(run, number)
        run.sent_us.append(now_us)
        run.orders.append(self._order)
        run.due_us = due_us
        self._order += 1
        self._singles[number] = self._singles.pop(number, run)
        self._arm(run)
        return run

    def _move_out(self, run: Run, number: int) -> Run:
        offset = number - run.first
        data = bytes(run.datagram(number))
        single = Run(number, 1, data, len(data), run.token + offset, run.sent_us[0], run.orders[0] + offset, run.due_us)
        self._take_off(run, number, 1)
        self.left += 1
        self._singles[number] = single
        return single

    def drop(self, number: int) -> Run | None:
        """Takes off a packet that is given up; gives its run, or None if it is not waiting."""
        run = self.find(number)
        if run is not None:
            if run.count > 1:
                run = self._move_out(run, number)
            self._take_off(run, number, 1)
        return run

    def waiting(self) -> list[int]:
        """Lists all waiting packets in the order of their numbers."""
        numbers = [number for run in self._runs for number in run.waiting()]
        numbers.extend(self._singles)
        numbers.sort()
        return numbers

    def oldest(self) -> int | None:
        """Gives the lowest waiting number. Looks at every packet on its own: ask when needed, not for each packet."""
        lowest = min(self._singles, default=None)
        if self._runs:
            first = next(self._runs[0].waiting())
            lowest = first if lowest is None else min(lowest, first)
        return lowest

    # Timers: one heap, whose entries are stale once a run is finished or was armed again.

    def _arm(self, run: Run) -> None:
        self._serial += 1
        heappush(self._due, (run.due_us, self._serial, run))
        if len(self._due) > STALE_MAX:
            self._drop_stale()

    def _drop_stale(self) -> None:
        """Clears the heap when more than half of it is of packets that wait no more."""
        if len(self._due) > 2 * (len(self._runs) + len(self._singles)) + STALE_MAX:
            self._due[:] = sorted(entry for entry in self._due if entry[2].left and entry[2].due_us == entry[0])

    def postpone(self, run: Run, due_us: int) -> None:
        """Moves the timer of a run without a transmission."""
        run.due_us = due_us
        self._arm(run)

    def next_due_us(self) -> int | None:
        """Tells when the earliest timer runs out."""
        heap = self._due
        while heap:
            due_us, _, run = heap[0]
            if run.left and run.due_us == due_us:
                return due_us
            heappop(heap)
        return None

    def pop_due(self, now_us: int) -> list[Run]:
        """Takes out the runs whose timer has run out; each must be repeated, postponed or dropped."""
        runs: list[Run] = []
        while (due_us := self.next_due_us()) is not None and due_us <= now_us:
            run = heappop(self._due)[2]
            run.due_us = _USED_UP
            runs.append(run)
        return runs
