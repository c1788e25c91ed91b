"""The gateway's folders, in the lake or beside it, made and checked at the start, and the lock on its journal."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from uuid import uuid4

from fairway.core import layout
from fairway.core.errors import BadOption, FairwayError
from fairway.core.tables import MESSAGES
from fairway.gateway.errors import JournalInUse, LakeUnusable
from fairway.store.delta import Delta, NoTable
from fairway.store.files import FileLock, Held, make_folder, write_file
from fairway.store.lakes import Lake
from fairway.store.locations import location_of

LOCK = "lock"
SPOOL = "spool"
SEALED_TO = "sealed-to"
"""A note beside the journal: the last offset that was ever sealed. It outlives the journal, and the segments."""

OWNER = "owner"
"""A note beside the journal, and in an object store under the gateway's name: which journal has the name."""

_log = logging.getLogger("fairway.gateway")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_name(name: str) -> None:
    """Raise `BadOption` unless the name can be that of a folder, and of a gateway in a table."""
    if not _NAME.fullmatch(name):
        raise BadOption(f"the name {name!r} must be letters, digits, '.', '_' and '-', at most 64 of them")


def prepare_lake(lake: Path | str) -> Lake:
    """Make the lake if there is none, and see that it can be written."""
    try:
        opened = Lake(lake)
        if opened.location.is_folder:
            probe = opened.path / layout.STAGING / f".probe-{os.getpid()}"
            probe.write_bytes(b"")
            probe.unlink()
    except OSError as error:
        if not location_of(lake).is_folder:
            raise LakeUnusable(f"{lake}: {error.strerror}") from error
        raise LakeUnusable(
            f"the lake {lake} cannot be written: {error.strerror}; name another with --lake, or let this user write"
        ) from error
    return opened


def journals(lake: Path | str, journal: Path | str | None = None) -> Path:
    """Return the folder in which gateways of this machine keep their journals."""
    return location_of(lake).folder / layout.GATEWAYS if journal is None else Path(journal)


class Home:
    """Where one gateway keeps its things. Only the holder of the lock writes there."""

    def __init__(self, lake: Path | str, name: str, journal: Path | str | None = None) -> None:
        """`journal` is the folder for what must be on a disk of this machine; in the lake, if that is a folder."""
        location = self._location = location_of(lake)
        self.name = name
        self.folder = journals(lake, journal) / name
        self.journal = self.folder / layout.JOURNAL
        self.sealed_to = self.folder / SEALED_TO
        self.spool = self.folder / SPOOL
        # A rename stays on one file system; what is uploaded may lie beside the journal.
        staged = location.folder / layout.STAGING if location.is_folder else self.folder / layout.STAGING
        self.staging = staged / f"gateway-{name}"
        self.landing = location / layout.LANDING / name
        self.messages = Delta(location / layout.TABLES / MESSAGES.name)
        self._lock: FileLock | None = None

    def take(self) -> None:
        """Make the folders and take the lock; raise `JournalInUse`."""
        landing = [self.landing.folder] if self.landing.is_folder else []
        for folder in (self.folder, self.spool, *landing, self.staging):
            make_folder(folder)
        try:
            self._lock = FileLock(self.folder / LOCK, str(os.getpid()))
        except Held as error:
            raise JournalInUse(
                f"the journal {self.journal} is in use by process {str(error) or 'of another gateway'}; stop that one, "
                f"or give this gateway a name of its own with --name"
            ) from None
        if not self._location.is_folder:
            try:
                self._claim()
            except BaseException:
                self.release()
                raise

    def _claim(self) -> None:
        """Take the name in the lake, or raise `JournalInUse`: no lock reaches from one machine to another."""
        note, claims = self.folder / OWNER, self._location / layout.GATEWAYS / self.name
        if not note.exists():
            write_file(note, f"{uuid4()} {os.uname().nodename}:{self.folder.absolute()}\n")
        try:
            claims.write(OWNER, note.read_text())
        except FileExistsError:
            other = claims.read(OWNER).decode()
            if other != note.read_text():
                raise JournalInUse(
                    f"the name {self.name} belongs to the journal at {other.strip().partition(' ')[2]}; give this "
                    f"gateway a name of its own with --name or, if that journal is lost, remove {claims}/{OWNER}"
                ) from None

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def first_offset(self) -> int:
        """Return the lowest offset that a new message may have: above every one that was ever sealed.

        An offset that is given twice loses a message: the stream has landed the first and takes the second for it. So
        three witnesses are asked, each of which may be gone: the segments in `landing/` (removed some time after they
        landed), the note beside the journal (not there for a journal of an earlier version), and the table.
        """
        landed = self.landed()
        return max(landed[-1][1] + 1 if landed else 0, self._noted(), self._in_table())

    def _noted(self) -> int:
        try:
            return int(self.sealed_to.read_text()) + 1
        except FileNotFoundError:
            return 0
        except (OSError, ValueError) as error:
            _log.warning("%s cannot be read (%s); the next segment writes it anew", self.sealed_to, error)
            return 0

    def _in_table(self) -> int:
        try:
            return self.messages.position(self.messages.open(), layout.progress(self.name))
        except NoTable:
            return 0
        except (FairwayError, OSError) as error:
            _log.warning("how far the stream is cannot be read: %s", error)
            return 0

    def landed(self) -> list[tuple[int, int]]:
        """Return the ranges of the segments that lie in the landing folder, in order."""
        found = (layout.segment_range(name) for name in self.landing.names())
        return sorted(one for one in found if one is not None)
