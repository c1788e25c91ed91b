"""Named points at which a test may have this process killed, or its disk filled; without the variables nothing happens.

    FAIRWAY_CRASH_AT=after-commit:17,seal-renamed:2    SIGKILL at the 17th pass of the one or the 2nd of the other
    FAIRWAY_DISK_FULL_WHILE=/path                      as long as that file exists, writing fails for want of room

In a gateway, in the order of a message's way:

    before-commit     the transaction is written, not committed
    after-commit      committed; no acknowledgement has left
    seal-planned      the range of the segment is noted in the journal
    seal-written      the segment is written aside, not synced
    seal-synced       synced, not yet under its name
    seal-renamed      under its name; the folder is not synced
    seal-published    the folder is synced; the journal does not know
    seal-marked       the journal knows; the rows are still there
    seal-deleted      the rows are gone

In a stream, for each table that a batch fills, and in `fairway compact`:

    files-written     the batch's data files are synced; no table refers to them
    table-committed   the log entry is there, not synced
    table-synced      the log entry is synced
    compacted         small files were merged; neither they nor the log entry are synced
    checkpointed      the log's checkpoint is written aside, not synced
    segment-removed   a landed segment is gone, others are not
"""

from __future__ import annotations

import errno
import os
import signal

VARIABLE = "FAIRWAY_CRASH_AT"
GATEWAY_POINTS = (
    "before-commit", "after-commit", "seal-planned", "seal-written", "seal-synced", "seal-renamed", "seal-published",
    "seal-marked", "seal-deleted",
)  # fmt: skip
STREAM_POINTS = (
    "files-written", "table-committed", "table-synced", "compacted", "checkpointed", "segment-removed",
)  # fmt: skip


def planned(text: str) -> dict[str, set[int]]:
    """Read `point:pass,point:pass`; a point without a number means its first pass."""
    plan: dict[str, set[int]] = {}
    for item in filter(None, text.split(",")):
        point, _, number = item.partition(":")
        plan.setdefault(point, set()).add(int(number or 1))
    return plan


_plan = planned(os.environ.get(VARIABLE, ""))
_passes: dict[str, int] = {}
_DISK_FULL_WHILE = os.environ.get("FAIRWAY_DISK_FULL_WHILE", "")


def reached(point: str) -> None:
    """Die here if the environment says so."""
    if point not in _plan:
        return
    _passes[point] = _passes.get(point, 0) + 1
    if _passes[point] in _plan[point]:
        die()


def die() -> None:
    """End this process as a power cut would: nothing is flushed, nothing is tidied up."""
    os.kill(os.getpid(), signal.SIGKILL)


def check_room() -> None:
    """Raise what a full disk raises, if a test wants it full."""
    if _DISK_FULL_WHILE and os.path.exists(_DISK_FULL_WHILE):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
