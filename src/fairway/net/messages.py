"""What an application takes out of an inbox: messages, requests, parts, and whole batches of messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from fairway.core.events import Receipt

if TYPE_CHECKING:
    from asyncio import Future

    from fairway.core.machine import Buffer
    from fairway.net.connection import Connection


class Message:
    """One received message. `peer` is the conversation it came on; answer there.

    With deferred acknowledgement the sender is told only when `commit` is called; otherwise `commit` does nothing.
    """

    __slots__ = ("_run", "body", "id", "peer", "reliable")

    def __init__(
        self, peer: Connection, identity: int | str, body: bytes, reliable: bool = True, run: Run | None = None
    ) -> None:
        self.peer = peer
        self.id = identity
        self.body = body
        self.reliable = reliable
        self._run = run

    @property
    def device(self) -> str | None:
        """The sender's authenticated name; None on a plain port."""
        return self.peer.device

    @property
    def receipt(self) -> Receipt:
        return Receipt(self.peer.identity, self.id)

    def commit(self) -> None:
        """Acknowledge the message now: it is safe with the application. May be called from any thread."""
        self.peer._commit(self.receipt, self._run)

    def __repr__(self) -> str:
        shown = self.body if len(self.body) <= 32 else self.body[:29] + b"..."
        return f"<{type(self).__name__} {self.id} from {self.peer.url}: {shown!r}>"


class Request(Message):
    """A message whose sender waits for an answer (udpc)."""

    __slots__ = ("asynchronous",)

    def __init__(self, peer: Connection, identity: int, body: bytes, asynchronous: bool) -> None:
        super().__init__(peer, identity, body)
        self.asynchronous = asynchronous

    def reply(self, body: Buffer) -> Future[None]:
        """Answer. The response is kept and sent again for each duplicate of the request; there is no acknowledgement,
        and nothing is raised if the requester has left."""
        return self.peer._answer(self.id, body)

    async def reply_with_request(self, body: Buffer, *, timeout: float | None = None) -> Message:
        """Answer and ask in one message, and return the answer to that."""
        return await self.peer._answer_with_request(self.id, body, timeout)


class Part(Message):
    """A part of a large message (rup), for an application that spools it; a message with an empty body ends it."""

    __slots__ = ("offset", "total")

    def __init__(self, peer: Connection, identity: str, offset: int, total: int, body: bytes) -> None:
        super().__init__(peer, identity, body)
        self.offset = offset
        self.total = total

    def commit(self) -> None:
        """Do nothing: the message that ends the parts is what is committed."""


class Run:
    """Messages of one peer with consecutive ids, the first of which is `first`."""

    __slots__ = ("bodies", "first", "peer", "reliable")

    def __init__(self, peer: Connection, first: int | str, bodies: Sequence[bytes], reliable: bool = True) -> None:
        self.peer = peer
        self.first = first
        self.bodies = bodies
        self.reliable = reliable

    @property
    def receipt(self) -> Receipt:
        return Receipt(self.peer.identity, self.first, len(self.bodies))

    def __len__(self) -> int:
        return len(self.bodies)

    def __iter__(self) -> Iterator[Message]:
        if isinstance(self.first, str):
            yield Message(self.peer, self.first, self.bodies[0], self.reliable)
            return
        for identity, body in enumerate(self.bodies, self.first):
            yield Message(self.peer, identity, body, self.reliable, self)

    def part(self, start: int, end: int) -> Run:
        """Return the messages from `start` to `end`, counted from 0, as a run of their own."""
        first = self.first if isinstance(self.first, str) else self.first + start
        return Run(self.peer, first, self.bodies[start:end], self.reliable)


class Batch:
    """What `receive_many` took: messages in the order of their arrival, made only when they are read one by one."""

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs: list[Run | Message] = []

    @property
    def bodies(self) -> list[bytes]:
        """All bodies in order."""
        return list(chain.from_iterable(run.bodies if isinstance(run, Run) else (run.body,) for run in self.runs))

    def __len__(self) -> int:
        return sum(len(run) if isinstance(run, Run) else 1 for run in self.runs)

    def __iter__(self) -> Iterator[Message]:
        for run in self.runs:
            if isinstance(run, Run):
                yield from run
            else:
                yield run

    def commit(self) -> None:
        """Acknowledge all of them now. May be called from any thread."""
        for run in self.runs:
            if isinstance(run, Run):
                run.peer._commit(run.receipt)
            else:
                run.commit()
