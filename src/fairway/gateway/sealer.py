"""Sealing: committed messages become Parquet segments under `landing/`, each step repeatable.

plan (in the journal) ─ write aside ─ sync ─ rename ─ sync the folder ─ note ─ mark (in the journal) ─ delete the rows
                                    └─ or one PUT, refused if the name is taken ─┘

A crash after the plan repeats from there with the same range, so with the same name and rows; whoever has read the
segment already finds what it read. A crash after the mark only deletes.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from fairway.core import layout
from fairway.gateway.adapter import wall_us
from fairway.gateway.errors import JournalFailed
from fairway.gateway.figures import Figures
from fairway.gateway.home import Home
from fairway.gateway.journal import SUSPECT, Journal, Row, open_reader, read_rows
from fairway.gateway.settings import Settings
from fairway.store import crashpoints
from fairway.store.files import write_file

LOOK_S = 0.1
RETRY_S = 1.0
DELETED_BYTES = 4 << 20
DELETED_ROWS_MIN, DELETED_ROWS_MAX = 64, 8_192
"""What is removed in one transaction, so that commits do not wait long."""

Result = TypeVar("Result")

_log = logging.getLogger("fairway.gateway")


class Published(NamedTuple):
    rows: int
    messages: int
    size_bytes: int
    file_bytes: int
    spooled: tuple[str, ...]
    """Files of large messages that are now in the segment."""


class Sealer:
    """Makes a segment when enough has come, or when the oldest message waited long enough."""

    def __init__(
        self,
        journal: Journal,
        home: Home,
        writer: ThreadPoolExecutor,
        figures: Figures,
        settings: Settings,
    ) -> None:
        self._journal = journal
        self._home = home
        self._writer = writer
        self._figures = figures
        self._after_s = settings.seal_after_us / 1e6
        self._segment_bytes = settings.seal_bytes
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "sealer")
        self._waits_since_s: float | None = None
        self._sealing: asyncio.Future[bool] | None = None
        self.failed: asyncio.Future[None] = self._loop.create_future()
        """Fails when the journal can no longer be trusted."""
        figures.backlog_messages, figures.backlog_bytes = journal.unsealed()

    async def run(self) -> None:
        """Seal until cancelled; what cannot be written now is tried again. A segment that was begun is finished by
        `seal_all`: cut off behind its mark, its rows and files would lie there until the next start."""
        await self._loop.run_in_executor(self._thread, _load)
        while True:
            if self._is_due():
                self._sealing = asyncio.ensure_future(self.seal())
                try:
                    await asyncio.shield(self._sealing)
                except JournalFailed as error:
                    self.failed.set_exception(error)
                    return
                except (OSError, sqlite3.Error) as error:
                    self._figures.sealing_failed(f"{error}; see that the lake can be written and has room")
                    await asyncio.sleep(RETRY_S)
            else:
                await asyncio.sleep(LOOK_S)

    def _is_due(self) -> bool:
        figures = self._figures
        if figures.backlog_messages == 0:
            self._waits_since_s = None
            return False
        now_s = self._loop.time()
        if self._waits_since_s is None:
            self._waits_since_s = now_s
        return figures.backlog_bytes >= self._segment_bytes or now_s - self._waits_since_s >= self._after_s

    async def seal(self) -> bool:
        """Make one segment; return whether there was anything to seal."""
        journal = self._journal
        planned = await self._write(journal.planned) or await self._write(journal.plan, self._segment_bytes)
        if planned is None:
            return False
        self._waits_since_s = None
        crashpoints.reached("seal-planned")
        first, last = planned
        try:
            published = await self._loop.run_in_executor(self._thread, self._publish, first, last)
        except JournalFailed as error:
            await self._write(journal.note, SUSPECT, str(error))
            raise
        await self._write(journal.mark, first, last, published.file_bytes, wall_us())
        crashpoints.reached("seal-marked")
        self._figures.sealed(published.messages, published.size_bytes, published.file_bytes)
        rows_max = DELETED_BYTES * published.rows // max(1, published.size_bytes)
        await self._remove_sealed(min(max(rows_max, DELETED_ROWS_MIN), DELETED_ROWS_MAX))
        for name in published.spooled:
            (self._home.spool / name).unlink(missing_ok=True)
        crashpoints.reached("seal-deleted")
        _log.debug("sealed %d to %d, %d bytes", first, last, published.file_bytes)
        return True

    def _publish(self, first: int, last: int) -> Published:
        """Write the segment aside and give it its name."""
        from fairway.gateway import columns

        crashpoints.check_room()
        home = self._home
        name = layout.segment_name(first, last)
        reader = open_reader(home.journal)
        try:
            rows = read_rows(reader, first, last)
        finally:
            reader.close()
        self._check(rows)
        staged = home.staging / name
        file_bytes = columns.write(home.name, rows, home.spool, staged)
        crashpoints.reached("seal-written")
        try:
            home.landing.publish(staged, name, points=("seal-synced", "seal-renamed"))
        except FileExistsError as error:
            # By a crash behind the PUT, or a PUT that was sent again; otherwise by another gateway of this name.
            if not columns.equal(home.landing, name, staged):
                raise FileExistsError(
                    f"{home.landing}/{name} holds other messages: another gateway is called {home.name}, too; give "
                    "each a name of its own with --name"
                ) from error
        staged.unlink(missing_ok=True)
        # Not earlier: a journal that begins behind a segment which never got its name would leave a gap.
        write_file(home.sealed_to, f"{last}\n")
        crashpoints.reached("seal-published")
        size = sum(row.body_bytes for row in rows)
        spooled = tuple(row.spool for row in rows if row.spool is not None)
        return Published(len(rows), sum(row.messages for row in rows), size, file_bytes, spooled)

    def _check(self, rows: Sequence[Row]) -> None:
        """Raise `JournalFailed` if a row is not what was committed: it can be left out only where the rest is numbered
        anew, which is at the start."""
        wrong = [row.offset for row in rows if not row.is_sound]
        if wrong:
            raise JournalFailed(
                f"the journal {self._home.journal} holds {len(wrong)} rows that differ from their checksum, from "
                f"offset {wrong[0]} on; check the disk, and start again: that puts the file aside and goes on "
                "without them"
            )

    async def _remove_sealed(self, rows_max: int) -> None:
        """Remove rows that lie in segments, so many at a time."""
        while await self._write(self._journal.remove_sealed, rows_max):
            pass

    async def seal_all(self) -> None:
        """Finish the segment that is being made, and seal the rest."""
        if self._sealing is not None and not self._sealing.done():
            await self._sealing
        while await self.seal():
            pass

    async def _write(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Have the one thread that writes the journal do something."""
        return await self._loop.run_in_executor(self._writer, work, *arguments)

    def close(self) -> None:
        if self._sealing is not None:
            self._sealing.cancel()
        self._thread.shutdown()


def _load() -> None:
    """Load Arrow while there is time, not when the first segment is due."""
    from fairway.gateway import columns  # noqa: F401
