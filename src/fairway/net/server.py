"""A handler for each connection, as `asyncio.start_server` has it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from fairway.net.connection import Closing, Connection
from fairway.net.listener import Listener, Served
from fairway.net.outcomes import ConversationClosed, OutcomeRefused, OutcomeUnknown

_log = logging.getLogger("fairway.net")


class Server(Served, Closing):
    """Runs a handler for each connection that a peer opens, and closes the connection when the handler returns.

    A peer that leaves ends the iteration over its messages; what its handler meets because of that (an outcome, a
    closed conversation) ends the handler quietly. Any other exception of a handler goes to the loop's exception
    handler. Either way the server goes on.
    """

    def __init__(
        self, listener: Listener, handler: Callable[[Connection], Awaitable[None]], close_timeout_s: float
    ) -> None:
        super().__init__(listener._served)
        self._listener = listener
        self._handler = handler
        self._close_timeout_s = close_timeout_s
        self._loop = asyncio.get_running_loop()
        self._handling: set[asyncio.Task[None]] = set()
        self._accepting = self._loop.create_task(self._accept())

    async def _accept(self) -> None:
        async for connection in self._listener.connections():
            handling = self._loop.create_task(self._handle(connection))
            self._handling.add(handling)
            handling.add_done_callback(self._handling.discard)

    async def _handle(self, connection: Connection) -> None:
        connection._claim()
        try:
            await self._handler(connection)
        except (OutcomeRefused, OutcomeUnknown, ConversationClosed) as error:
            _log.debug("%s: the handler ended, because %s", connection.url, error)
        except Exception as error:
            message = f"the handler of {connection.url} failed"
            self._loop.call_exception_handler({"message": message, "exception": error})
        finally:
            await connection.close()

    async def serve_forever(self) -> None:
        """Serve until this is cancelled, or until the server is closed elsewhere."""
        try:
            await asyncio.shield(self._accepting)
        finally:
            await self.close()

    async def close(self) -> None:
        """Flush what was accepted, close everything, and wait for the handlers. Twice is fine."""
        await self._listener.close()
        await self._accepting
        if self._handling:
            _, slow = await asyncio.wait(self._handling, timeout=self._close_timeout_s)
            for handling in slow:
                handling.cancel()
            if slow:
                await asyncio.wait(slow)
