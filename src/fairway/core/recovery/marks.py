"""Loss recovery where acknowledgements are cumulative: everything below a mark has arrived.

Nothing is known of what lies beyond the mark. So only the packet at the mark can be lost: when a transmission that left
at least three later moved the mark to it, or when three answers in a row repeat the mark. The packets beyond leave the
flight after a time-out (*settled*): they are no longer in the network, arrived or not. If repairs move the mark only to
the next missing packet, each lets two more leave: a peer that has thrown away everything after a hole is then served as
fast as slow start would.
"""

from __future__ import annotations

from fairway.core.recovery.congestion import Controller
from fairway.core.recovery.evidence import OVERTAKEN_BY
from fairway.core.recovery.recovery import Kind, Recovery
from fairway.core.recovery.runs import FLYING, SETTLED, Acknowledged, Run, Stream
from fairway.core.recovery.timing import RoundTrip
from fairway.core.statistics import Statistics


class MarkRecovery(Recovery):
    """The loss recovery of packets below and beyond a mark."""

    def __init__(self, kind: Kind, timing: RoundTrip, controller: Controller | None, statistics: Statistics) -> None:
        super().__init__(kind, timing, controller, statistics, cumulative=True)
        if controller is not None:
            controller.cumulative = True

    def acknowledge_to(self, stream: Stream, mark: int, now_us: int, *, prompt: bool = True) -> list[Acknowledged]:
        """Take that everything below `mark` has arrived, and return what that acknowledges."""
        before, stream.mark = stream.mark, mark
        stream.same = 0
        pieces = self.acknowledge(stream, before, mark - before, now_us, prompt=prompt)
        if not pieces:
            self._progress(stream, 0, now_us)
        repaired = 0
        for run, _, count in pieces:
            if len(run.sent_us) > 1:
                repaired += count
        # Of a queue that ran over every second packet or so is missing, and what lies between had arrived.
        stream.burst = stream.burst + repaired if 4 * repaired >= mark - before else 0
        if stream.left or stream.burst:
            self._judge_mark(stream, now_us)
        return pieces

    def repeated(self, stream: Stream, now_us: int) -> None:
        """Take an answer to a later packet that repeats the mark; three in a row ask for the packet at the mark."""
        run = stream.find(stream.mark)
        self.heard_us = now_us
        if run is None or stream.left < 2 or run.state not in (FLYING, SETTLED):
            return
        timing = self.timing
        if now_us - run.sent_us[-1] < timing.least_us or (len(run.sent_us) > 1 and not timing.smoothed_us):
            return
        stream.same += 1
        if stream.same >= OVERTAKEN_BY:
            stream.same = 0
            run = self._flight.only(stream.mark, run)
            run.sure = len(run.sent_us)
            self._lose(run, now_us, blame=True, at_once=True)

    def _judge_mark(self, stream: Stream, now_us: int) -> None:
        """Take the packets at a mark that just moved for lost if what moved it left later than they did."""
        number, end = stream.mark, stream.mark + max(1, stream.burst)
        late_us = self._blame.reordered_us() or self.timing.smoothed_us
        if not late_us and not self._kind.ordered:  # a peer that takes only the next packet is not kept waiting
            late_us = self.timing.delay_us
        left_us = now_us - late_us
        while number < end and stream.mark != stream.last:
            run = stream.find(number)
            overtaken = run is not None and run.sent_us[-1] <= left_us and self._evidence.is_overtaken(run)
            if run is None or (not overtaken and len(run.sent_us) == 1):
                return
            if overtaken and run.state in (FLYING, SETTLED):
                at_mark = number == stream.mark
                if run.first + run.count > (number + 1 if at_mark else end):
                    self._flight.split(run, number + 1 if at_mark else end)
                run.sure = len(run.sent_us)
                self._statistics.repairs += 0 if at_mark else run.count
                certain = run.order + OVERTAKEN_BY <= self._evidence.top[-1]
                self._lose(run, now_us, blame=at_mark and certain, at_once=at_mark)
            number = run.first + run.count

    def _concluded(self, now_us: int) -> None:
        super()._concluded(now_us)
        for stream in list(self.streams.values()):
            self._judge_mark(stream, now_us)

    def _line(self) -> int:
        """Return the order below which three later ends of streams are acknowledged.

        A mark is told late, but the end of a stream at once, or after its commit, for which others wait as well.
        """
        return self._evidence.finals[0]

    def _told_at_once(self, run: Run) -> bool:
        return run.first == run.stream.mark == run.stream.last

    def _lose_by_time(self, run: Run, now_us: int) -> None:
        self._flight.settle(run)
        if run.first == run.stream.mark:
            self._lose(self._flight.only(run.stream.mark, run), now_us, blame=False)

    def _is_suspect(self, run: Run) -> bool:
        """Return no but for the end of a stream, to a peer that ignores some: what else is not below the mark may have
        arrived all the same."""
        return self._told_at_once(run) and self._acceptance.may_refuse(run) and super()._is_suspect(run)

    def _next_relieved(self, now_us: int) -> Run | None:
        """Return the oldest: a stream that is left behind by others for too long is given up."""
        for stream in self.streams.values():
            run = stream.single(stream.last)
            if run is not None and self._may_be_relieved(run, now_us):
                return run
        return None

    def _waits_for_room(self, run: Run) -> bool:
        return self._told_at_once(run) and super()._waits_for_room(run)

    def _waits_alone(self, run: Run) -> bool:
        """Return whether nothing will tell soon that a run which was lost again has arrived."""
        return self._is_suspect(run) or (run.losses > 1 and self._passes_by and not self._told_at_once(run))

    def _backed_off_us(self, run: Run) -> int:
        return self.timing.backed_off_us(run.losses - 1, self._kind.backoff_us_max)

    def _settle_old(self, now_us: int) -> None:
        """Take what is older than the time-out out of the flight: others need the room, and it is no longer there."""
        for run in self._flight.left_before(now_us - self.timing.delay_us):
            self._flight.settle(run)

    def _make_room(self, run: Run, now_us: int, *, spoke: bool) -> None:
        if spoke or self.has_lost:
            self._settle_old(now_us)

    def _probed(self) -> Run | None:
        return self._lowest_of(min(self.streams.values(), key=probed_us, default=None))


def probed_us(stream: Stream) -> int:
    """Return when a stream last had a probe or made progress."""
    return stream.probed_us
