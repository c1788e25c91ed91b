"""Messages on their way out: gathered in a turn of the loop, submitted to the machine together, resolved in bulk.

A message that is awaited costs a future; one of a `send_many` costs no object at all, because outcomes come as ranges
of tokens and a batch is one range.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, Protocol

from fairway.core.errors import CallerError, NoSuchPeer, QueueFull
from fairway.core.events import NOT_SENT, Peer
from fairway.core.machine import Buffer, Machine
from fairway.net.outcomes import DeliveryRefused, DeliveryUnknown, Tally

_DONE = methodcaller("done")

SUBMIT_MESSAGES_MAX = 8_192
"""Messages of one `send_many` submitted to the machine at a time, so that a long one is not sliced again and again."""


class Tokens:
    """Who waits for which token: a future each, or a `Bulk` for a range of them."""

    def __init__(self) -> None:
        self.futures: dict[int, asyncio.Future[Any]] = {}
        self.crowded = False
        """Whether the latest awaited messages were several: then the next one will hardly be the only one either."""
        self._firsts: list[int] = []
        self.ranges: list[_Range] = []
        """Messages without a future each, oldest first."""

    def add_range(self, first: int, count: int, bulk: Bulk) -> None:
        """Note that `count` tokens from `first` on belong to a bulk. Tokens only grow, so the list stays sorted."""
        self._firsts.append(first)
        self.ranges.append(_Range(first, count, bulk, count))

    def delivered(self, tokens: Sequence[int]) -> None:
        if self.ranges:
            self._walk(tokens, None)
            return
        pop = self.futures.pop
        for token in tokens:
            future = pop(token, None)
            if future is not None and not future.done():
                future.set_result(None)

    def failed(self, tokens: Sequence[int], error: type[DeliveryRefused] | type[DeliveryUnknown], reason: str) -> None:
        """Fail the futures of messages that were not."""
        self._walk(tokens, (error, reason))

    def _walk(self, tokens: Sequence[int], failure: Failure | None) -> None:
        for first, count in _neighbours(tokens):
            token, end = first, first + count
            while token < end:
                index = bisect_right(self._firsts, token) - 1
                one = self.ranges[index] if index >= 0 else None
                if one is None or token >= one.first + one.count:
                    self._settle_future(token, failure)
                    token += 1
                    continue
                step = min(end, one.first + one.count) - token
                one.left -= step
                one.bulk.settled(step, failure)
                if one.left == 0:
                    del self.ranges[index], self._firsts[index]
                token += step

    def _settle_future(self, token: int, failure: Failure | None) -> None:
        future = self.futures.pop(token, None)
        if future is None or future.done():
            return
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(failure[0](failure[1]))

    def abandon(self, reason: str) -> None:
        """End everything that is still open as unknown."""
        open_tokens = list(self.futures)
        for one in self.ranges:
            one.bulk.abandon(reason)
        self.ranges.clear()
        self._firsts.clear()
        self.failed(open_tokens, DeliveryUnknown, reason)


Failure = tuple[type[DeliveryRefused] | type[DeliveryUnknown], str]


@dataclass(slots=True, eq=False)
class _Range:
    first: int
    count: int
    bulk: Bulk
    left: int


def _neighbours(tokens: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Cut tokens into pieces of consecutive ones: first and count."""
    if isinstance(tokens, range) and tokens.step == 1:
        if tokens:
            yield tokens.start, len(tokens)
        return
    first = count = 0
    for token in tokens:
        if count and token == first + count:
            count += 1
            continue
        if count:
            yield first, count
        first, count = token, 1
    if count:
        yield first, count


class Outgoing(Protocol):
    """Something that waits to be submitted to the machine."""

    def submit(self, machine: Machine, peer: Peer, now_us: int, tokens: Tokens) -> bool:
        """Submit what there is room for; return whether that was all."""

    def refuse(self, error: BaseException) -> None:
        """End what was not submitted."""


class Outbox:
    """What one conversation wants sent and the machine does not have yet, in order."""

    __slots__ = ("_singles", "outgoing", "peer")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.outgoing: deque[Outgoing] = deque()
        self._singles: Singles | None = None
        """The last of the outgoing, while awaited messages may still be added to it."""

    def add(self, outgoing: Outgoing) -> bool:
        """Append; return whether nothing was waiting before."""
        self._singles = None
        self.outgoing.append(outgoing)
        return len(self.outgoing) == 1

    def add_single(self, body: Buffer, future: asyncio.Future[None]) -> bool:
        """Append an awaited message; return whether nothing was waiting before."""
        if self._singles is not None:
            self._singles.bodies.append(body)
            self._singles.futures.append(future)
            return False
        singles = Singles([body], [future])
        first = self.add(singles)
        self._singles = singles
        return first

    def submit(self, machine: Machine, now_us: int, tokens: Tokens) -> bool:
        """Submit what waits, as far as the machine has room; return whether that was all."""
        outgoing = self.outgoing
        while outgoing:
            if len(outgoing) == 1:
                self._singles = None
            if not outgoing[0].submit(machine, self.peer, now_us, tokens):
                return False
            outgoing.popleft()
        return True

    def refuse(self) -> None:
        """The conversation is over: nothing of what waits was ever sent."""
        error = DeliveryRefused(NOT_SENT)
        for outgoing in self.outgoing:
            outgoing.refuse(error)
        self.outgoing.clear()
        self._singles = None


