"""One message on its way out: what was sent of it, what is confirmed, and what is still in the network.

Parts leave in rising order, so a few marks say everything that a table would:

    0 ... confirmed ... landed ... cursor ... sent ... part_count
                        |<- in flight ->|

`cursor` is the next part to leave; it lies below `sent` only while a lost tail is sent again. A confirm is cumulative,
so one missing part hides all that came after it. But a request tells that a later part has come, and so that all parts
before that one are no longer in the network (`landed`): the window does not wait for them. Where the receiver may ask
for no more, time tells: while a request is open, what left longer than a time-out ago has landed too. (A round trip
instead of the time-out would be too bold: under loss there are few samples, the queue grows unseen, and the flight
with it, until the queue overflows.)
"""

from __future__ import annotations

from collections import deque

from fairway.core.events import Address
from fairway.core.machine import Buffer

QUICK_REPEATS_MAX = 3
TRANSMISSIONS_WITH_ONE_REPAIR = 2

UNKNOWN_US = -1
"""The time of a transmission that is no longer told apart from others."""


class Outgoing:
    """The state of one message that is being sent."""

    __slots__ = (
        "_landing",
        "_sent_runs",
        "address",
        "backoffs",
        "body",
        "confirmed",
        "cursor",
        "heard_us",
        "holes",
        "identity",
        "in_round",
        "landed",
        "part_bytes",
        "part_count",
        "probe_sent_us",
        "probing",
        "queued_us",
        "quick_repeats",
        "repaired_us",
        "repeats",
        "sent",
        "serial",
        "timer_us",
        "token",
        "total",
    )

    def __init__(self, token: int, address: Address, identity: bytes, body: Buffer, now_us: int, serial: int) -> None:
        self.serial = serial
        self.token = token
        self.address = address
        self.identity = identity
        self.body = body
        self.total = len(body)
        self.part_bytes = 0
        self.part_count = 0
        self.confirmed = 0
        self.landed = 0
        self.cursor = 0
        self.sent = 0
        self.probing = False
        """A time-out's repeat is out: nothing else of this message leaves before the peer says something."""
        self.queued_us = now_us
        self.in_round = False
        """It is in its sender's round of messages that have something to send."""
        self.probe_sent_us = UNKNOWN_US
        """When the part that a time-out repeats left for the first time."""
        self.backoffs = 0
        self.heard_us = 0
        """When the peer was last heard of about this message, or something first waited for it."""
        self.timer_us = 0
        """From when the time-out counts."""
        self.repaired_us = 0
        """When a part that the receiver asked for last left."""
        self.quick_repeats = 0
        """Repeats before the time-out since the peer was last heard of about this message."""
        self.repeats: dict[int, tuple[int, int]] = {}
        """Parts sent more than once and not confirmed: how often, and when last."""
        self.holes: dict[int, None] = {}
        """Parts that the receiver asked for and has not confirmed."""
        self._sent_runs: deque[tuple[int, int]] = deque()
        """End and time of what left together, in rising order, until it is confirmed."""
        self._landing: deque[tuple[int, int]] = deque()

    def begin(self, part_bytes: int, now_us: int) -> None:
        """Fixes the grid; from here on the peer's silence counts."""
        self.cut(part_bytes)
        self.heard_us = self.timer_us = now_us

    def cut(self, part_bytes: int) -> None:
        """Chooses the grid of a message of which nothing was sent."""
        self.part_bytes = max(1, min(part_bytes, self.total))
        self.part_count = max(1, -(-self.total // self.part_bytes))

    @property
    def in_flight(self) -> int:
        confirmed, landed = self.confirmed, self.landed
        return self.cursor - (confirmed if confirmed > landed else landed)

    @property
    def is_waiting(self) -> bool:
        """Tells whether something was sent that is not confirmed."""
        return self.sent > self.confirmed

    @property
    def is_confirmed(self) -> bool:
        return self.confirmed == self.part_count

    @property
    def quick_repeats_left(self) -> int:
        """Counts the repeats that may leave before the time-out: of what was asked for, or of the end, which nobody
        can ask for. A message of one part has none: it may wait for its commit."""
        if self.probing or self.part_count == 1 or not self.is_waiting:
            return 0
        quick_max = QUICK_REPEATS_MAX if self.holes else int(self.cursor == self.part_count)
        return quick_max - self.quick_repeats

    def sendable(self, outstanding_max: int) -> int:
        """Counts the parts that may leave as far as this message is concerned."""
        if self.probing:
            return 0
        return min(self.part_count, self.confirmed + outstanding_max) - self.cursor

    def slice_of(self, first: int, count: int) -> Buffer:
        """Gives the bodies of parts as one piece, without a copy."""
        if self.part_count == 1:
            return self.body
        return memoryview(self.body)[first * self.part_bytes : (first + count) * self.part_bytes]

    def note_sent(self, count: int, now_us: int) -> int:
        """Moves the cursor over parts that leave now; tells how many of them are repeats."""
        if self.sent <= self.confirmed:
            self.heard_us = self.timer_us = now_us
        cursor, end = self.cursor, self.cursor + count
        repeated = min(end, self.sent) - cursor
        for index in range(cursor, cursor + repeated):
            self.note_repeat(index, now_us)
        self.cursor = end
        self.sent = max(self.sent, end)
        run = (end, now_us)
        self._sent_runs.append(run)
        self._landing.append(run)
        return repeated

    def note_repeat(self, index: int, now_us: int) -> int:
        """Takes note that a part leaves again; tells how often it has left."""
        times = self.repeats.get(index, (1, 0))[0] + 1
        self.repeats[index] = (times, now_us)
        return times

    def sent_us_of(self, index: int) -> int:
        """Tells when a part last left, or `UNKNOWN_US`."""
        repeat = self.repeats.get(index)
        if repeat is not None:
            return repeat[1]
        return next((sent_us for end, sent_us in self._sent_runs if index < end), UNKNOWN_US)

    def was_repaired_once_before(self, index: int, before_us: int) -> bool:
        """Tells whether a part was sent twice in all, the second time before that time."""
        times, sent_us = self.repeats.get(index, (1, 0))
        return times == TRANSMISSIONS_WITH_ONE_REPAIR and sent_us < before_us

    @property
    def oldest_us(self) -> int:
        """When the first unconfirmed part left, if it was not repeated, or `UNKNOWN_US`."""
        return self._sent_runs[0][1] if self._sent_runs else UNKNOWN_US

    def confirm(self, index: int, now_us: int) -> int | None:
        """Takes note that all parts below `index` have arrived; gives a round trip if one was measured.

        None is measured when one of those parts was repeated: the confirm may have waited for the repeat.
        """
        clean = not self.repeats
        if not clean:
            clean = not any(part < index for part in self.repeats)
            self.repeats = {part: repeat for part, repeat in self.repeats.items() if part >= index}
            self.holes = {part: None for part in self.holes if part >= index}
        sent_us = self._take_runs(index)
        landing = self._landing
        while landing and landing[0][0] <= index:
            landing.popleft()
        self.confirmed = index
        self.cursor = max(self.cursor, index)
        self.backoffs = 0
        return now_us - sent_us if clean and sent_us >= 0 else None

    def _take_runs(self, index: int) -> int:
        """Takes off what left before part `index`, and tells when the part before it left."""
        runs, sent_us = self._sent_runs, UNKNOWN_US
        while runs and runs[0][0] < index:
            runs.popleft()
        if runs:
            sent_us = runs[0][1]
            if runs[0][0] == index:
                runs.popleft()
        return sent_us

    def overtaken(self, index: int) -> None:
        """Takes note that a part was asked for: one that left later has come, so all before that one have landed."""
        landed = min(index + 2, self.cursor)
        if landed > self.landed:
            self.landed = landed
            landing = self._landing
            while landing and landing[0][0] <= landed:
                landing.popleft()

    def land(self, before_us: int) -> None:
        """Takes what left before that time out of the flight, if the receiver has asked for something missing."""
        landing = self._landing
        while self.holes and landing and landing[0][1] < before_us:
            self.landed = max(self.landed, landing.popleft()[0])

    def next_landing_us(self) -> int | None:
        """Tells when the earliest part left that may yet land, if the receiver has asked for something missing."""
        return self._landing[0][1] if self.holes and self._landing else None

    def time_out(self, now_us: int) -> None:
        """Takes note that the first unconfirmed part is repeated and that all others are taken for lost."""
        if self.backoffs == 0:
            self.probe_sent_us = self.sent_us_of(self.confirmed)
        self.probing = True
        self.backoffs += 1
        self.timer_us = now_us
        self.landed = 0
        self.cursor = self.confirmed + 1
        self._sent_runs = deque([(self.cursor, now_us)])
        self._landing = deque([(self.cursor, now_us)])

    def go_on(self, *, from_here: bool) -> None:
        """Ends the wait after a time-out: sends the rest again from the mark on, or trusts requests to name it."""
        self.probing = False
        if not from_here:
            self.cursor = self.landed = self.sent
            self._sent_runs.append((self.sent, UNKNOWN_US))
