"""The turn of the loop: one machine, one link, one timer.

Each turn reads the clock, and again with everything that arrives. What arrives is drained into the machine, what the
application gathered is given to it, and the shared `settle` sends, reports and arms the timer. The order is the
simulator's because the code is.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from fairway.core.events import Address
from fairway.core.machine import Buffer, Machine, Transmit, settle
from fairway.core.statistics import TOO_LARGE
from fairway.net.layers import DriverEvents, Link, Receive, Screen
from fairway.net.recorder import Recorder
from fairway.net.urls import format_url

DRAINS_MAX = 8
"""Drains before a machine is woken, each bounded; what is still in the socket then is late."""
SETTLES_MAX = 7
"""More rounds of gathering in one turn while room keeps coming up; then the loop gets its turn."""


def _clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """Return the loop's clock; asyncio's own loops read the monotonic one, by a detour that every turn would pay."""
    return time.monotonic if getattr(type(loop), "time", None) is asyncio.BaseEventLoop.time else loop.time


class Driver:
    """Feeds one machine from one link and one timer. Nothing is read before `start`."""

    def __init__(self, machine: Machine, link: Link, recorder: Recorder | None = None) -> None:
        self.machine = machine
        self.link = link
        self.closed = False
        self.flush_scheduled = False
        self.gathered = False
        """Something waits for `gather`, in passing."""
        self.urgent = False
        """What waits frees receipt slots that arriving messages may need."""
        self.refusal = ""
        """Why one end refused the other before anything left: an outcome for this reason is refused, not unknown."""
        self._recorder = recorder.share() if recorder is not None else None
        self._screen: Screen | None = None
        self._above: DriverEvents
        self._loop = asyncio.get_running_loop()
        self._time = _clock_of(self._loop)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_us = 0
        """When the timer rings; often earlier than what is due."""
        self._due_us: int | None = None
        self._now_us = 0
        self._awaited: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        # Most endpoints are neither traced nor screened.
        self._transmit: Callable[[list[Transmit]], None] = link.send if recorder is None else self._record_and_send
        self._receive: Receive = self._receive_now

    def start(self, above: DriverEvents, screen: Screen | None = None, outer_screen: Screen | None = None) -> None:
        """Begin to read; what `screen` does not admit the machine never sees, and a layer of encryption below it
        nothing that `outer_screen` does not admit. Called once."""
        self._above = above
        if screen is not None or self._recorder is not None:
            self._screen = screen
            self._receive = self._look_and_receive
        self.link.start(self, outer_screen)

    def now_us(self) -> int:
        """Read the loop's clock, in microseconds; it never goes back."""
        self._now_us = max(self._now_us, int(self._time() * 1_000_000))
        return self._now_us

    # From above.

    def schedule(self) -> None:
        """Have the turn end with what the application gathers in it given to the machine."""
        self.gathered = True
        if not self.flush_scheduled:
            self.flush_scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        self.flush_scheduled = False
        if self.closed:
            return
        self.now_us()
        try:
            self._gather()
            self.settle()
        except Exception as error:
            self._above.failed(error)
            raise

    def settle(self) -> None:
        """Send and report what the last input caused, and give the machine what that made room for."""
        settle(self.machine, self._transmit, self._above.report, self._arm)
        if self.gathered:
            self.gathered = self.urgent = False
            if self._above.gather(self._now_us):
                self._settle_again()
        if self._awaited:
            for condition, future in self._awaited:
                if not future.done() and condition():
                    future.set_result(None)

    def _settle_again(self) -> None:
        for _ in range(SETTLES_MAX):
            settle(self.machine, self._transmit, self._above.report, self._arm)
            if not self.gathered or not self._gather():
                return
        self.schedule()

    def _gather(self) -> bool:
        self.gathered = self.urgent = False
        return self._above.gather(self._now_us)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition is true at the end of a turn, or the driver is closed."""
        if self.closed or condition():
            return
        entry = (condition, self._loop.create_future())
        self._awaited.append(entry)
        try:
            await entry[1]
        finally:
            self._awaited.remove(entry)

    def close(self) -> None:
        """Stop the timer and close the link. Twice is fine."""
        if self.closed:
            return
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.link.close()
        for _, future in self._awaited:
            if not future.done():
                future.set_result(None)
        if self._recorder is not None:
            self._recorder.close()

    # From the link.

    def readable(self) -> None:
        if self.closed:
            return
        try:
            if self.urgent:
                self.now_us()
                self._gather()
            self.link.drain(self._receive)
            self.settle()
            if TOO_LARGE in self.machine.statistics.dropped:
                self._above.oversized()
        except Exception as error:
            self._above.failed(error)
            raise

    def unreachable(self, address: Address | None, why: int | str) -> None:
        """Pass an error on to the machine."""
        reason = f"{os.strerror(why)} (ICMP)" if isinstance(why, int) else why
        sentence = f"{format_url(self.machine.name, address)}: {reason}"
        if isinstance(why, str):
            self.refusal = sentence
        self.machine.unreachable(address, sentence, self.now_us())
        self.schedule()

    def path_limited(self, datagram_bytes: int, *, fragments: bool) -> None:
        self.machine.limit_datagrams(datagram_bytes, fragments=fragments)

    def _record_and_send(self, transmits: list[Transmit]) -> None:
        assert self._recorder is not None
        for address, data, segment_bytes in transmits:
            self._recorder.record(self.link.local, address, data, segment_bytes)
        self.link.send(transmits)

    def _receive_now(self, data: Buffer, address: Address, segment_bytes: int | None) -> None:
        """Pass on what arrived, at the time it is now.

        Others arrive while a drain goes on: with the time of its begin their round trips would seem shorter than any
        can be, and a controller that believes in the shortest one would strangle the path.
        """
        self._now_us = max(self._now_us, int(self._time() * 1_000_000))
        self.machine.receive(data, address, self._now_us, segment_bytes)

    def _look_and_receive(self, data: Buffer, address: Address, segment_bytes: int | None) -> None:
        if self._screen is not None and not self._screen(data, address, self.now_us(), segment_bytes):
            return
        if self._recorder is not None:
            self._recorder.record(address, self.link.local, data, segment_bytes)
        self._receive_now(data, address, segment_bytes)

    # The timer.

    def _arm(self, due_us: int | None) -> None:
        """Arm the timer. One that rings too early is left alone: moving it costs more than an idle ring."""
        link_us = self.link.deadline_us
        if link_us is not None and (due_us is None or link_us < due_us):
            due_us = link_us
        self._due_us = due_us
        if due_us is None or (self._timer is not None and self._timer_us <= due_us):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_us = due_us
        self._timer = self._loop.call_at(due_us / 1_000_000, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self.closed or self._due_us is None:
            return
        now_us = self.now_us()
        if now_us < self._due_us:
            self._arm(self._due_us)
            return
        try:
            # What has arrived comes before anything counts as late: an answer may have waited for this process.
            for _ in range(DRAINS_MAX):
                if not self.link.drain(self._receive):
                    break
            now_us = self._now_us
            link_us = self.link.deadline_us
            if link_us is not None and link_us <= now_us:
                self.link.wake(now_us)
            self.machine.wake(now_us)
            self.settle()
        except Exception as error:
            self._above.failed(error)
            raise
