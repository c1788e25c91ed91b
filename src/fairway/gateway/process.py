"""Running a gateway in this process: signals, its log, its exit code."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime

from fairway.gateway.service import Service
from fairway.gateway.settings import Settings
from fairway.gateway.supervisor import Supervisor
from fairway.gateway.worker_count import settle_workers

KILL_AGAIN_S = 0.05

EXIT_DONE = 0
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


class JsonLines(logging.Formatter):
    """One JSON object per record: time, level, gateway, logger, text."""

    def __init__(self, gateway: str) -> None:
        super().__init__()
        self._gateway = gateway

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "gateway": self._gateway,
            "logger": record.name,
            "message": record.getMessage(),
        }
        return json.dumps(line)


def set_up_logs(style: str, gateway: str, *, verbose: bool) -> None:
    """Have everything that Fairway logs go to standard error in this style."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter(f"%(asctime)s %(levelname)s {gateway}: %(message)s")
    handler.setFormatter(JsonLines(gateway) if style == "json" else text)
    root = logging.getLogger("fairway")
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(logging.DEBUG if verbose else logging.INFO)


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
    for url in urls:
        print(f"listening {url}", file=sys.stderr, flush=True)
    for url in metrics:
        print(f"metrics {url}", file=sys.stderr, flush=True)


def run(settings: Settings) -> int:
    """Serve until a signal ends it, and return the exit code."""
    set_up_logs(settings.log, settings.name, verbose=settings.verbose)
    if settings.open_urls:
        logging.getLogger("fairway.gateway").warning(
            "anybody who reaches %s may send: take +dtls, name who may with --allow NETWORK, or listen on 127.0.0.1",
            ", ".join(settings.open_urls),
        )
    settle_workers(settings.lake, settings.name, settings.workers, settings.journal)
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
    """Wait until all workers serve; return false if told to stop before, with none of them left."""
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
