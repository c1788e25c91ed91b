"""Questions to a peer that wait for their answer: pings of the application, and probes of the machine's own."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from fairway.core.events import NO_ANSWER, DeliveryUnknown, Peer, PingAnswered
from fairway.core.outputs import Outputs
from fairway.core.recovery.runs import NEVER
from fairway.core.refusals import too_many_pings


class Ping(NamedTuple):
    """One question. `mark` is what its answer names, `token` is None where the application did not ask."""

    token: int | None
    sent_us: int
    mark: Hashable


class Pings:
    """The questions to one peer, oldest first."""

    __slots__ = ("_max", "_outputs", "_peer", "_timeout_us", "waiting")

    def __init__(self, outputs: Outputs[Any], peer: Peer, timeout_us: int, pings_max: int) -> None:
        self._outputs = outputs
        self._peer = peer
        self._timeout_us = timeout_us
        self._max = pings_max
        self.waiting: list[Ping] = []

    def token(self) -> int:
        """Return the token of a further ping of the application; raises `QueueFull` where there are too many."""
        if sum(ping.token is not None for ping in self.waiting) >= self._max:
            raise too_many_pings(self._max, self._peer.address)
        return self._outputs.token()

    def start(self, token: int | None, mark: Hashable, now_us: int) -> None:
        self.waiting.append(Ping(token, now_us, mark))
        self._outputs.unfinished += token is not None

    def find(self, mark: Hashable) -> Ping | None:
        """Return the oldest question whose answer has this mark."""
        return next((ping for ping in self.waiting if ping.mark == mark), None)

    def answered(self, ping: Ping, now_us: int) -> int:
        """Report an answer, and return the round-trip time."""
        self.waiting.remove(ping)
        rtt_us = max(1, now_us - ping.sent_us)
        if ping.token is not None:
            self._outputs.unfinished -= 1
            self._outputs.report(PingAnswered(self._peer, ping.token, rtt_us))
        return rtt_us

    def expire(self, now_us: int) -> None:
        while self.next_us() <= now_us:
            self._give_up(self.waiting.pop(0), NO_ANSWER)

    def end(self, reason: str) -> None:
        waiting, self.waiting = self.waiting, []
        for ping in waiting:
            self._give_up(ping, reason)

    def _give_up(self, ping: Ping, reason: str) -> None:
        if ping.token is not None:
            self._outputs.unfinished -= 1
            self._outputs.report(DeliveryUnknown(self._peer, (ping.token,), reason))

    def next_us(self) -> int:
        """Return when the oldest has waited too long."""
        return self.waiting[0].sent_us + self._timeout_us if self.waiting else NEVER
