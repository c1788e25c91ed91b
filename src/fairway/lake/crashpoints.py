"""Named places at which a process can be made to die, for the tests that prove that dying there does no harm.

`FAIRWAY_CRASH_AT=after-staging:3` kills this process with SIGKILL when it passes `after-staging` the third time;
several are separated by commas. Without the variable a place costs one look at a dictionary.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

VARIABLE = "FAIRWAY_CRASH_AT"

AFTER_STAGING = "after-staging"
BETWEEN_RENAMES = "between-renames"
PUBLISHED = "published-not-checkpointed"
COMPACTION_STAGED = "compaction-staged"
EXCHANGED = "exchanged-not-removed"
BEFORE_REMOVAL = "between-removals"
PLACES = (AFTER_STAGING, BETWEEN_RENAMES, PUBLISHED, COMPACTION_STAGED, EXCHANGED, BEFORE_REMOVAL)
"""In `fairway stream` and `fairway compact`."""

_passed: Counter[str] = Counter()


def reach(place: str) -> None:
    """Dies here if the environment says so."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    _passed[place] += 1
    if f"{place}:{_passed[place]}" in wanted.split(","):
        die()


def die() -> None:
    """Ends this process as a power cut would: nothing is flushed, nothing is tidied up."""
    os.kill(os.getpid(), signal.SIGKILL)
