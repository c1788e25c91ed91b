"""A loop for tests: in debug mode, bounded in time, and every complaint of asyncio is a failure."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine
from typing import Any

PROTOCOLS = ("udpc", "mrp", "rup", "pydevts")
PATHS = ("gso", "mmsg", "portable", "transport")


class WatchlessLoop(asyncio.SelectorEventLoop):
    """An event loop that cannot watch a socket, as on Windows."""

    def add_reader(self, *watch: Any) -> None:  # type: ignore[override]  # whatever it is asked, it cannot
        raise NotImplementedError

    def remove_reader(self, *watch: Any) -> bool:
        raise NotImplementedError


class _Complaints(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(record.getMessage())


def run(main: Callable[[], Coroutine[Any, Any, None]], *, path: str = "auto", timeout_s: float = 120) -> None:
    """Run a test's coroutine. The path `transport` gets a loop that cannot watch sockets."""

    async def bounded() -> None:
        asyncio.get_running_loop().slow_callback_duration = timeout_s
        async with asyncio.timeout(timeout_s):
            await main()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not others, f"left running: {others}"

    complaints = _Complaints()
    logger = logging.getLogger("asyncio")
    logger.addHandler(complaints)
    factory = WatchlessLoop if path == "transport" else None
    try:
        with asyncio.Runner(debug=True, loop_factory=factory) as runner:
            runner.run(bounded())
        gc.collect()
    finally:
        logger.removeHandler(complaints)
    assert complaints.found == []


def io_of(path: str) -> Any:
    """Return the option that forces a path; the transport is what `auto` falls back to."""
    return "auto" if path == "transport" else path
