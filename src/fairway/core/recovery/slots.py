"""How many streams a peer takes at a time, as far as its answers show.

A peer may ignore streams in silence when it has too many unfinished ones. So only a few of several packets are begun
ahead of the first answer: one more for each that is answered, half as many when one turns out to be ignored. One that
is ignored still counts among the few, unless it is hopeless: otherwise new streams would take each slot that becomes
free before it. A peer that takes many soon gets many; one that takes a single stream at a time is sent one after the
other, with as many behind it as it has lately taken without a pause.
"""

from __future__ import annotations

from fairway.core.recovery.runs import Stream

AHEAD_INITIAL = 8
"""Streams of several packets that are begun before the peer has said anything about them."""


class Slots:
    """The streams that were begun towards one peer, and how many it seems to have room for."""

    __slots__ = ("_ahead", "_ahead_max", "_open", "_open_before", "_unanswered", "hopeless", "ignored", "longest")

    def __init__(self, ahead_max: int) -> None:
        self._ahead = min(AHEAD_INITIAL, ahead_max)
        self._ahead_max = ahead_max
        self._unanswered: set[int] = set()
        """Serials of streams of several packets that were begun and not answered."""
        self.ignored = 0
        """Those of them that the peer ignores."""
        self.hopeless = 0
        """Those that it seems never to take."""
        self.longest = 0
        """The most packets of a stream that the peer has answered."""
        self._open = 0
        """Streams that the peer has answered and not acknowledged whole."""
        self._open_before = 1
        """How many there were when one was last acknowledged whole: so many the peer takes at a time."""

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
        return self._open > 0

    @property
    def is_free(self) -> bool:
        """Whether the peer has room for another stream, as far as is known."""
        return self._open < self._open_before

    @property
    def is_overdrawn(self) -> bool:
        """Whether more were begun than may be ahead, so that those which the peer ignored would wait for the others."""
        return self.ignored > self.hopeless and len(self._unanswered) - self.hopeless > self._ahead

    def may_begin(self, stream: Stream) -> bool:
        """Return whether a stream may be begun now."""
        return stream.last == 0 or len(self._unanswered) - self.hopeless < self._ahead

    def begin(self, stream: Stream) -> None:
        if stream.last > 0:
            self._unanswered.add(stream.serial)

    def answered(self, stream: Stream) -> None:
        """Take the first answer to a stream."""
        self._unanswered.discard(stream.serial)
        self.longest = max(self.longest, stream.last + 1)
        self._open += 1
        self._ahead = min(self._ahead + 1, self._ahead_max)

    def widen(self, count: int) -> None:
        """Let more streams begin because none was answered: perhaps the peer takes none of the first."""
        self._ahead = min(len(self._unanswered) + count, self._ahead_max)

    def cut(self) -> None:
        """Take that the peer ignores a stream that it would take at another time."""
        self._ahead = max(1, self._ahead // 2)

    def ended(self, stream: Stream) -> None:
        """Take that a stream is acknowledged whole, or given up."""
        self._unanswered.discard(stream.serial)
        self._open -= stream.answered

    def finished(self) -> None:
        """Take that a stream was acknowledged whole, after its end."""
        self._open_before = self._open + 1
