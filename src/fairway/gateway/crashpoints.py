"""Named points at which a test may have this process killed, or its disk filled; without the variables nothing happens.

    FAIRWAY_CRASH_AT=after-commit:17,seal-renamed:2    SIGKILL at the 17th pass of the one or the 2nd of the other
    FAIRWAY_DISK_FULL_WHILE=/path                      as long as that file exists, writing fails for want of room

The points, in the order of a message's way:

    before-commit     the transaction is written, not committed
    after-commit      committed; no acknowledgement has left
    seal-planned      the range of the segment is noted in the journal
    seal-written      the segment is written aside, not synced
    seal-synced       synced, not yet under its name
    seal-renamed      under its name; the folder is not synced
    seal-published    the folder is synced; the journal does not know
    seal-marked       the journal knows; the rows are still there
    seal-deleted      the rows are gone
"""

from __future__ import annotations

import errno
import os
import signal

POINTS = (
    "before-commit", "after-commit", "seal-planned", "seal-written", "seal-synced", "seal-renamed", "seal-published",
    "seal-marked", "seal-deleted",
)  # fmt: skip


def _planned(text: str) -> dict[str, int]:
    """Reads `point:pass,point:pass`; a point without a number is meant at its first pass."""
    plan = {}
    for item in filter(None, text.split(",")):
        point, _, number = item.partition(":")
        plan[point] = int(number or 1)
    return plan


_PASSES_LEFT = _planned(os.environ.get("FAIRWAY_CRASH_AT", ""))
_DISK_FULL_WHILE = os.environ.get("FAIRWAY_DISK_FULL_WHILE", "")


def reached(point: str) -> None:
    """Kills this process if it is its time."""
    left = _PASSES_LEFT.get(point)
    if left is None:
        return
    _PASSES_LEFT[point] = left - 1
    if left == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def check_room() -> None:
    """Raises what a full disk raises, if a test wants it full."""
    if _DISK_FULL_WHILE and os.path.exists(_DISK_FULL_WHILE):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