@dataclass(slots=True, eq=False)
class Singles:
    """Awaited messages, gathered in a turn of the loop."""

    bodies: list[Buffer]
    futures: list[asyncio.Future[None]]

    def submit(self, machine: Machine, peer: Peer, now_us: int, tokens: Tokens) -> bool:
        if any(map(_DONE, self.futures)):
            waiting = [pair for pair in zip(self.bodies, self.futures, strict=True) if not pair[1].done()]
            self.bodies = [body for body, _ in waiting]
            self.futures = [future for _, future in waiting]
        tokens.crowded = len(self.bodies) > 1
        if not tokens.crowded:
            return self._one_by_one(machine, peer, now_us, tokens)
        try:
            given = machine.send_many(peer, self.bodies, now_us)
        except QueueFull:
            return False
        except CallerError:
            # One of them is at fault: each is submitted on its own, so that only its caller hears of it.
            return self._one_by_one(machine, peer, now_us, tokens)
        tokens.futures.update(zip(given, self.futures, strict=False))
        if len(given) == len(self.bodies):
            return True
        del self.bodies[: len(given)], self.futures[: len(given)]
        return False

    def _one_by_one(self, machine: Machine, peer: Peer, now_us: int, tokens: Tokens) -> bool:
        for position, (body, future) in enumerate(zip(self.bodies, self.futures, strict=True)):
            try:
                tokens.futures[machine.send(peer, body, now_us)] = future
            except QueueFull:
                del self.bodies[:position], self.futures[:position]
                return False
            except CallerError as error:
                future.set_exception(error)
        return True

    def refuse(self, error: BaseException) -> None:
        for future in self.futures:
            if not future.done():
                future.set_exception(error)


@dataclass(slots=True, eq=False)
class Special:
    """A message with flags of its own, or one that answers a request; `asks` when an answer is awaited."""

    body: Buffer
    flags: int
    answers: int | None
    future: asyncio.Future[Any]
    asks: bool

    def submit(self, machine: Machine, peer: Peer, now_us: int, tokens: Tokens) -> bool:
        if self.future.done():
            return True
        try:
            token = machine.send(peer, self.body, now_us, flags=self.flags, answers=self.answers)
        except QueueFull:
            return False
        except NoSuchPeer as error:
            self.refuse(error)
            return True
        except CallerError as error:
            self.future.set_exception(error)
            return True
        if self.asks:
            tokens.futures[token] = self.future
        else:
            # Nothing on the wire tells what becomes of a plain message or of a response: to have sent it is the end.
            self.future.set_result(None)
        return True

    def refuse(self, error: BaseException) -> None:
        """The conversation is over: nobody waits for a response any more, which is no mistake of who replies."""
        if self.future.done():
            return
        if self.answers is not None and not self.asks:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)


class Bulk:
    """The messages of one `send_many`."""

    __slots__ = ("_bodies", "_failure", "_left", "_position", "future", "tally")

    def __init__(self, bodies: Sequence[Buffer], future: asyncio.Future[int]) -> None:
        self._bodies = bodies
        self._position = 0
        self._left = len(bodies)
        self._failure: Failure | None = None
        self.future = future
        self.tally = Tally()

    def submit(self, machine: Machine, peer: Peer, now_us: int, tokens: Tokens) -> bool:
        """Submit as many as there is room for; of a cancelled one nothing more."""
        bodies, count = self._bodies, len(self._bodies)
        while self._position < count and not self.future.done():
            start = self._position
            whole = start == 0 and count <= SUBMIT_MESSAGES_MAX
            chunk = bodies if whole else bodies[start : start + SUBMIT_MESSAGES_MAX]
            try:
                given = machine.send_many(peer, chunk, now_us)
            except QueueFull:
                return False
            except CallerError as error:
                self.refuse(error)
                return True
            if given:
                tokens.add_range(given.start, len(given), self)
                self._position = start + len(given)
            if len(given) < len(chunk):
                return False
        self._bodies = ()
        return True

    def settled(self, count: int, failure: Failure | None) -> None:
        """Count the outcome of so many messages, and finish when all have one."""
        self._left -= count
        if failure is None:
            self.tally.acknowledged += count
        elif failure[0] is DeliveryRefused:
            self.tally.refused += count
            self._failure = failure
        else:
            self.tally.unknown += count
            self._failure = self._failure or failure
        if self._left == 0 and not self.future.done():
            self._finish()

    def _finish(self) -> None:
        if self._failure is None:
            self.future.set_result(self.tally.acknowledged)
        else:
            error, reason = self._failure
            self.future.set_exception(error(f"{reason} ({self.tally})", self.tally))

    def refuse(self, error: BaseException) -> None:
        """End what was not submitted: it was never sent."""
        if isinstance(error, DeliveryRefused):
            rest = len(self._bodies) - self._position
            self._position = len(self._bodies)
            self.settled(rest, (DeliveryRefused, str(error)))
        elif not self.future.done():
            self.future.set_exception(error)

    def abandon(self, reason: str) -> None:
        self.settled(self._left, (DeliveryUnknown, reason))
