"""Running a gateway in this process: signals, the lines that it says, its exit code."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable

from fairway.gateway import logs, worker_count
from fairway.gateway.service import Service
from fairway.gateway.settings import Settings
from fairway.gateway.supervisor import Supervisor

KILL_AGAIN_S = 0.05

EXIT_DONE = 0
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


class Stopping:
    """The first signal asks for a drain, the second ends the process at once; nothing acknowledged is lost."""

    def __init__(self, at_once: Callable[[], None] | None = None) -> None:
        self.event = asyncio.Event()
        self.code = EXIT_DONE
        self._at_once = at_once
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)

    def _signalled(self, number: int) -> None:
        if self.event.is_set():
            if self._at_once is not None:
                self._at_once()
            os._exit(EXIT_TERMINATED if number == signal.SIGTERM else EXIT_INTERRUPTED)
        self.code = EXIT_INTERRUPTED if number == signal.SIGINT else EXIT_DONE
        self.event.set()


def announce(urls: list[str], metrics: list[str]) -> None:
    """Says where the gateway listens."""
    for url in urls:
        print(f"listening {url}", file=sys.stderr, flush=True)
    for url in metrics:
        print(f"metrics {url}", file=sys.stderr, flush=True)


def run(settings: Settings) -> int:
    """Serves until a signal ends it, and returns the exit code."""
    logs.set_up(settings.log, settings.name, verbose=settings.verbose)
    if settings.is_open:
        logs.warn_open(settings.urls)
    worker_count.settle_workers(settings.lake, settings.name, settings.workers, settings.journal)
    return asyncio.run(_supervise(settings) if settings.workers > 1 else _serve(settings))


async def _serve(settings: Settings) -> int:
    stopping = Stopping()
    service = Service(settings, settings.name)
    await service.open()
    announce(service.urls, [service.metrics_url] if service.metrics_url else [])
    await service.run(stopping.event)
    return stopping.code


async def _supervise(settings: Settings) -> int:
    supervisor = Supervisor(settings)
    stopping = Stopping(supervisor.kill)
    if not await _opened(supervisor, stopping.event):
        return stopping.code
    announce(supervisor.urls, supervisor.metrics_urls)
    await supervisor.run(stopping.event)
    return stopping.code


async def _opened(supervisor: Supervisor, stop: asyncio.Event) -> bool:
    """Waits until all workers serve; returns false if told to stop before, with none of them left."""
    opening, stopped = asyncio.create_task(supervisor.open()), asyncio.create_task(stop.wait())
    await asyncio.wait({opening, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not stop.is_set():
        await opening
        return True
    # Not cancelled: a process that is just being made would be lost sight of.
    while not opening.done():
        supervisor.kill()
        await asyncio.wait({opening}, timeout=KILL_AGAIN_S)
    await asyncio.gather(opening, return_exceptions=True)
    await supervisor.end()
    return False
