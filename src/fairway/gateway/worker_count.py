"""How many workers share a name: noted beside their journals, because each peer belongs to the journal of one of them.

With one worker the journal is that of the name itself; with more, worker K has the journal NAME.K.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from fairway.core import layout
from fairway.gateway.errors import JournalInUse, WorkersDiffer
from fairway.gateway.home import Home, journals
from fairway.gateway.journal import open_reader
from fairway.store.files import make_folder, write_file

WORKERS = "workers"
STOPPED = "stopped"
"""In the journal: the second of the day's clock at which a gateway was stopped properly."""
SESSIONS_OVER_S = 300
"""After so long every conversation is over: mrp's last longest."""


def names(name: str, workers: int) -> list[str]:
    return [name] if workers == 1 else [f"{name}.{number}" for number in range(workers)]


def settle_workers(lake: Path | str, name: str, workers: int, journal: Path | str | None = None) -> None:
    """Note the number of workers; raise `WorkersDiffer` while the journals of another number hold something."""
    folder = journals(lake, journal)
    home = folder / name
    make_folder(home)
    note = home / WORKERS
    known = _noted(note, workers)
    if known != workers:
        for one in names(name, known):
            reason = _in_use(Home(lake, one, journal)) or _not_drained(folder / one / layout.JOURNAL)
            if reason:
                raise WorkersDiffer(
                    f"the journals of {name} belong to {known} workers and {reason}; start with --workers {known}, "
                    f"stop it with SIGTERM, wait {SESSIONS_OVER_S} s, and then change the number"
                )
    write_file(note, f"{workers}\n")


def _noted(note: Path, otherwise: int) -> int:
    if not note.exists():
        return otherwise
    text = note.read_text(errors="replace").strip()
    if not text.isdecimal():
        raise WorkersDiffer(f"{note} holds {text[:20]!r} and not a number of workers; write the right one into it")
    return int(text)


def _in_use(home: Home) -> str:
    """Return that a gateway runs there, or an empty text."""
    try:
        home.take()
    except JournalInUse:
        return "one of them is in use"
    home.release()
    return ""


def _not_drained(journal: Path) -> str:
    """Return what a journal still holds that must not move to another worker, or an empty text."""
    if not journal.exists():
        return ""
    with closing(open_reader(journal)) as reader:
        try:
            sealed = reader.execute("SELECT coalesce(max(last), -1) FROM sealed").fetchone()[0]
            asked = 'SELECT coalesce(sum(count), 0) FROM messages WHERE "offset" > ?'
            unsealed = reader.execute(asked, (sealed,)).fetchone()[0]
            asked = "SELECT (SELECT count(*) FROM states) + (SELECT count(*) FROM additions)"
            states = reader.execute(asked).fetchone()[0]
            stopped = reader.execute("SELECT value FROM meta WHERE key = ?", (STOPPED,)).fetchone()
        except sqlite3.DatabaseError as error:
            return f"one of them cannot be read ({error})"
    if unsealed:
        return f"{unsealed} messages in them are not sealed"
    # An empty text is that of a gateway that runs or was killed.
    if states and (stopped is None or not stopped[0] or time.time() - float(stopped[0]) < SESSIONS_OVER_S):
        return "conversations in them may still go on"
    return ""
