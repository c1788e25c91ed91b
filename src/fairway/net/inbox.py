"""Received messages that the application has not taken yet.

Their number is bounded from behind: each holds a receipt slot of its machine until it is taken (or, deferred,
committed), and a machine without a free one drops new messages without acknowledgement, so that their senders wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from fairway.core.events import Receipt
from fairway.net.messages import Batch, Message, Part, Run
from fairway.net.outcomes import ConversationClosed, within

if TYPE_CHECKING:
    from fairway.net.connection import Connection

Arrival = Run | Message
RECEIVE_MANY_MAX = 4_096
"""What one `receive_many` takes by default."""


class Inbox:
    """A queue with one end for endpoints and one for the application."""

    def __init__(self) -> None:
        self._arrivals: deque[Arrival] = deque()
        self._position = 0
        """How many messages of the first run are taken."""
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._end: ConversationClosed | None = None

    def put(self, arrival: Arrival) -> None:
        self._arrivals.append(arrival)
        if self._waiters:
            self._wake(len(arrival) if isinstance(arrival, Run) else 1)

    def end(self, reason: ConversationClosed) -> None:
        """Say that nothing more will come; what is there can still be taken."""
        if self._end is None:
            self._end = reason
            self._wake(len(self._waiters))

    def split(self, peer: Connection) -> Inbox:
        """Return an inbox with what is here from one peer, which this one has no longer."""
        theirs = Inbox()
        if self._arrivals and self._arrivals[0].peer == peer:
            theirs._position, self._position = self._position, 0
        arrivals, self._arrivals = self._arrivals, deque()
        for arrival in arrivals:
            (theirs if arrival.peer == peer else self)._arrivals.append(arrival)
        return theirs

    def discard(self) -> None:
        """Drop what is here: nobody will receive it."""
        while self._arrivals:
            arrival = self._arrivals[0]
            if isinstance(arrival, Run):
                self._take_run(arrival, len(arrival))
            else:
                self._take_lone(arrival)

    def _wake(self, count: int) -> None:
        while count > 0 and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    async def receive(self) -> Message:
        while not self._arrivals:
            await self._wait()
        arrival = self._arrivals[0]
        if isinstance(arrival, Run):
            return self._take_message(arrival)
        return self._take_lone(arrival)

    def _take_lone(self, message: Message) -> Message:
        self._arrivals.popleft()
        if isinstance(message, Part):
            message.peer._conversations.took(0, len(message.body), None)
        else:
            message.peer._conversations.took(1, len(message.body), Receipt(message.peer.identity, message.id))
        return message

    def _take_message(self, run: Run) -> Message:
        position = self._position
        body = run.bodies[position]
        identity = run.first if isinstance(run.first, str) else run.first + position
        self._position += 1
        run.peer._conversations.took(1, len(body), self._pass(run))
        return Message(run.peer, identity, body, run.reliable, run)

    def _pass(self, run: Run) -> Receipt | None:
        """Go on to the next arrival when the run is taken whole, and then return its receipt."""
        if self._position < len(run.bodies):
            return None
        self._arrivals.popleft()
        self._position = 0
        return run.receipt

    async def receive_many(self, limit: int) -> Batch:
        while not self._arrivals:
            await self._wait()
        batch = Batch()
        arrivals = self._arrivals
        while arrivals and limit > 0:
            arrival = arrivals[0]
            if isinstance(arrival, Run):
                run = self._take_run(arrival, limit)
                limit -= len(run.bodies)
                batch.runs.append(run)
            else:
                limit -= 1
                batch.runs.append(self._take_lone(arrival))
        return batch

    def _take_run(self, run: Run, limit: int) -> Run:
        start = self._position
        end = self._position = min(len(run.bodies), start + limit)
        taken = run if end - start == len(run.bodies) else run.part(start, end)
        run.peer._conversations.took(end - start, sum(map(len, taken.bodies)), self._pass(run))
        return taken

    async def _wait(self) -> None:
        if self._end is not None:
            raise self._end
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            # Woken and cancelled at once: the message is still there, and somebody else may be waiting for it.
            if waiter.done() and not waiter.cancelled() and self._arrivals:
                self._wake(1)
            raise


class Receiving:
    """Takes messages out of an inbox, one by one, many at a time, or by `async for`."""

    __slots__ = ()

    def _claim(self) -> Inbox:
        """Return the inbox to take from."""
        raise NotImplementedError

    async def receive(self, *, timeout: float | None = None) -> Message:
        """Take the next message; wait for one, at most `timeout` seconds, then raise `TimeoutError`.

        Raises `ConversationClosed` when nothing more will come. A message is received once: by the connection that it
        came on, if somebody receives from that, or else by the listener.
        """
        receiving = self._claim().receive()
        return await receiving if timeout is None else await within(receiving, timeout, TimeoutError)

    async def receive_many(self, limit: int = RECEIVE_MANY_MAX, *, timeout: float | None = None) -> Batch:
        """Take what has arrived, at least one message and at most `limit`; wait for the first."""
        return await within(self._claim().receive_many(limit), timeout, TimeoutError)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self._claim().receive()
        except ConversationClosed:
            raise StopAsyncIteration from None
