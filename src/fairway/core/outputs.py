"""What a machine puts out: datagrams, events, tokens and counts; and who may have something to send."""

from __future__ import annotations

from typing import Generic, TypeVar

from fairway.core.events import Event
from fairway.core.machine import Options
from fairway.core.outbox import Outbox
from fairway.core.statistics import Statistics

Sending = TypeVar("Sending")


class Outputs(Generic[Sending]):
    """One per machine, shared by all its conversations."""

    def __init__(self, options: Options) -> None:
        self.statistics = Statistics()
        self.outbox = Outbox(self.statistics, options.unproved_max)
        self.unfinished = 0
        """Tokens without an outcome."""
        self.ready: dict[Sending, int] = {}
        """Who may have something to send, and since when: it leaves with the machine's next output, so that what one
        call and many ask for fills a batch alike."""
        self._token = 0
        self.reported: list[Event] = []
        """What has happened and nobody has taken yet."""
        self.report = self.reported.append
        """Add an event."""

    def token(self) -> int:
        self._token += 1
        return self._token

    def tokens(self, count: int) -> range:
        first = self._token + 1
        self._token += count
        return range(first, first + count)

    def drop(self, reason: str, count: int = 1) -> None:
        self.statistics.dropped[reason] += count

    def take_ready(self) -> dict[Sending, int]:
        """Return who may have something to send, and forget it."""
        ready, self.ready = self.ready, {}
        return ready

    def events(self) -> list[Event]:
        events = self.reported
        if not events:
            return []
        self.reported = []
        self.report = self.reported.append
        return events
