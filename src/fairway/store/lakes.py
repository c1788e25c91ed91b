"""A lake: its marker and where things lie in it (`core/layout.py` has the names)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairway.core import layout
from fairway.core.errors import FairwayError
from fairway.store.delta import Delta
from fairway.store.files import make_folder, write_file
from fairway.store.locks import FileLock, Held
from fairway.store.places import Place, place_of


class NotALake(FairwayError):
    """The folder cannot be used as a lake; the message says why."""


class TableBusy(FairwayError):
    """Another process writes to the table."""


class Lake:
    """A lake: its places and its locks."""

    def __init__(self, where: Path | str, *, create: bool = True) -> None:
        """Open the lake, or make one of an empty or missing folder; a folder with anything else in it is refused."""
        self.place = place_of(where)
        self.path = self.place.folder
        self._check(create)
        for folder in layout.FOLDERS if create else ():
            make_folder(self.path / folder)

    def _check(self, create: bool) -> None:
        marker = self.path / layout.MARKER
        if marker.exists():
            check_marker(self.path, marker.read_text())
            return
        if self.path.exists() and not self.path.is_dir():
            raise NotALake(f"{self.path} is a file: name a folder.")
        found = sorted(os.listdir(self.path)) if self.path.exists() else []
        strange = [name for name in found if layout.is_strange(name)]
        if strange:
            raise NotALake(f"{self.path} is no lake and holds other things ({strange[0]}): name another folder.")
        if not create and not found:
            raise NotALake(f"{self.path} is no lake: fairway gateway, stream and analyze make one.")
        if create:
            make_folder(self.path)
            write_file(marker, layout.MARKER_TEXT)

    @property
    def landing(self) -> Place:
        """Where gateways put sealed segments."""
        return self.place / layout.LANDING

    @property
    def gateways(self) -> Path:
        """Where gateways keep their journals."""
        return self.path / layout.GATEWAYS

    @property
    def captures(self) -> Path:
        """Where captures lie, read once."""
        return self.path / layout.CAPTURES

    @property
    def tables(self) -> Path:
        """Where the tables are."""
        return self.path / layout.TABLES

    @property
    def checkpoints(self) -> Path:
        """Where an analysis notes what its tables are made of."""
        return self.path / layout.CHECKPOINTS

    def table(self, name: str) -> Path:
        """Return the folder of a table."""
        return self.tables / name

    def delta(self, name: str) -> Delta:
        """Return a Delta table of the lake, which need not be there."""
        return Delta(self.place / layout.TABLES / name)

    @contextmanager
    def lock(self, table: str, holder: str) -> Iterator[None]:
        """Hold a table for writing; `holder` is what others are told ("fairway stream")."""
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


def check_marker(lake: Path, version: str) -> None:
    """Refuse a lake of another layout."""
    if version == layout.MARKER_TEXT:
        return
    if version == "1\n":
        raise NotALake(f"{lake} was made by an earlier Fairway, before Delta tables: use a new folder.")
    raise NotALake(f"{lake} has the lake layout {version.strip()!r}: use the Fairway that made it.")
