"""The same without asyncio, for scripts and notebooks: calls that wait.

    from fairway.net import blocking

    with blocking.connect("udpc://127.0.0.1:9000") as connection:
        connection.send(b"hello")

One event loop in one background thread serves all; it keeps heartbeats and repeats going between calls. A call may be
made from any thread. `timeout` raises `TimeoutError`; the conversation stays usable.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import Any, Generic, Self, TypeVar

from fairway.core.errors import BadMessage
from fairway.core.machine import Buffer
from fairway.net import opening
from fairway.net.connection import Connection as AsyncConnection
from fairway.net.counters import EndpointStatistics
from fairway.net.inbox import RECEIVE_MANY_MAX
from fairway.net.link import Io
from fairway.net.listener import Listener as AsyncListener
from fairway.net.listener import Served
from fairway.net.messages import Batch, Message
from fairway.net.messages import Request as AsyncRequest
from fairway.net.opening import CLOSE_TIMEOUT_S
from fairway.net.outcomes import ConversationClosed, DeliveryUnknown, within
from fairway.net.recorder import Trace
from fairway.net.urls import Setting

T = TypeVar("T")

_starting = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def _background() -> asyncio.AbstractEventLoop:
    """Return the loop of the background thread, started when it is first needed."""
    global _loop  # noqa: PLW0603
    with _starting:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="fairway", daemon=True).start()
        return _loop


def _wait(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the background loop and wait for its result; on any way out it is not left running.

    A timeout is kept on the loop: a limit in this thread could cancel what has just taken a message.
    """
    future = asyncio.run_coroutine_threadsafe(work, _background())
    try:
        return future.result()
    finally:
        future.cancel()


async def _await(call: Callable[[], Awaitable[T]]) -> T:
    """Make the call on the loop of whatever it returns, too."""
    return await call()


Source = TypeVar("Source", bound=AsyncConnection | AsyncListener)


class _Receiving(Generic[Source]):
    """What a connection and a listener have in common."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def receive(self, *, timeout: float | None = None) -> Message:
        return _wait(self._source.receive(timeout=timeout))

    def receive_many(self, limit: int = RECEIVE_MANY_MAX, *, timeout: float | None = None) -> Batch:
        return _wait(self._source.receive_many(limit, timeout=timeout))

    def __iter__(self) -> Iterator[Message]:
        while True:
            try:
                yield self.receive()
            except ConversationClosed:
                return

    def close(self, timeout_s: float | None = None) -> None:
        """Flush, then close. Twice is fine."""
        _wait(self._source.close(timeout_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


class Connection(_Receiving[AsyncConnection]):
    """A conversation with one peer, whose calls wait."""

    @property
    def url(self) -> str:
        return self._source.url

    @property
    def device(self) -> str | None:
        """The peer's authenticated name; None on a plain port."""
        return self._source.device

    @property
    def statistics(self) -> EndpointStatistics:
        return self._source.statistics

    def send(self, body: Buffer, *, reliable: bool = True, timeout: float | None = None) -> None:
        _wait(self._source.send(body, reliable=reliable, timeout=timeout))

    def send_many(self, bodies: Iterable[Buffer], *, timeout: float | None = None) -> int:
        """Send messages in order and return their number when all are acknowledged."""
        sequence = list(bodies)
        work = _await(lambda: self._source.send_many(sequence))
        return _wait(within(work, timeout, DeliveryUnknown))

    def request(self, body: Buffer, *, timeout: float | None = None) -> Message:
        return _wait(self._source.request(body, timeout=timeout))

    def ping(self, *, timeout: float | None = None) -> int:
        """Return the round-trip time in microseconds."""
        return _wait(within(_await(self._source.ping), timeout, DeliveryUnknown))


class Listener(Served, _Receiving[AsyncListener]):
    """Sockets that anyone may call, whose calls wait."""

    def __init__(self, source: AsyncListener) -> None:
        Served.__init__(self, source._served)
        _Receiving.__init__(self, source)

    def connect(self, url: str, *, timeout: float | None = None) -> Connection:
        """Open a conversation from the listening socket."""
        return Connection(_wait(self._source.connect(url, timeout=timeout)))


def connect(
    url: str,
    *,
    timeout: float | None = None,
    io: Io = "auto",
    trace: Trace | None = None,
    close_timeout_s: float = CLOSE_TIMEOUT_S,
    **options: Setting,
) -> Connection:
    """Open a conversation; use it in a `with`, or close it."""
    settings = {"io": io, "trace": trace, "close_timeout_s": close_timeout_s, **options}
    return Connection(_wait(_await(lambda: opening.connect(url, timeout=timeout, **settings))))  # type: ignore[arg-type]


def listen(
    *urls: str,
    io: Io = "auto",
    trace: Trace | None = None,
    close_timeout_s: float = CLOSE_TIMEOUT_S,
    **options: Setting,
) -> Listener:
    """Listen on one or more URLs; use it in a `with`, or close it."""
    settings = {"io": io, "trace": trace, "close_timeout_s": close_timeout_s, **options}
    return Listener(_wait(_await(lambda: opening.listen(*urls, **settings))))  # type: ignore[arg-type]


def reply(request: Message, body: Buffer) -> None:
    """Answer a received request (udpc)."""
    if not isinstance(request, AsyncRequest):
        raise BadMessage("only a request can be answered; this message asks for nothing")
    _wait(_await(lambda: request.reply(body)))


def answering(peer: AsyncConnection) -> Connection:
    """Return the calls that wait for the peer of a received message."""
    return Connection(peer)
