"""How many streams a peer takes at a time, as far as its answers show.

A peer may ignore streams in silence when it has too many unfinished ones. So only a few of several packets are begun
ahead of the first answer: one more for each that is answered, half as many when one turns out to be ignored. One that
is ignored still counts among the few, unless it is hopeless: otherwise new streams would take each slot that becomes
free before it.

*In a row.* A path keeps the order. So a peer that takes one stream at a time takes all of them, as fast as any other,
if each leaves whole before the next. How many it takes (`width`) is not known before it has ignored one that left while
others had left in part: it takes no more than those. (If there were none, all of the stream may have been lost.) From
then on a stream is begun, or leaves again, only while fewer are in that state. One that is answered while so many
others are unfinished shows that the peer takes more; and now and then one more is tried.
"""

from __future__ import annotations

from fairway.core.recovery.runs import Stream

AHEAD_INITIAL = 8
"""Streams of several packets that are begun before the peer has said anything about them."""
MANY = 64
"""So many packets are answered by their number."""
TELLING_MAX = 3
"""A stream that was ignored more often, although there seemed to be room, says nothing about the room."""
UNBOUNDED = 1 << 30
ONE_MORE_AFTER_US = 1_000_000
"""When nothing was ignored for so long, one stream more than the peer is known to take is begun."""


class Slots:
    """The streams that were begun towards one peer, and how many it seems to have room for."""

    __slots__ = (
        "_ahead", "_ahead_max", "_cut_us", "_open", "_partial", "_unanswered", "_width", "hopeless", "ignored",
        "left_us", "longest", "many_left",
    )  # fmt: skip

    def __init__(self, ahead_max: int) -> None:
        self._ahead = min(AHEAD_INITIAL, ahead_max)
        self._ahead_max = ahead_max
        self._cut_us = 0
        """When a stream was last found to be ignored."""
        self._unanswered: set[int] = set()
        """Serials of streams that were begun and not answered; of one packet only those that the peer ignored."""
        self.ignored = 0
        """Those of them that the peer ignores."""
        self.hopeless = 0
        """Those that it seems never to take."""
        self.longest = 0
        """The most packets of a stream that the peer has answered."""
        self._open: set[int] = set()
        """Serials of streams that the peer has answered and not acknowledged whole."""
        self._partial: set[int] = set()
        """Those that have left in part, without those that are ignored."""
        self.left_us = 0
        """When more of a stream last left, but not the end."""
        self.many_left = False
        """Whether so much of it has left that the peer does not hold back its answer."""
        self._width = UNBOUNDED
        """How many unfinished streams the peer takes at a time."""

    @property
    def offered(self) -> int:
        """Streams that may have no answer only because it is under way."""
        return len(self._unanswered) - self.ignored

    @property
    def ahead(self) -> int:
        """How many more streams that the peer ignored may leave again."""
        return self._ahead - self.offered

    @property
    def has_open(self) -> bool:
        """Whether the peer has begun a stream and not finished it."""
        return bool(self._open)

    @property
    def is_bounded(self) -> bool:
        """Whether the peer is known to take only so many streams at a time."""
        return self._width < UNBOUNDED

    @property
    def is_full(self) -> bool:
        """Whether the peer has begun as many streams as it takes at a time."""
        return len(self._open) >= self._width

    @property
    def is_awaited(self) -> bool:
        """Whether streams that the peer ignored wait to leave again, before any other is begun."""
        return self.ignored > self.hopeless

    @property
    def is_overdrawn(self) -> bool:
        """Whether more were begun than may be ahead, so that those which the peer ignored would wait for the others."""
        return self.is_awaited and (self.is_bounded or len(self._unanswered) - self.hopeless > self._ahead)

    def is_free(self, now_us: int) -> bool:
        """Return whether the peer has room for another stream, as far as is known."""
        return len(self._open | self._partial) < self._limit(now_us)

    def _limit(self, now_us: int) -> int:
        return self._width + (now_us >= self._cut_us + ONE_MORE_AFTER_US)

    def may_begin(self, stream: Stream) -> bool:
        """Return whether a stream may be begun now."""
        if self.is_bounded and self.is_awaited:
            return False
        return stream.last == 0 or len(self._unanswered) - self.hopeless < self._ahead

    def may_leave(self, now_us: int, answer_us: int) -> bool:
        """Return whether the first packet of another stream may leave now: at the peer it follows what has left.

        While the peer has ignored none, it may still be one that takes one stream at a time. So one that left in part
        and waits for its first answer is given that time, unless the peer is known not to answer all.
        """
        if self.is_bounded:
            return not self.is_awaited and len(self._partial) < self._limit(now_us)
        is_answered = self.hopeless > 0 or not self.longest or self._partial <= self._open
        return is_answered or now_us >= self.left_us + answer_us

    def begin(self, stream: Stream) -> None:
        if stream.last > 0:
            self._unanswered.add(stream.serial)

    def left(self, stream: Stream, first: int, end: int) -> None:
        """Take that packets of a stream leave for the first time."""
        if first == 0:
            stream.behind = len(self._partial)
        stream.partial = end <= stream.last
        if stream.partial:
            self._partial.add(stream.serial)
            self.left_us = stream.left_us
            self.many_left = end >= MANY
        else:
            self._partial.discard(stream.serial)

    def answered(self, stream: Stream) -> None:
        """Take the first answer to a stream."""
        self._unanswered.discard(stream.serial)
        self.longest = max(self.longest, stream.last + 1)
        self._open.add(stream.serial)
        self._ahead = min(self._ahead + 1, self._ahead_max)
        if self.is_bounded:
            self._width = max(self._width, len(self._open))

    def widen(self, count: int) -> None:
        """Let more streams begin because none was answered: perhaps the peer takes none of the first."""
        self._ahead = min(len(self._unanswered) + count, self._ahead_max)

    def ignore(self, stream: Stream, now_us: int) -> None:
        """Take that the peer ignores a stream, and would take it at another time unless it is hopeless."""
        stream.ignored = True
        self.ignored += 1
        self._unanswered.add(stream.serial)
        self._partial.discard(stream.serial)
        self.hopeless += stream.is_hopeless
        if stream.attempts > TELLING_MAX:
            return
        if stream.left_us >= self._cut_us:  # what left before tells of the same lack of room
            self._ahead = max(1, self._ahead // 2)
            self._cut_us = now_us
        if stream.behind and self.longest:
            self._width = min(self._width, stream.behind)

    def heed(self, stream: Stream) -> None:
        """Take that a stream is ignored no more."""
        stream.ignored = False
        self.ignored -= 1
        self.hopeless -= stream.is_hopeless
        stream.behind = len(self._partial)
        if stream.partial:
            self._partial.add(stream.serial)

    def ended(self, stream: Stream) -> None:
        """Take that a stream is acknowledged whole, or given up."""
        self._unanswered.discard(stream.serial)
        self._open.discard(stream.serial)
        self._partial.discard(stream.serial)
