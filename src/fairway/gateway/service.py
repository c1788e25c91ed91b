"""One gateway process: sockets, journal, sealer, from the first lock to the last acknowledgement."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from fairway.gateway.adapter import EndpointAdapter, wall_us
from fairway.gateway.committer import Committer
from fairway.gateway.errors import JournalFailed
from fairway.gateway.figures import Figures
from fairway.gateway.guard import Guard
from fairway.gateway.home import Home, prepare_lake
from fairway.gateway.journal import now_us
from fairway.gateway.salvage import open_journal
from fairway.gateway.sealer import DELETED_ROWS_MIN, Sealer
from fairway.gateway.settings import Settings, metrics_address
from fairway.gateway.spool import Spool
from fairway.gateway.worker_count import STOPPED
from fairway.net.endpoint import Endpoint
from fairway.net.opening import open_service
from fairway.store.files import sync

SPOOL_FORGET_S = 60.0
"""Twice what rup takes to forget an unfinished message."""
REMEMBER_US = 70_000_000
"""Additions are kept a little longer than the 60 s that a machine remembers from the commit on."""
REFRESH_S = 600.0
"""Every session is written anew after this time: a quiet one of udpc spends an index a second."""
FLUSH_S = 0.01
"""What the last acknowledgements get to leave."""

SET_BACK_US = 1_000_000
CLOCK_LOOK_S = 5.0

_log = logging.getLogger("fairway.gateway")


class Service:
    """A gateway that is open."""

    def __init__(self, settings: Settings, name: str) -> None:
        self.settings = settings
        self.figures = Figures()
        self.guard = Guard(settings)
        self.home = Home(settings.lake, name, settings.journal)
        self.adapters: list[EndpointAdapter] = []
        self.metrics_url: str | None = None
        self._writer = ThreadPoolExecutor(1, "journal")
        self._tasks: list[asyncio.Task[None]] = []
        self._restored = 0

    @property
    def urls(self) -> list[str]:
        """The URLs of the sockets, with their real ports."""
        return [adapter.url for adapter in self.adapters]

    async def open(self, handed: Sequence[int] = (), metrics_port_offset: int = 0) -> None:
        """Take the journal, complete what a crash left, restore the conversations, and listen."""
        prepare_lake(self.settings.lake)
        self.home.take()
        try:
            self._open_journal()
            await open_service(self.settings.plans(), self._adapter, handed=handed)
            await self._open_metrics(metrics_port_offset)
        except BaseException:
            for adapter in self.adapters:
                adapter.endpoint.leave()
            self.home.release()
            raise
        for adapter in self.adapters:
            adapter.answer_restored()
        works = (self._sealer.run(), self._spool.sweep(), self._refresh(), _watch_clock())
        self._tasks = [asyncio.create_task(work) for work in works]
        self._tell()

    def _tell(self) -> None:
        unserved = set(self.journal.endpoints()) - set(self.urls)
        for url in sorted(unserved):
            _log.warning("conversations of %s are in the journal, but it is not served now", url)
        waiting = self.figures.backlog_messages
        _log.info("serving; %d conversations restored, %d messages to seal", self._restored, waiting)

    def _open_journal(self) -> None:
        settings, home = self.settings, self.home
        self.journal = open_journal(home)
        sync(home.folder)
        self.journal.note(STOPPED, "")
        warn_if_behind(self.journal.newest_us())
        if settings.journal_bytes_max:
            self.journal.limit(settings.journal_bytes_max)
        while self.journal.remove_sealed(DELETED_ROWS_MIN):
            pass
        self._spool = Spool(home.spool, SPOOL_FORGET_S)
        self._spool.clean(self.journal.spooled())
        self._sealer = Sealer(self.journal, home, self._writer, self.figures, settings)
        self._committer = Committer(
            self.journal, self._writer, self.figures, settings, remember_us=REMEMBER_US, sync_spool=self._spool.sync
        )

    def _adapter(self, endpoint: Endpoint) -> EndpointAdapter:
        """Restore the conversations of an endpoint before it reads anything, and write down that this was done."""
        adapter = EndpointAdapter(endpoint, self._committer, self._spool, self.guard)
        adapter.restore(self.journal.states(adapter.url), _log.warning)
        at_us = now_us()
        states = [(key, at_us, state) for key, state in adapter.current()]
        self.journal.replace_states(adapter.url, states)
        self._restored += len(states)
        self.adapters.append(adapter)
        return adapter

    async def _open_metrics(self, port_offset: int) -> None:
        if self.settings.metrics is None:
            return
        from fairway.gateway.metrics import Gatherer, Page

        host, port = metrics_address(self.settings.metrics)
        gatherer = Gatherer(self.home.name, self.figures, self.adapters, self.guard)
        self._page = Page(gatherer, self.figures)
        self.metrics_url = await self._page.open(host, port + port_offset if port else 0)

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            for adapter in self.adapters:
                for peer in adapter.endpoint.machine.peers():
                    if peer.session is not None:
                        self._committer.changed(adapter, peer)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then drain; raise `JournalFailed` if the disk can no longer be trusted."""
        stopping = asyncio.ensure_future(stop.wait())
        failures: tuple[asyncio.Future[Any], ...] = (self._committer.failed, self._sealer.failed, *self._tasks)
        await asyncio.wait((stopping, *failures), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        try:
            for failed in failures:
                if failed.done():
                    failed.result()
            await self._drain()
        finally:
            await self._close()

    async def _drain(self) -> None:
        """Take nothing more, commit and acknowledge what has come, and seal it. Peers are told nothing: they go on
        with the next start."""
        for adapter in self.adapters:
            adapter.endpoint.pause()
        try:
            async with asyncio.timeout(self.settings.drain_us / 1e6):
                await self._committer.drained()
                await asyncio.sleep(FLUSH_S)
                await self._stop_tasks()
                await self._sealer.seal_all()
            self.journal.note(STOPPED, str(time.time()))
        except TimeoutError:
            _log.warning("stopped before everything was sealed; the next start goes on with it")
        except (OSError, sqlite3.Error, JournalFailed) as error:
            _log.warning("stopped before everything was sealed (%s); the next start goes on with it", error)

    async def _stop_tasks(self) -> None:
        tasks, self._tasks = [task for task in self._tasks if not task.done()], []
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task

    async def _close(self) -> None:
        await self._stop_tasks()
        for adapter in self.adapters:
            adapter.endpoint.leave()
        if self.metrics_url is not None:
            self._page.close()
        self._sealer.close()
        self._writer.shutdown()
        self._spool.close()
        self.journal.close()
        self.home.release()


def warn_if_behind(newest_us: int) -> None:
    """Log it if the day's clock, which dates messages, shows less than when the newest message was received."""
    behind_us = newest_us - wall_us()
    if behind_us > SET_BACK_US:
        _log.warning(
            "the clock was set back: it is %.0f s behind the newest message in the journal; none is lost, but messages "
            "are dated by it as it is now; check the time service",
            behind_us / 1e6,
        )


async def _watch_clock() -> None:
    """Log it when the day's clock is set back, until cancelled."""
    ahead_us = wall_us() - now_us()
    while True:
        await asyncio.sleep(CLOCK_LOOK_S)
        difference_us = wall_us() - now_us()
        if ahead_us - difference_us > SET_BACK_US:
            _log.warning(
                "the clock was set back by %.0f s; messages are dated by it as it is now; check the time service",
                (ahead_us - difference_us) / 1e6,
            )
        ahead_us = difference_us
