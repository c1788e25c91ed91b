"""Large messages on their way in: parts go to a file as they come, so that none is held in memory.

A file is synced in the transaction that commits its message. One whose parts stop coming goes away some time after the
machine has forgotten the message. While the disk has no room, the parts that a machine has already accepted are kept
here and its socket is not read: their number is bounded by what one turn of the loop brings.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fairway.core import events
from fairway.core.events import Peer
from fairway.gateway.adapter import Spooled
from fairway.net.endpoint import Endpoint
from fairway.store import crashpoints
from fairway.store.files import sync

FILES_OPEN_MAX = 128
RETRY_S = 0.2
SWEEP_S = 5.0

_log = logging.getLogger("fairway.gateway")


@dataclass(slots=True, eq=False)
class Unfinished:
    """A message of which parts have come."""

    name: str
    total: int
    heard_s: float = 0.0


class Waiting(NamedTuple):
    """A part for which the disk had no room."""

    endpoint: Endpoint
    name: str
    event: events.PartReceived


class Spool:
    """Files of large messages in one folder."""

    def __init__(self, folder: Path, forget_s: float) -> None:
        self._folder = folder
        self._forget_s = forget_s
        self._loop = asyncio.get_running_loop()
        self._unfinished: dict[tuple[Peer, str], Unfinished] = {}
        self._open: OrderedDict[str, int] = OrderedDict()
        self._serial = time.time_ns()
        """Part of every name: a message that comes again much later gets another file."""
        self._waiting: list[Waiting] = []
        """Parts for which the disk had no room."""

    def clean(self, keep: Collection[str]) -> None:
        """Remove what an earlier process left unfinished."""
        for name in os.listdir(self._folder):
            if name not in keep:
                (self._folder / name).unlink()

    # Parts.

    def part(self, endpoint: Endpoint, event: events.PartReceived) -> None:
        """Write a part to its file, or keep it until there is room."""
        name = self._file_of(event)
        if self._waiting or not self._write(name, event):
            if not self._waiting:
                _log.warning("no room to spool a message of %d bytes; not reading %s", event.total, endpoint.url)
                self._loop.call_later(RETRY_S, self._retry)
            self._waiting.append(Waiting(endpoint, name, event))
            endpoint.pause()

    def _file_of(self, event: events.PartReceived) -> str:
        """Return the file of a message; a new one for one that begins anew with another size."""
        known = self._unfinished.get((event.peer, event.id))
        if known is None or known.total != event.total:
            self._serial += 1
            known = Unfinished(f"{event.id}-{self._serial}", event.total)
            self._unfinished[event.peer, event.id] = known
        known.heard_s = self._loop.time()
        return known.name

    def _write(self, name: str, event: events.PartReceived) -> bool:
        try:
            crashpoints.check_room()
            body, offset = memoryview(event.body), event.offset
            while body:
                written = os.pwrite(self._descriptor(name), body, offset)
                body, offset = body[written:], offset + written
        except OSError as error:
            _log.debug("spooling failed: %s", error)
            return False
        return True

    def _retry(self) -> None:
        while self._waiting and self._write(self._waiting[0].name, self._waiting[0].event):
            endpoint = self._waiting.pop(0).endpoint
            if all(one.endpoint is not endpoint for one in self._waiting):
                endpoint.resume()
        if self._waiting:
            self._loop.call_later(RETRY_S, self._retry)
        else:
            _log.warning("spooling again")

    def _descriptor(self, name: str) -> int:
        descriptor = self._open.get(name)
        if descriptor is None:
            if len(self._open) >= FILES_OPEN_MAX:
                os.close(self._open.popitem(last=False)[1])
            descriptor = self._open[name] = os.open(self._folder / name, os.O_RDWR | os.O_CREAT, 0o644)
        self._open.move_to_end(name)
        return descriptor

    def finished(self, event: events.MessageReceived) -> Spooled | None:
        """Return the file of a message whose last part has come; None if it was never spooled."""
        known = self._unfinished.pop((event.peer, str(event.id)), None)
        if known is None:
            return None
        if all(one.name != known.name for one in self._waiting):
            self._close(known.name)
        return Spooled(known.name, known.total)

    def sync(self, names: list[str]) -> None:
        """Make the files of finished messages durable; fail for want of room while a part of them waits.

        Called in the writer's thread.
        """
        if not {one.name for one in list(self._waiting)}.isdisjoint(names):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        for name in names:
            sync(self._folder / name)
        sync(self._folder)

    # Forgetting.

    async def sweep(self) -> None:
        """Remove files of messages that will not be finished, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_S)
            before_s = self._loop.time() - self._forget_s
            for key, known in list(self._unfinished.items()):
                if known.heard_s < before_s:
                    del self._unfinished[key]
                    self._close(known.name)
                    (self._folder / known.name).unlink(missing_ok=True)

    def _close(self, name: str) -> None:
        descriptor = self._open.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)

    def close(self) -> None:
        for name in list(self._open):
            self._close(name)
