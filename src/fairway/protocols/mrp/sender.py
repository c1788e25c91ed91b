"""What one direction of a connection sends: which numbers may leave, and the loss recovery of those that did.

Numbers are widened sequences. `base` is the lowest that is not acknowledged, `next` the one that the next new message
takes. New packets leave while four limits allow it: the congestion controller, the window counted from
`base` (a receiver drops what lies beyond it), the half turn within an interval, and the queue.

A lost packet holds `base` for two round trips. With a whole window in flight every loss would stop the sender for one
of them, with half of it the sender goes on while the hole is repaired; so the controller gets half of a large window.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairway.core.machine import Buffer
from fairway.core.outputs import Outputs
from fairway.core.recovery.congestion import make_controller
from fairway.core.recovery.queue import Backlog, SendQueue
from fairway.core.recovery.recovery import Kind, Recovery
from fairway.core.recovery.runs import NEVER, Run, Stream
from fairway.core.recovery.timing import PingLoss
from fairway.protocols.mrp.options import MrpOptions

if TYPE_CHECKING:
    from fairway.protocols.mrp.connection import Connection


_SLOTS = 32


class Starts:
    """How many sequences may start: at most half a turn of the counter within an interval.

    A duplicate may linger in the network. It is harmless while fewer than half the numbers have been used since: it is
    then recognised as old. Started sequences are counted in slots of a thirty-second of the interval, each taken to
    have happened at its end, so the limit is kept exactly and reached almost.
    """

    __slots__ = ("_in_all", "_longest_us", "_most", "_slots")

    def __init__(self, most: int, longest_us: int) -> None:
        self._most = most
        self._longest_us = longest_us
        """No interval asked about is longer than this, so what is older is forgotten."""
        self._slots: deque[list[int]] = deque()
        """[first started, last started, count], oldest first."""
        self._in_all = 0

    def started(self, count: int, interval_us: int, now_us: int) -> None:
        slots = self._slots
        self._in_all += count
        if slots and (now_us - slots[-1][0]) * _SLOTS <= interval_us:
            slots[-1][1] = now_us
            slots[-1][2] += count
            return
        slots.append([now_us, now_us, count])
        while slots[0][1] <= now_us - self._longest_us or self._in_all - slots[0][2] >= self._most:
            self._in_all -= slots.popleft()[2]

    def room(self, interval_us: int, now_us: int) -> int:
        room = self._most - self._in_all
        if room > 0 and self._in_all * 2 < self._most:
            return room
        return self._most - sum(slot[2] for slot in self._inside(interval_us, now_us))

    def next_room_us(self, interval_us: int, now_us: int) -> int:
        """Return when the oldest slot that counts leaves the interval."""
        inside = self._inside(interval_us, now_us)
        return (inside[-1][1] if inside else now_us) + interval_us

    def _inside(self, interval_us: int, now_us: int) -> list[list[int]]:
        """List the slots that lie within the interval, newest first."""
        inside: list[list[int]] = []
        for slot in reversed(self._slots):
            if slot[1] <= now_us - interval_us:
                break
            inside.append(slot)
        return inside


INTERVAL_DELAYS = 4
"""The half turn is counted over at least so many resend delays."""
HALVED_FROM = 32
"""Smaller windows are used whole: with a few packets in flight a loss is noticed by its timer anyway."""


def in_flight_max(window: int) -> int:
    return window if window < HALVED_FROM else window // 2


class Sender:
    """One direction of one connection, as seen by the side that sends."""

    __slots__ = (
        "_connection", "_options", "_outputs", "_starts", "backlog", "base", "last", "next", "packets", "recovery",
        "silent_below", "timing", "waiting",
    )  # fmt: skip

    def __init__(
        self, connection: Connection, options: MrpOptions, outputs: Outputs[Connection], recovery: type[Recovery]
    ) -> None:
        self._connection = connection
        self._options = options
        self._outputs = outputs
        self.timing = PingLoss(initial_us=options.rto_initial_us, min_us=options.rto_us_min, max_us=options.rto_us_max)
        self.recovery = recovery(
            Kind(ordered=True, backoff_us_max=options.rto_us_max, stall_us=options.stall_us),
            self.timing,
            make_controller(options.controller, in_flight_max(options.window)),
            outputs.statistics,
        )
        self.packets = Stream()
        """Packets without an acknowledgement."""
        self.waiting = SendQueue()
        self.backlog = Backlog(options, outputs, connection.peer)
        self._starts = Starts(options.starts_max, max(options.start_interval_us, INTERVAL_DELAYS * options.rto_us_max))
        self.base = options.first_sequence
        self.next = options.first_sequence
        self.last: tuple[int, bytes] | None = None
        """The highest acknowledged packet, number and datagram: what keeps the connection alive."""
        self.silent_below = 0
        """Packets below this number were sent before a restart: nobody waits for their outcome."""

    # What leaves.

    def queue(self, bodies: Sequence[Buffer], token: int, now_us: int, *, equal: bool) -> None:
        self.backlog.add(len(bodies), sum(map(len, bodies)))
        self.waiting.add(bodies, token, equal=equal)
        self._outputs.ready[self._connection] = now_us

    def may_leave(self, now_us: int) -> int:
        """Return how many of the queued messages may leave now."""
        most = min(self.waiting.messages, self.base + self._options.window - self.next)
        if most > 0:
            most = min(most, self.recovery.room(now_us))
        return min(most, self._starts.room(self._interval_us(), now_us)) if most > 0 else 0

    def next_leave_us(self, now_us: int) -> int:
        """Return when time alone lets the next packet leave; `NEVER` if only an acknowledgement can."""
        if not self.recovery.has_lost:
            if not self.waiting.messages or self.next >= self.base + self._options.window:
                return NEVER
            interval_us = self._interval_us()
            if self._starts.room(interval_us, now_us) <= 0:
                return self._starts.next_room_us(interval_us, now_us)
        return self.recovery.next_room_us(now_us)

    def _interval_us(self) -> int:
        least_us, some_us = self._options.start_interval_us, INTERVAL_DELAYS * self.timing.delay_us
        return some_us if some_us > least_us else least_us

    def left(self, count: int, data: bytes, segment_bytes: int, token: int, now_us: int) -> None:
        self.recovery.sent(self.packets, self.next, count, now_us, data, segment_bytes, token)
        self.next += count
        self._starts.started(count, self._interval_us(), now_us)

    # What comes back.

    def acknowledged(self, run: Run, first: int, count: int) -> None:
        """Take packets that the recovery took off as acknowledged; `advance` follows the last of them."""
        last = first + count - 1
        if self.last is None or last > self.last[0]:
            start = (last - run.base) * run.segment_bytes
            self.last = (last, bytes(run.data[start : start + run.segment_bytes]))
        if first <= self.base <= last:
            self.base = last + 1

    def advance(self) -> None:
        """Move on over what was acknowledged before."""
        base, find = self.base, self.packets.find
        while base < self.next and find(base) is None:
            base += 1
        self.base = base

    def end(self, reason: str) -> None:
        """Give everything without an outcome its own: unknown if it was transmitted, else refused."""
        self.backlog.close()
        runs = [run for run in self.recovery.withdraw(self.packets) if run.first >= self.silent_below]
        if runs:
            self.backlog.unknown([token for run in runs for token in run.tokens], 0, reason)
        for tokens, _ in self.waiting.clear():
            self.backlog.refused(tokens, 0)
        self.backlog.settle(self.backlog.messages, self.backlog.bytes)

    # What survives a restart.

    def outstanding(self) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        for run in self.packets.runs():
            data, size = bytes(run.datagrams()), run.segment_bytes
            found.extend((run.first + index, data[index * size : (index + 1) * size]) for index in range(run.count))
        return found

    def revive(self, following: int, outstanding: Sequence[tuple[int, bytes]], header_bytes: int, now_us: int) -> None:
        """Go on where a sender stood before a restart; what was unacknowledged then leaves again now."""
        self.next = self.silent_below = following
        self.base = outstanding[0][0] if outstanding else following
        for number, datagram in outstanding:
            self.recovery.sent(self.packets, number, 1, now_us, datagram, len(datagram))
            self.backlog.add(1, len(datagram) - header_bytes)
