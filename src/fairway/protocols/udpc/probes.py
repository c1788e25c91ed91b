"""Heartbeats that wait for their answer: signs of life, measurements, proofs of an address, and pings."""

from __future__ import annotations

from typing import NamedTuple

from fairway.core.events import NO_ANSWER, Address, DeliveryUnknown, PingAnswered
from fairway.core.serial import widen
from fairway.protocols.udpc.link import NEVER, Link
from fairway.protocols.udpc.options import UdpcOptions


class Probe(NamedTuple):
    """A heartbeat that waits for its answer."""

    sent_us: int
    address: Address
    token: int | None


class Probes:
    """The heartbeats of one session by their index, oldest first."""

    __slots__ = ("_link", "_options", "_waiting")

    def __init__(self, link: Link, options: UdpcOptions) -> None:
        self._link = link
        self._options = options
        self._waiting: dict[int, Probe] = {}

    @property
    def pings(self) -> int:
        """How many of them are pings."""
        return sum(probe.token is not None for probe in self._waiting.values())

    def start(self, token: int | None, now_us: int, *, leaves: bool) -> None:
        """Takes note of a heartbeat under the next index; one that cannot leave only waits for its end."""
        number = self._link.next_index
        if not leaves:
            number = -number - len(self._waiting)
        self._waiting[number] = Probe(now_us, self._link.address, token)
        self._link.outputs.unfinished += token is not None
        self._link.wake_by(now_us + self._options.ping_timeout_us)

    def answered(self, ack_index: int, now_us: int) -> int | None:
        """Takes an answer, which proves the address, and gives the round-trip time; None if nothing asked."""
        link = self._link
        probe = self._waiting.pop(widen(ack_index, link.next_index, 32), None)
        if probe is None:
            return None
        rtt_us = now_us - probe.sent_us
        if probe.address == link.address and not link.proved:
            link.proved = True
            link.outputs.outbox.ledger.forget(probe.address)
        if probe.token is not None:
            link.outputs.unfinished -= 1
            link.outputs.report(PingAnswered(link.peer, probe.token, max(1, rtt_us)))
        return rtt_us

    def expire(self, now_us: int) -> None:
        """Ends those that waited too long."""
        while self.due_us() <= now_us:
            self._fail(next(iter(self._waiting)), NO_ANSWER)

    def fail(self, reason: str) -> None:
        """Ends all of them."""
        for number in list(self._waiting):
            self._fail(number, reason)

    def _fail(self, number: int, reason: str) -> None:
        probe = self._waiting.pop(number)
        if probe.token is not None:
            self._link.outputs.unfinished -= 1
            self._link.outputs.report(DeliveryUnknown(self._link.peer, (probe.token,), reason))

    def due_us(self) -> int:
        """Tells when the oldest has waited too long."""
        if not self._waiting:
            return NEVER
        return next(iter(self._waiting.values())).sent_us + self._options.ping_timeout_us
