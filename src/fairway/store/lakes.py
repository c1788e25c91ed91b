"""A lake: its marker and where things lie in it (`core/layout.py` has the names)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fairway.core import layout
from fairway.core.errors import BadOption, FairwayError
from fairway.store.delta import Delta
from fairway.store.files import FileLock, Held, make_folder
from fairway.store.locations import Location, location_of

_MISREAD = re.compile(r"%[0-9A-Fa-f]{2}|\\")
"""In a path: delta-rs opens another than it has made."""


class NotALake(FairwayError):
    """The folder cannot be used as a lake; the message says why."""


class StoreUnsafe(FairwayError):
    """The object store does not do what a lake needs; the message says what."""


class TableBusy(FairwayError):
    """Another process writes to the table."""


class Lake:
    """A lake: its locations and its locks."""

    def __init__(self, where: Path | str, *, create: bool = True) -> None:
        """Open the lake, or make one where there is nothing; a location with anything else in it is refused."""
        self.location = location_of(where)
        found = _MISREAD.search(self.location.uri)
        if found:
            raise BadOption(f"{where} has {found[0]!r} in it, which delta-rs takes for something else: name another.")
        self._check(create)
        if create and self.location.is_folder:
            for folder in layout.FOLDERS:
                make_folder(self.path / folder)
        elif create:
            self._probe()

    def _check(self, create: bool) -> None:
        if self.location.is_folder and self.path.exists() and not self.path.is_dir():
            raise NotALake(f"{self.location} is a file: name a folder.")
        found = self.location.names()
        if layout.MARKER in found:
            check_marker(self.location, self.location.read(layout.MARKER).decode())
            return
        strange = [name for name in found if layout.is_strange(name)]
        if strange:
            raise NotALake(f"{self.location} is no lake and holds other things ({strange[0]}): name another folder.")
        if not create and not found:
            raise NotALake(f"{self.location} is no lake: fairway gateway, stream and analyze make one.")
        if create:
            if self.location.is_folder:
                make_folder(self.path)
            with suppress(FileExistsError):  # somebody else makes the lake at the same time
                self.location.write(layout.MARKER, layout.MARKER_TEXT)

    def _probe(self) -> None:
        """See that the store refuses to replace an object: segments and commits of tables rest on that."""
        try:
            self.location.write(layout.MARKER, layout.MARKER_TEXT)
        except FileExistsError:
            return
        raise StoreUnsafe(
            f"The store of {self.location} has replaced an object that a conditional PUT (If-None-Match: *) must not "
            "replace, so messages could be lost there: use a store that supports it."
        )

    @property
    def path(self) -> Path:
        """The folder; raise `BadOption` where the lake is in an object store."""
        return self.location.folder

    @property
    def landing(self) -> Location:
        """Where gateways put sealed segments."""
        return self.location / layout.LANDING

    @property
    def gateways(self) -> Path:
        """Where gateways keep their journals."""
        return self.path / layout.GATEWAYS

    @property
    def tables(self) -> Path:
        return self.path / layout.TABLES

    def table(self, name: str) -> Path:
        return self.tables / name

    def delta(self, name: str) -> Delta:
        """Return a Delta table of the lake, which need not be there."""
        return Delta(self.location / layout.TABLES / name)

    @contextmanager
    def lock(self, table: str, holder: str) -> Iterator[None]:
        """Hold a table for writing; `holder` is what others are told ("fairway stream").

        An object store has no locks: there the positions of a table refuse its second writer, at a commit.
        """
        if not self.location.is_folder:
            yield
            return
        make_folder(self.path / layout.LOCKS)
        try:
            lock = FileLock(self.path / layout.LOCKS / f"{table}.lock", f"{holder} (process {os.getpid()})")
        except Held as error:
            other = str(error) or "another process"
            raise TableBusy(f"{other} writes to the table {table}: stop it first, or wait for its end.") from None
        try:
            yield
        finally:
            lock.release()


def check_marker(lake: Location, version: str) -> None:
    """Refuse a lake of another layout."""
    if version == layout.MARKER_TEXT:
        return
    if version == "1\n":
        raise NotALake(f"{lake} was made by an earlier Fairway, before Delta tables: use a new one.")
    raise NotALake(f"{lake} has the lake layout {version.strip()!r}: use the Fairway that made it.")
