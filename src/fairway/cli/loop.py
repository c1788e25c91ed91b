"""The loop under a verb that waits: signals end it cleanly, and what a conversation came to becomes an exit code.

Ctrl-C and SIGTERM cancel the verb once; it tells what was achieved on its way out, and the command leaves with 130 or
143. What goes wrong inside a callback of the loop ends the verb as a defect, in one line like every other.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from fairway.cli.exits import ExitCode
from fairway.core.events import NOT_SENT
from fairway.dtls.errors import HANDSHAKE_FAILED
from fairway.net import ConnectRefused, ConnectUnknown, DeliveryUnknown, OutcomeRefused, OutcomeUnknown
from fairway.net.urls import DTLS

MEANINGS: dict[type[Exception], str] = {
    ConnectUnknown: "nobody listens there, or something on the way drops UDP",
    ConnectRefused: "see that somebody listens there, and for the same protocol",
    DeliveryUnknown: "what was sent may have arrived",
}
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Remembers which signal ended the verb, if one did."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.defect: Exception | None = None

    def watch(self) -> None:
        """Have signals, and callbacks that fail, cancel the task that calls this."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        for number in SIGNALS:
            with suppress(NotImplementedError, RuntimeError):  # not on every platform, and only in the main thread
                loop.add_signal_handler(number, self._end, task, number)
        if not os.environ.get("FAIRWAY_DEBUG"):
            loop.set_exception_handler(lambda _, context: self._fail(task, context))

    def _end(self, task: asyncio.Task[Any], number: int) -> None:
        self.signal = number
        task.cancel()

    def _fail(self, task: asyncio.Task[Any], context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self.defect is None:
            self.defect = error if isinstance(error, Exception) else RuntimeError(context["message"])
            task.cancel()


def run(verb: Callable[[Interruption], Coroutine[Any, Any, int]], url: str = "") -> int:
    """Run a verb that speaks with the URL, if with one, and return its exit code."""
    logging.basicConfig(format="fairway: %(message)s", level=logging.WARNING)
    interruption = Interruption()

    async def main() -> int:
        interruption.watch()
        return await verb(interruption)

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        if interruption.defect is not None:
            raise interruption.defect from None
        return ExitCode(128 + (interruption.signal or signal.SIGINT))
    except OutcomeUnknown as error:
        return complain(said_of(error, url), ExitCode.UNKNOWN)
    except OutcomeRefused as error:
        code = ExitCode.UNKNOWN if str(error) == NOT_SENT else ExitCode.REFUSED
        return complain(said_of(error, url), code)


def said_of(error: BaseException, url: str, *, silent: bool = False) -> str:
    """Return the sentence for an outcome: with whom, what happened, and what that means.

    `silent` is a peer of which nothing ever came: as a rule that is known when nobody answers a call, but rup and
    pydevts call nobody before the first message."""
    sentence = str(error) if not url or str(error).startswith(url.partition("?")[0]) else f"{url}: {error}"
    if HANDSHAKE_FAILED in sentence:
        return sentence
    meaning = next((text for kind, text in MEANINGS.items() if isinstance(error, kind)), "")
    if isinstance(error, ConnectUnknown) or (silent and isinstance(error, DeliveryUnknown)):
        meaning += _other_kind(url)
    return f"{sentence}; {meaning}" if meaning else sentence


def _other_kind(url: str) -> str:
    """Return a hint at the commonest cause of silence beside the others: a plain caller at a DTLS port, or the reverse.

    Neither end can tell: each drops what it cannot read.
    """
    scheme = url.partition("://")[0]
    plain = scheme.removesuffix(DTLS)
    if not scheme:
        return ""
    return f", or the port is plain ({plain}://)" if scheme != plain else f", or the port is for DTLS ({plain}+dtls://)"


def complain(reason: str, code: ExitCode) -> ExitCode:
    """Print one line on standard error, why the command leaves with this code, and return the code."""
    print(f"fairway: {' '.join(reason.split())}", file=sys.stderr, flush=True)
    return code
