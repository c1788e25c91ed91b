"""Why a computation on Spark failed, in a sentence: what it wraps around the cause is of no use to a user."""

from __future__ import annotations

import errno
import os

from fairway.core.errors import FairwayError

FULL = os.strerror(errno.ENOSPC)


class AnalysisFailed(FairwayError):
    """Spark could not compute the tables, which are as they were; the message says why."""


def failure_of(error: Exception) -> AnalysisFailed:
    """Return what to raise for an error of Spark's."""
    text = str(error)
    if FULL in text:
        return AnalysisFailed(
            "A disk is full, the lake's or the one for Spark's temporary files (--conf spark.local.dir=DIR): "
            "make room and run it again; the tables are as they were."
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # Behind a line that says only where it happened stands what happened.
    lines = [line for line in lines if not line.endswith("Python worker:")]
    said = lines[0] if lines else type(error).__name__
    return AnalysisFailed(f"Spark could not compute the tables, which are as they were: {said}")
