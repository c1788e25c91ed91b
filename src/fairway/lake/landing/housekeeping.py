"""What a stream does beside landing: removing segments that have landed, and compacting.

Both follow the checkpoint: first the newest commit is forced to disk, then what it allows is done. Dying anywhere in
between leaves something to be done the next time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fairway.core.layout import segment_name
from fairway.core.tables import LANDED_TABLES
from fairway.lake.crashpoints import BEFORE_REMOVAL, reach
from fairway.lake.landing import segments
from fairway.lake.landing.checkpoint import Checkpoint
from fairway.lake.landing.compaction import OPEN_DAY_FILES, Compacted, Compactor, is_closed
from fairway.lake.landing.folders import partitions
from fairway.lake.store import Lake


@dataclass(frozen=True, slots=True)
class Removed:
    """How many segments went away because they have landed long ago."""

    segments: int


def remove_landed(lake: Lake, checkpoint: Checkpoint, keep_s: float, now_s: float) -> Removed:
    """Removes segments that the stream has committed and that are older than `keep_s`, from the oldest on.

    A gateway's newest segment stays: it tells a gateway that lost its journal where to go on.
    """
    batch = checkpoint.committed()
    if batch < 0:
        return Removed(0)
    checkpoint.sync_commit(batch)
    positions = checkpoint.positions(batch)
    count = 0
    for gateway in segments.gateways(lake.landing):
        position = positions.get(gateway, 0)
        found = segments.ranges(lake.landing, gateway)
        segments.check_landed(lake.landing, gateway, position, found)
        for first, last in found[:-1]:
            path = lake.landing / gateway / segment_name(first, last)
            if last >= position or path.stat().st_mtime > now_s - keep_s:
                break
            path.unlink()
            reach(BEFORE_REMOVAL)
            count += 1
    return Removed(count)


def compact_tables(
    lake: Lake,
    checkpoint: Checkpoint,
    staging: Path,
    typed: tuple[str, ...],
    *,
    everything: bool,
    folders_change: AbstractContextManager[object] | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Iterator[Compacted]:
    """Merges the small files of closed days, and of growing ones that have many; or of all of them."""
    query, batch = checkpoint.query(), checkpoint.committed()
    if query is None or batch < 0:
        return
    checkpoint.sync_commit(batch)
    compactor = Compactor(query, batch, staging / "compaction", folders_change or nullcontext(), stopped)
    for name in (*(table.name for table in LANDED_TABLES), *typed):
        for folder in partitions(lake.table(name)):
            if stopped():
                return
            done = compactor.compact(folder, 2 if everything or is_closed(folder, _now()) else OPEN_DAY_FILES)
            if done is not None:
                yield done


def _now() -> datetime:
    return datetime.now(UTC)
