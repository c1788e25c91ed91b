"""The turn of the loop: one machine, one socket, one timer.

Each turn reads the clock once. What arrives is drained into the machine, what the application gathered is handed over,
and the shared `settle` sends, reports and arms the timer. The order is the simulator's because the code is.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Protocol

from fairway.core.drive import settle
from fairway.core.events import Address, Event
from fairway.core.machine import Buffer, Machine, Transmit
from fairway.core.statistics import TOO_LARGE
from fairway.net.link import Link
from fairway.net.recorder import Recorder
from fairway.net.urls import format_url

DRAINS_MAX = 8
"""Drains before a machine is woken, each bounded; what is still in the socket then is late."""
SETTLES_MAX = 7
"""More rounds of handing over in one turn while room keeps coming up; then the loop gets its turn."""


class Application(Protocol):
    """What a driver needs of the side that sends and receives messages."""

    gathered: bool
    """Something was gathered for the machine since the last turn."""
    short_of_places: bool
    """What was gathered frees places that arriving messages may need."""
    awaited: list[tuple[Callable[[], bool], asyncio.Future[None]]]
    """What somebody waits for to be true at the end of a turn."""

    def prepare(self, now_us: int) -> bool:
        """Hands to the machine what was gathered; tells whether the machine may have something to say to it."""

    def report(self, event: Event) -> None:
        """Takes note of what happened."""

    def settled(self) -> None:
        """Looks whether what somebody waits for has come true."""

    def never_taken(self) -> None:
        """A message came that the options never let in."""

    def broken(self, error: Exception) -> None:
        """The machine failed: nothing more can be expected of it."""


def _clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """Gives the loop's clock; asyncio's own loops read the monotonic one, by a detour that every turn would pay for."""
    return time.monotonic if getattr(type(loop), "time", None) is asyncio.BaseEventLoop.time else loop.time


class Driver:
    """Feeds one machine from one socket and one timer."""

    def __init__(self, machine: Machine, application: Application, recorder: Recorder | None) -> None:
        self.machine = machine
        self.closed = False
        self._application = application
        self._recorder = recorder
        self._loop = asyncio.get_running_loop()
        self._time = _clock_of(self._loop)
        self._link: Link | None = None
        self._transmit = self._record_and_transmit
        self._report = application.report
        self._receive = machine.receive if recorder is None else self._record_and_receive
        self.flush_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_us = 0
        """When the timer rings; often earlier than what is due."""
        self._due_us: int | None = None
        self._now_us = 0

    @property
    def link(self) -> Link:
        assert self._link is not None
        return self._link

    def screen(self, admits: Callable[[Buffer, Address, int, int | None], bool]) -> None:
        """Has every datagram, or super-buffer of them, looked at before the machine sees it."""
        receive = self._receive

        def screened(data: Buffer, address: Address, now_us: int, segment_bytes: int | None) -> None:
            if admits(data, address, now_us, segment_bytes):
                receive(data, address, now_us, segment_bytes)

        self._receive = screened

    def attach(self, link: Link) -> None:
        """Takes the socket. Called once, right after the link is opened."""
        self._link = link
        if self._recorder is None:
            self._transmit = link.send

    def now_us(self) -> int:
        """Reads the loop's clock, in microseconds; it never goes back."""
        now_us = int(self._time() * 1_000_000)
        self._now_us = max(self._now_us, now_us)
        return self._now_us

    def schedule(self) -> None:
        """Has the turn end with what the application gathers in it handed over."""
        if not self.flush_scheduled:
            self.flush_scheduled = True
            self._loop.call_soon(self.flush)

    def readable(self) -> None:
        """Takes in what has arrived."""
        link = self._link
        if link is None or self.closed:
            return
        now_us = self.now_us()
        try:
            if self._application.short_of_places:
                self._application.prepare(now_us)
            link.drain(self._receive, now_us)
            self.settle()
            if TOO_LARGE in self.machine.statistics.dropped:
                self._application.never_taken()
        except Exception as error:
            self._application.broken(error)
            raise

    def flush(self) -> None:
        """Hands over what the application gathered, now."""
        self.flush_scheduled = False
        if self.closed:
            return
        self.now_us()
        try:
            self._application.prepare(self._now_us)
            self.settle()
        except Exception as error:
            self._application.broken(error)
            raise

    def _ring(self) -> None:
        self._timer = None
        if self.closed or self._due_us is None:
            return
        now_us = self.now_us()
        if now_us < self._due_us:
            self._arm(self._due_us)
            return
        try:
            self._take_in(now_us)
            self.machine.wake(now_us)
            self.settle()
        except Exception as error:
            self._application.broken(error)
            raise

    def _take_in(self, now_us: int) -> None:
        """Takes in what has arrived before anything counts as late: an answer may have waited for this process."""
        if self._link is not None:
            for _ in range(DRAINS_MAX):
                if not self._link.drain(self._receive, now_us):
                    break

    def settle(self) -> None:
        """Sends and reports what the last input caused, and hands over what that made room for."""
        application = self._application
        settle(self.machine, self._transmit, self._report, self._arm)
        if application.gathered and application.prepare(self._now_us):
            self._settle_again()
        if application.awaited:
            application.settled()

    def _settle_again(self) -> None:
        application = self._application
        for _ in range(SETTLES_MAX):
            settle(self.machine, self._transmit, self._report, self._arm)
            if not application.gathered or not application.prepare(self._now_us):
                return
        self.schedule()

    def _record_and_transmit(self, transmits: list[Transmit]) -> None:
        if self._recorder is not None:
            for address, data, segment_bytes in transmits:
                self._recorder.record(self.link.local, address, data, segment_bytes)
        self.link.send(transmits)

    def _record_and_receive(self, data: Buffer, address: Address, now_us: int, segment_bytes: int | None) -> None:
        assert self._recorder is not None
        self._recorder.record(address, self.link.local, data, segment_bytes)
        self.machine.receive(data, address, now_us, segment_bytes)

    def _arm(self, due_us: int | None) -> None:
        """Arms the timer. One that rings too early is left alone: moving it costs more than an idle ring."""
        self._due_us = due_us
        if due_us is None or (self._timer is not None and self._timer_us <= due_us):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_us = due_us
        self._timer = self._loop.call_at(due_us / 1_000_000, self._ring)

    def unreachable(self, address: Address | None, number: int) -> None:
        """Passes an ICMP error on to the machine. It may come in the middle of a turn, so with the time of that."""
        reason = f"{format_url(self.machine.name, address)}: {os.strerror(number)} (ICMP)"
        self.machine.unreachable(address, reason, self._now_us)
        self.schedule()

    def refused(self, address: Address, reason: str) -> None:
        """Tell the machine why nobody can be reached at an address."""
        self.machine.unreachable(address, reason, self._now_us)
        self.schedule()

    def path_limited(self, datagram_bytes: int, *, fragments: bool) -> None:
        """Tells the machine what the path takes."""
        self.machine.limit_datagrams(datagram_bytes, fragments=fragments)

    def close(self) -> None:
        """Stops the timer and closes the socket. Twice is fine."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._link is not None:
            self._link.close()
