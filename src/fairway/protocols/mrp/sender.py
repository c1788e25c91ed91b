"""What one direction of a connection sends: the queue, the packets in flight, and how many more may leave.

Numbers are widened sequences. `base` is the lowest that is not acknowledged, `next` the one that the next new message
takes. New packets leave while four limits allow it: the congestion controller, the window counted from
`base` (a receiver drops what lies beyond it), the half turn within an interval, and the queue.

A lost packet holds `base` for two round trips. With a whole window in flight every loss would stop the sender for one
of them, with half of it the sender goes on while the hole is repaired; so the controller gets half of a large window.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from fairway.core.congestion import make_controller
from fairway.core.flight import Acknowledged, Flight, Run
from fairway.protocols.mrp.options import MrpOptions
from fairway.protocols.mrp.resend import Resend
from fairway.protocols.mrp.starts import Starts

INTERVAL_DELAYS = 4
"""The half turn is counted over at least so many resend delays."""


HALVED_FROM = 32
"""Smaller windows are used whole: with a few packets in flight a loss is noticed by its timer anyway."""


def in_flight_max(window: int) -> int:
    """Tells how many packets of a window may be unacknowledged at once."""
    return window if window < HALVED_FROM else window // 2


class Queued:
    """Messages of one call of `send_many` that have not left yet."""

    __slots__ = ("bodies", "position", "token", "uniform")

    def __init__(self, token: int, bodies: Sequence[bytes], uniform: bool) -> None:
        self.token = token
        """The token of the first body; those of the others follow."""
        self.bodies = bodies
        self.position = 0
        self.uniform = uniform
        """Whether all bodies have the same size."""

    def __len__(self) -> int:
        return len(self.bodies) - self.position

    def take(self, most: int) -> tuple[int, Sequence[bytes]]:
        """Takes out up to `most` messages of equal size, with the token of the first."""
        start = self.position
        end = min(len(self.bodies), start + most)
        if not self.uniform:
            size = len(self.bodies[start])
            end = next((place for place in range(start, end) if len(self.bodies[place]) != size), end)
        self.position = end
        return self.token + start, self.bodies[start:end]


class Sender:
    """One direction of one connection, as seen by the side that sends."""

    __slots__ = (
        *("_options", "_starts", "base", "bytes", "controller", "flight", "last", "messages", "next", "peak", "queue"),
        *("resend", "silent_below", "writable_wanted"),
    )

    def __init__(self, options: MrpOptions, first: int) -> None:
        self._options = options
        self.queue: deque[Queued] = deque()
        self.flight = Flight()
        self.controller = make_controller(options.controller, in_flight_max(options.window))
        self.resend = Resend(
            initial_us=options.resend_initial_us, min_us=options.resend_min_us, max_us=options.resend_max_us
        )
        longest_us = max(options.start_interval_us, INTERVAL_DELAYS * options.resend_max_us)
        self._starts = Starts(options.starts_max, longest_us)
        self.base = first
        self.next = first
        self.messages = 0
        """Messages without an outcome, queued and in flight."""
        self.bytes = 0
        self.peak = 0
        """Packets in flight when the latest left: whether the window was used, asked after some came back."""
        self.last: tuple[int, bytes] | None = None
        """The highest acknowledged packet, number and datagram: what keeps the connection alive."""
        self.writable_wanted = False
        self.silent_below = 0
        """Packets below this number were sent before a restart: nobody waits for their outcome."""

    @property
    def queued(self) -> int:
        return self.messages - len(self.flight)

    def room(self) -> int:
        """Tells how many more messages the queue takes, as far as their number decides."""
        if self.bytes >= self._options.send_queue_bytes_max:
            return 0
        return self._options.send_queue_messages_max - self.messages

    def fits(self, size: int, *, alone: bool) -> bool:
        """Tells whether the queue takes so many bytes; an empty queue takes any message that comes alone."""
        if self.room() <= 0:
            return False
        return (alone and not self.messages) or self.bytes + size <= self._options.send_queue_bytes_max

    def enqueue(self, queued: Queued, size: int) -> None:
        """Takes messages of `size` bytes in all."""
        self.queue.append(queued)
        self.messages += len(queued)
        self.bytes += size

    def may_leave(self, now_us: int) -> int:
        """Tells how many new packets may leave now."""
        if not self.queue:
            return 0
        in_flight = self.flight.left
        most = min(self.messages - in_flight, self.base + self._options.window - self.next)
        if most > 0:
            most = min(most, self.controller.room(in_flight, now_us))
        return min(most, self._starts.room(self._interval_us(), now_us)) if most > 0 else 0

    def may_leave_at_once(self, now_us: int) -> bool:
        """Tells whether one new packet may leave now, past an empty queue."""
        return (
            not self.queue
            and self.next < self.base + self._options.window
            and self.controller.room(self.flight.left, now_us) > 0
            and (self._starts.plenty() or self._starts.room(self._interval_us(), now_us) > 0)
        )

    def left_at_once(self, data: bytes, size: int, token: int, now_us: int, due_us: int) -> None:
        """Takes note of a new packet with a body of `size` bytes that leaves now, past the queue."""
        self.messages += 1
        self.bytes += size
        self.left(1, data, len(data), token, now_us, due_us)

    def next_leave_us(self, now_us: int) -> int | None:
        """Tells when time alone will let the next packet leave."""
        if not self.queue or self.next >= self.base + self._options.window:
            return None
        interval_us = self._interval_us()
        if self._starts.room(interval_us, now_us) <= 0:
            return self._starts.next_room_us(interval_us, now_us)
        return self.controller.next_room_us(len(self.flight), now_us)

    def _interval_us(self) -> int:
        return max(self._options.start_interval_us, INTERVAL_DELAYS * self.resend.delay_us)

    def take(self, most: int) -> tuple[int, Sequence[bytes]]:
        """Takes the next messages of equal size out of the queue, with the token of the first."""
        queued = self.queue[0]
        if len(queued.bodies) == 1:
            self.queue.popleft()
            return queued.token, queued.bodies
        token, bodies = queued.take(most)
        if not queued:
            self.queue.popleft()
        return token, bodies

    def left(self, count: int, data: bytes, segment_bytes: int, token: int, now_us: int, due_us: int) -> None:
        """Takes note of new packets that leave now."""
        if count == 1:
            self.flight.add_one(self.next, data, token, now_us, due_us)
        else:
            self.flight.add(self.next, count, data, segment_bytes, token, now_us, due_us)
        self.next += count
        self.peak = self.flight.left
        self.controller.sent(count, now_us)
        self._starts.started(count, self._interval_us(), now_us)

    def repeated(self, number: int, now_us: int) -> Run:
        """Takes note that a packet leaves again, and gives its run with the next time-out set."""
        run = self.flight.find(number)
        assert run is not None
        due_us = now_us + self.resend.delay_after_us(run.transmissions + 1)
        self.controller.sent(1, now_us)
        return self.flight.repeat(number, now_us, due_us)

    def acknowledged(self, pieces: Sequence[Acknowledged], header_bytes: int, now_us: int) -> None:
        """Takes note of packets that were taken off the flight, after their round trip was sampled."""
        adapts, ping_us = self._options.controller != "eager", self.resend.ping_us
        for piece in pieces:
            self._settle(piece, header_bytes)
            for _ in range(piece.count if adapts else 0):
                self.controller.acknowledged(1, self.peak, ping_us, now_us)

    def acknowledged_one(self, run: Run, header_bytes: int, now_us: int) -> None:
        """Takes note of a packet that left on its own and was taken off the flight."""
        number = run.first
        self.messages -= 1
        self.bytes -= run.segment_bytes - header_bytes
        if self.last is None or number > self.last[0]:
            self.last = (number, bytes(run.data))
        if number == self.base:
            if number + 1 == self.next:
                self.base = number + 1
            else:
                self._raise_base(number + 1)
        self.controller.acknowledged(1, self.peak, self.resend.ping_us, now_us)

    def _raise_base(self, base: int) -> None:
        """Moves the base to the lowest packet that is not acknowledged, at or above the number given."""
        while base < self.next and base not in self.flight:
            base += 1
        self.base = base

    def _settle(self, piece: Acknowledged, header_bytes: int) -> None:
        run, first, count = piece
        self.messages -= count
        self.bytes -= count * (run.segment_bytes - header_bytes)
        last = first + count - 1
        if self.last is None or last > self.last[0]:
            self.last = (last, bytes(run.datagram(last)))
        if first <= self.base <= last:
            self._raise_base(last + 1)

    def stretches(self, number: int, count: int) -> list[tuple[Run, int]] | None:
        """Cuts a range of packets where the runs of the flight end; None unless all wait and were sent once."""
        found: list[tuple[Run, int]] = []
        end = number + count
        while number < end:
            run = self.flight.find(number)
            if run is None or run.transmissions != 1:
                return None
            start = number - run.first
            length = min(end - number, run.count - start)
            if run.gone is not None and run.gone.count(1, start, start + length):
                return None
            found.append((run, length))
            number += length
        return found

    def oldest_sent_us(self) -> int | None:
        """Tells when the packet that has waited longest first left."""
        run = self.flight.find(self.base) if self.flight else None
        return run.sent_us[0] if run is not None else None

    def outstanding(self) -> list[tuple[int, bytes]]:
        """Lists the unacknowledged packets, number and datagram, in order."""
        found = ((number, self.flight.find(number)) for number in self.flight.waiting())
        return [(number, bytes(run.datagram(number))) for number, run in found if run is not None]

    def revive(self, following: int, outstanding: Sequence[tuple[int, bytes]], header_bytes: int, now_us: int) -> None:
        """Goes on where a sender stood before a restart; what was unacknowledged then is due again at once."""
        self.next = following
        self.silent_below = following
        self.base = outstanding[0][0] if outstanding else following
        for number, datagram in outstanding:
            self.flight.add(number, 1, datagram, len(datagram), 0, now_us, now_us)
            self.messages += 1
            self.bytes += len(datagram) - header_bytes

    def became_writable(self) -> bool:
        """Answers yes once, when a queue that refused a message has a quarter of its room again."""
        if not self.writable_wanted:
            return False
        if 4 * self.messages > 3 * self._options.send_queue_messages_max:
            return False
        if self.messages and 4 * self.bytes > 3 * self._options.send_queue_bytes_max:
            return False
        self.writable_wanted = False
        return True
