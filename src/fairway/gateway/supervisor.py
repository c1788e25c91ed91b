"""Several workers behind the same ports: this process binds their sockets, starts them, and starts them again.

The sockets stay open here while a worker is away: what its peers send meanwhile waits in the kernel, and no peer moves
to another worker. A worker ends when this process does, because its standard input then ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import Any

from fairway.gateway import worker_count
from fairway.gateway.errors import WorkerFailed
from fairway.gateway.settings import Settings
from fairway.net.sharing import SharedPort, bind_shared

READY_S = 30.0
RESTART_FIRST_S = 0.1
RESTART_MAX_S = 5.0
LIVED_S = 10.0
"""A worker that lived so long starts again at once."""

_log = logging.getLogger("fairway.gateway")


class Worker:
    """One worker process, in whatever life it is."""

    def __init__(self, name: str, number: int, order: dict[str, Any], descriptors: list[int]) -> None:
        self.name = name
        self._order = {**order, "name": name, "number": number, "descriptors": descriptors}
        self._descriptors = descriptors
        self.process: asyncio.subprocess.Process | None = None
        self.metrics_url: str | None = None
        self.lives = 0

    async def start(self) -> None:
        """Start the process and wait until it serves; raise `WorkerFailed`."""
        environment = dict(os.environ)
        if self.lives:
            environment.pop("FAIRWAY_CRASH_AT", None)
        self.lives += 1
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "fairway.gateway.worker", json.dumps(self._order),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, pass_fds=self._descriptors, env=environment,
            # A terminal's Ctrl-C is for the supervisor, which then asks the workers to drain.
            start_new_session=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(READY_S):
                line = await self.process.stdout.readline()
        except TimeoutError:
            line = b""
        if not line:
            self.kill()
            await self.process.wait()
            raise WorkerFailed(f"the worker {self.name} did not start; what it said stands above")
        self.metrics_url = json.loads(line)["metrics"]

    async def run(self, stopping: asyncio.Event) -> None:
        """Start the process again whenever it ends, until told to stop."""
        loop = asyncio.get_running_loop()
        pause_s = RESTART_FIRST_S
        while True:
            assert self.process is not None
            began_s = loop.time()
            code = await self.process.wait()
            if stopping.is_set():
                return
            pause_s = RESTART_FIRST_S if loop.time() - began_s > LIVED_S else min(2 * pause_s, RESTART_MAX_S)
            _log.warning("the worker %s ended with %d; starting it again", self.name, code)
            try:
                await self.start()
            except WorkerFailed as error:
                _log.error("%s; trying again in %.1f s", error, pause_s)
            await asyncio.sleep(pause_s)

    def terminate(self) -> None:
        """Ask the process to drain."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        """Not through `process`, which first looks whether the process has ended: that would take the exit code away
        from asyncio, which then complains."""
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)


class Supervisor:
    """Holds the sockets and the workers."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ports: list[SharedPort] = []
        self._workers: list[Worker] = []
        self.urls: list[str] = []

    @property
    def metrics_urls(self) -> list[str]:
        return [worker.metrics_url for worker in self._workers if worker.metrics_url]

    async def open(self) -> None:
        """Bind the sockets and start the workers; raise what keeps one of them from starting."""
        settings = self._settings
        self._ports = await bind_shared(settings.urls, settings.workers)
        self.urls = [port.url.partition("?")[0] for port in self._ports]
        order = {"settings": settings.plain(urls=[port.url for port in self._ports])}
        for number, name in enumerate(worker_count.names(settings.name, settings.workers)):
            descriptors = [port.descriptors[number] for port in self._ports]
            self._workers.append(Worker(name, number, order, descriptors))
        try:
            for worker in self._workers:
                await worker.start()
        except BaseException:
            self.kill()
            raise

    async def run(self, stop: asyncio.Event) -> None:
        """Keep the workers running until told to stop, then have them drain."""
        running = [asyncio.create_task(worker.run(stop)) for worker in self._workers]
        await stop.wait()
        for worker in self._workers:
            worker.terminate()
        await asyncio.gather(*running)

    def kill(self) -> None:
        for worker in self._workers:
            worker.kill()

    async def end(self) -> None:
        """End the workers at once, and wait until they are gone."""
        self.kill()
        for worker in self._workers:
            if worker.process is not None:
                await worker.process.wait()
