"""One unfinished message on its way in: its grid, the parts that came, and what to tell the sender.

The grid is known as soon as a part has come that does not end at the total. Before that one last part is kept aside.
Bodies are kept in the pieces in which they came, so memory grows with what was received. A message that comes in
bursts gets its final buffer as soon as all such buffers together are within their bound.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from fairway.core.events import Address
from fairway.core.machine import Buffer
from fairway.protocols.rup import assembly
from fairway.protocols.rup.feedback import Requests
from fairway.protocols.rup.options import PARTS_MAX, RupOptions
from fairway.protocols.rup.parts import Parts

if TYPE_CHECKING:
    from fairway.protocols.rup.columns import Bursts
    from fairway.protocols.rup.conversation import Conversation

PART_OVERHEAD_BYTES = 96
"""What keeping one part costs beside its body: counted, so that many tiny parts do not slip under the bound."""


class Incoming:
    """The state of one unfinished message."""

    __slots__ = (
        "_ack_policy", "_assembly", "_confirm_at", "_confirmed_at", "_last", "_options", "_pieces", "address",
        "arrived", "confirm_due_us", "conversation", "heard_us", "held_bytes", "identity", "last_position", "last_us",
        "part_bytes", "part_count", "parts", "requests", "serial", "spooled", "total",
    )  # fmt: skip

    def __init__(
        self, conversation: Conversation, identity: bytes, total: int, options: RupOptions, serial: int
    ) -> None:
        self.serial = serial
        self.conversation = conversation
        self.address: Address = conversation.peer.address
        self.identity = identity
        self.total = total
        self.spooled = 0 < options.spool_above_bytes < total
        self.part_bytes = 0
        """0 while the grid is unknown."""
        self.part_count = 0
        self.parts = Parts()
        self.requests = Requests(options, conversation.pace)
        self.last_position = -1
        """Where the last part that is kept aside begins; -1 when none is."""
        self.last_us = 0
        self.held_bytes = 0
        self.heard_us = 0
        """When the latest part came that was not here."""
        self.arrived = 0
        self.confirm_due_us: int | None = None
        self._ack_policy = conversation.ack_policy
        self._confirmed_at = 0
        self._confirm_at = self._ack_policy.step(len(conversation.incoming) + 1)
        """The numbers of arrivals at which a confirm left and at which the next leaves at once."""
        self._last = b""
        self._pieces: dict[int, bytes] = {}
        """Bodies by the index of their first part, while there is no assembly."""
        self._assembly: assembly.Assembly | None = None
        self._options = options

    @property
    def mark(self) -> int:
        """Everything below this position has arrived."""
        return self.parts.mark * self.part_bytes

    @property
    def last_start(self) -> int:
        """Where the last part begins."""
        return (self.part_count - 1) * self.part_bytes

    # The grid.

    def fault(self, position: int, size: int, total: int) -> str:
        """Name the rule that a part breaks, or return an empty string."""
        if total != self.total:
            return "total_differs"
        if position + size < total:
            if self.part_bytes == 0:
                return grid_fault(position, size, total)
            return "" if size == self.part_bytes and position % size == 0 else "off_grid"
        if self.part_bytes:
            return "" if position == self.last_start else "off_grid"
        return "" if self.last_position in {-1, position} else "off_grid"

    def is_duplicate(self, position: int) -> bool:
        """Return whether this part, which breaks no rule, is here already."""
        if self.part_bytes == 0:
            return position == self.last_position
        return position // self.part_bytes in self.parts

    def learn_grid(self, part_bytes: int) -> bool:
        """Fix the grid; return whether the last part that was kept aside, if any, fits it."""
        self.part_bytes = part_bytes
        self.part_count = -(-self.total // part_bytes)
        return self.last_position in {-1, self.last_start}

    def keep_last(self, position: int, body: bytes, now_us: int) -> None:
        """Keep a last part aside until the grid is known; part 0 is certainly missing."""
        self.last_position = position
        self.last_us = now_us
        self._last = body
        self.held_bytes += cost(len(body), 1)
        self.requests.expect_first(now_us)

    def take_last(self) -> bytes:
        """Return the last part that was kept aside."""
        body, self._last = self._last, b""
        self.last_position = -1
        self.held_bytes -= cost(len(body), 1)
        return body

    # Parts.

    def would_complete(self, position: int, size: int) -> bool:
        """Return whether this new part makes the message whole, together with a last part kept aside that fits."""
        if self.part_bytes:
            return self.parts.count + 1 == self.part_count
        return position == 0 and self.last_position == size and self.total <= 2 * size

    @property
    def is_complete(self) -> bool:
        return self.part_bytes > 0 and self.parts.count == self.part_count

    def add(self, index: int, body: bytes, now_us: int) -> bool:
        """Keep a new part; return whether it closed a gap, so that the mark moved over parts that were here."""
        mark = self.parts.mark
        self.parts.add(index, 1, now_us)
        if not self.spooled:
            self._put(index, body)
            self.held_bytes += cost(len(body), 1)
        return index == mark and self.parts.mark > index + 1

    def _put(self, index: int, body: bytes) -> None:
        if self._assembly is None:
            self._pieces[index] = body
        else:
            start = index * self.part_bytes
            self._assembly.view[start : start + len(body)] = body

    def put_burst(self, first: int, count: int, data: Buffer, row: int, bursts: Bursts) -> None:
        """Keep the bodies of new parts that are the datagrams of a super-buffer from `row` on."""
        part_bytes = self.part_bytes
        self.held_bytes += cost(count * part_bytes, count)
        if self._assembly is None:
            self._pieces[first] = bursts.bodies(data, part_bytes, row, count)
        else:
            bursts.put_bodies(self._assembly.view, first * part_bytes, data, part_bytes, row, count)

    @property
    def reserved_bytes(self) -> int:
        """What the message's final buffer takes, 0 while it has none."""
        return 0 if self._assembly is None else self.total

    def assemble(self) -> None:
        """Give the message its final buffer, if there can be one, and move what is here into it."""
        self._assembly = assembly.begin(self.total)
        if self._assembly is not None:
            pieces, self._pieces = self._pieces, {}
            for index, body in pieces.items():
                self._put(index, body)

    def body(self) -> bytes:
        """Return the whole message, and keep nothing of it."""
        placed, pieces = self._assembly, self._pieces
        self.let_go()
        if placed is not None:
            return placed.finish()
        return b"".join([pieces[first] for first in sorted(pieces)])

    def let_go(self) -> None:
        """Free what was received: a timer that is long cleared may keep this object for a while."""
        self._assembly = None
        self._pieces = {}
        self._last = b""

    # Confirms.

    def count_arrivals(self, count: int, now_us: int) -> bool:
        """Count arrived parts, duplicates too, and arm a confirm; return whether it is due at once."""
        self.arrived += count
        if self.confirm_due_us is None:
            self.confirm_due_us = now_us + self._options.confirm_after_us
        if self.arrived < self._confirm_at:
            return False
        self._ack_policy.kept_pace()
        return True

    def stood_still(self) -> None:
        """Note that a confirm is due by time."""
        self._ack_policy.stood_still(self.arrived - self._confirmed_at)

    def count_burst(self, count: int, now_us: int) -> list[int]:
        """Count arrived parts; list after how many of them a confirm leaves."""
        start, end, leaving = self.arrived, self.arrived + count, []
        while self._confirm_at <= end:
            self.arrived = self._confirm_at
            leaving.append(self.arrived - start)
            self._ack_policy.kept_pace()
            self.confirmed()
        self.arrived = end
        self.heard_us = now_us
        if self.confirm_due_us is None and self._confirmed_at < end:
            self.confirm_due_us = now_us + self._options.confirm_after_us
        return leaving

    def confirmed(self) -> None:
        """Note that a confirm has left."""
        self.confirm_due_us = None
        self._ack_policy.left(self.arrived - self._confirmed_at)
        self._confirmed_at = self.arrived
        self._confirm_at = self.arrived + self._ack_policy.step(len(self.conversation.incoming))

    # Timers.

    def due_us(self) -> int:
        """Return when something is to be done for this message."""
        due_us = self.heard_us + self._options.unfinished_us
        if self.confirm_due_us is not None:
            due_us = min(due_us, self.confirm_due_us)
        request_us = self.requests.next_us(self.parts)
        return due_us if request_us is None else min(due_us, request_us)


