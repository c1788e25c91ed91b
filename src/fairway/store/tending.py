"""Keeping a Delta table small: compaction, vacuum, checkpoints and cleanup of the log, all by the library.

Opening a table costs what its log and its list of files cost, so both are kept bounded: every `CHECKPOINT_EVERY`
commits the log gets a checkpoint, every `COMPACT_EVERY` small files are merged, the open day's too. What lies further
back than the history is removed: whoever still reads a snapshot older than that gets an error.

Nothing is removed before what replaces it is synced. The one writer of a table does this between two of its commits.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from fairway.core.errors import FairwayError
from fairway.store import crashpoints
from fairway.store.delta import LAST_CHECKPOINT, LOG, Delta, Overtaken, by_itself
from fairway.store.objects import sentence

CHECKPOINT_EVERY = 50
COMPACT_EVERY = 250
TARGET_BYTES = 128 << 20
"""About what a merged file holds."""

TENDED = "fairway"
"""The application whose position is the version of the newest checkpoint that was synced."""

ASIDE = "_checkpoint"
"""Where in a table's folder its next checkpoint is written."""

CLAIMED = "fairway-compacting"
"""The application whose position says until when one process alone may compact a table in an object store."""

CLAIM_MS = 3_600_000
"""Far longer than a compaction takes: whoever is stopped in one for longer, and then goes on, could double rows."""

KEPT_LOG, KEPT_FILES = "delta.logRetentionDuration", "delta.deletedFileRetentionDuration"
HISTORY_S = 3_600.0
"""How long the log, and files that were replaced, are kept."""


class NotCompacted(FairwayError):
    """The library could not merge files, or sum up the log; the message says why."""


@dataclass(frozen=True, slots=True)
class Compacted:
    table: str
    files_before: int
    files_after: int


def history(history_s: float) -> dict[str, str]:
    """Return the properties of a table that is read so far back."""
    kept = f"interval {math.ceil(history_s)} seconds"
    return {KEPT_LOG: kept, KEPT_FILES: kept}


def _history_s(properties: Mapping[str, str]) -> float:
    found = re.fullmatch(r"interval (\d+) seconds", properties.get(KEPT_FILES, ""))
    return float(found[1]) if found else HISTORY_S


def tend(table: Delta, version: int) -> Compacted | None:
    """Do what is due after a commit."""
    try:
        done = compact(table) if version % COMPACT_EVERY == 0 else None
    except Overtaken:  # another process does it just now
        done = None
    if done is not None or version % CHECKPOINT_EVERY == 0:
        checkpoint(table)
    return done


def compact(table: Delta) -> Compacted | None:
    """Merge small files and remove files that no version within the history has; None if nothing was merged.

    Raises `Overtaken` if another process is doing that.
    """
    with claimed(table), _told(table):
        return _compact(table)


@contextmanager
def _told(table: Delta) -> Iterator[None]:
    from deltalake.exceptions import DeltaError

    try:
        yield
    except DeltaError as error:
        raise NotCompacted(f"{table.location} cannot be compacted: {sentence(error)}") from error


@contextmanager
def claimed(table: Delta) -> Iterator[None]:
    """Keep others from compacting a table: the library lets two succeed with the same files, which doubles their rows.

    On a file system the caller holds the table's lock. In an object store the claim is a position of the table, the
    time at which it ends, in milliseconds: one that a killed process left is over then.
    """
    if table.location.is_folder:
        yield
        return
    snapshot, now_ms = table.open(), time.time_ns() // 1_000_000
    held, claim = table.position(snapshot, CLAIMED), now_ms + CLAIM_MS
    if held > now_ms:
        minutes = math.ceil((held - now_ms) / 60_000)
        raise Overtaken(
            f"Another process compacts {table.location}, or was killed while it did: try again in {minutes} minutes."
        )
    table.commit(snapshot, [], advances={CLAIMED: (held, claim)})
    try:
        yield
    finally:
        table.commit(table.open(), [], advances={CLAIMED: (claim, 0)})


def _compact(table: Delta) -> Compacted | None:
    snapshot = table.open()
    first, name = snapshot.version() + 1, table.location.uri.rpartition("/")[2]
    files = len(snapshot.file_uris())
    found = snapshot.optimize.compact(target_size=TARGET_BYTES, post_commithook_properties=by_itself())
    crashpoints.reached("compacted")
    first = table.settle(first, snapshot, files=True) + 1
    # Hours are what the library counts in; files that a task is writing now are younger, or this is a test. Where there
    # are no locks a stream may run beside this: what it has written and not committed must stay.
    hours = math.ceil(_history_s(snapshot.metadata().configuration) / 3_600)
    hours = hours if table.location.is_folder else max(1, hours)
    snapshot.vacuum(
        hours, dry_run=False, enforce_retention_duration=False, full=True, post_commithook_properties=by_itself()
    )
    table.settle(first, snapshot)
    if not found["numFilesRemoved"]:
        return None
    return Compacted(name, files, files - found["numFilesRemoved"] + found["numFilesAdded"])


def checkpoint(table: Delta) -> None:
    """Sum up the log, and remove what is older than the history and no longer needed.

    An entry behind it proves that a compaction before it was synced; without one, the next start does not trust it.
    """
    snapshot = table.open()
    if not table.location.is_folder:
        with _told(table):
            snapshot.create_checkpoint()
        crashpoints.reached("checkpointed")
        snapshot.cleanup_metadata()
        return
    version = snapshot.version()
    _write_checkpoint(table, version)
    table.commit(snapshot, [], advances={TENDED: (table.position(snapshot, TENDED), version)})
    snapshot.cleanup_metadata()


def _write_checkpoint(table: Delta, version: int) -> None:
    """Have the library write a checkpoint into a log of links, and give it its name when it is synced.

    Readers open a checkpoint as soon as they see its name: what has one must be whole, and stay.
    """
    from deltalake import DeltaTable

    aside = table.location.folder / ASIDE
    shutil.rmtree(aside, ignore_errors=True)
    (aside / LOG).mkdir(parents=True)
    for name in table.log_since_checkpoint(version):
        os.link(table.log.folder / name, aside / LOG / name)
    with _told(table):
        DeltaTable(str(aside)).create_checkpoint()
    crashpoints.reached("checkpointed")
    name = f"{version:020}.checkpoint.parquet"
    table.log.publish(aside / LOG / name, name)
    table.log.write(LAST_CHECKPOINT, (aside / LOG / LAST_CHECKPOINT).read_text())
    shutil.rmtree(aside)