def cost(body_bytes: int, parts: int) -> int:
    """Count the memory that parts take."""
    return body_bytes + parts * PART_OVERHEAD_BYTES


def grid_fault(position: int, size: int, total: int) -> str:
    """Name the rule that a part, which is not a last one, breaks as the first of its message."""
    if position % size:
        return "off_grid"
    return "too_many_parts" if -(-total // size) > PARTS_MAX else ""


class Memory:
    """Bytes of unfinished messages, per peer and in all, and which of them may grow when those are at their bound.

    Messages that fit one by one may not fit together. If at the bound all of them stopped, none would ever be complete;
    so the oldest goes on, above the bound, and when it is complete or forgotten it leaves what it held to the others.
    At the bound of one peer that is the oldest of this peer, at the bound of all the oldest of all, which is also the
    oldest of its peer: there is always one that nothing stops, and what exceeds a bound belongs to one message. Spooled
    messages keep nothing but a last part, for a while.
    """

    def __init__(self, options: RupOptions) -> None:
        self._options = options
        self._all: OrderedDict[Incoming, None] = OrderedDict()
        self._of_peer: dict[Conversation, dict[Incoming, None]] = {}
        """Messages that are kept, the oldest first."""
        self.held_bytes = 0
        self.reserved_bytes = 0
        """What the final buffers of unfinished messages take: address space, of which they use what was received."""

    def admits(self, conversation: Conversation | None, more: int) -> bool:
        """Return whether a message may begin with so many bytes."""
        own = 0 if conversation is None else conversation.incoming_bytes
        return (
            self.held_bytes + more <= self._options.incoming_bytes_max
            and own + more <= self._options.incoming_bytes_per_peer_max
        )

    def lets_grow(self, message: Incoming, more: int) -> bool:
        """Return whether a message that was begun may take so many more bytes."""
        conversation = message.conversation
        if self.held_bytes + more > self._options.incoming_bytes_max and next(iter(self._all)) is not message:
            return False
        return (
            conversation.incoming_bytes + more <= self._options.incoming_bytes_per_peer_max
            or next(iter(self._of_peer[conversation])) is message
        )

    def begin(self, message: Incoming) -> None:
        """Add a message that is younger than all others."""
        if not message.spooled:
            self._all[message] = None
            self._of_peer.setdefault(message.conversation, {})[message] = None

    def count(self, message: Incoming, held_before: int) -> None:
        """Count a change of what a message holds."""
        more = message.held_bytes - held_before
        message.conversation.incoming_bytes += more
        self.held_bytes += more

    def reserve(self, message: Incoming) -> None:
        """Give a message its final buffer, if all such buffers together are within their bound."""
        if not message.reserved_bytes and self.reserved_bytes + message.total <= self._options.incoming_bytes_max:
            message.assemble()
            self.reserved_bytes += message.reserved_bytes

    def end(self, message: Incoming) -> None:
        """Remove a message that is complete or forgotten."""
        conversation = message.conversation
        conversation.incoming_bytes -= message.held_bytes
        self.held_bytes -= message.held_bytes
        self.reserved_bytes -= message.reserved_bytes
        if not message.spooled:
            del self._all[message]
            del self._of_peer[conversation][message]
            if not self._of_peer[conversation]:
                del self._of_peer[conversation]
