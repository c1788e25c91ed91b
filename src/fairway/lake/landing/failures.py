"""Why a stream failed: our own sentence out of what Spark wraps around it, and whether trying again may help.

What Fairway found wrong (a gap, a damaged segment, counts that differ) stays wrong, and so does what Spark cannot make
a plan of. What Spark itself stumbles over, such as a Python worker that did not answer on a busy machine or an executor
that is gone, often passes.
"""

from __future__ import annotations

import re

from fairway.core.errors import FairwayError

FULL = "No space left on device"
TRACEBACK = "Traceback (most recent call last):"
_PYTHON = re.compile(r"^\w*Error: (.+)$", re.MULTILINE)
_OURS = re.compile(r"fairway\.[\w.]+: (.+)")


class StreamFailed(FairwayError):
    """Spark could not go on; the message says why."""


class StreamStumbled(StreamFailed):
    """Spark could not go on, for a reason that may pass."""


def failure_of(landing: Exception | None, query: Exception | None) -> Exception:
    """Return what to raise for a query that failed, from what went wrong in a batch, if there, and what Spark says."""
    from pyspark.errors import AnalysisException, PySparkException

    if isinstance(landing, FairwayError):
        return landing
    text = str(landing or query)
    found = _OURS.findall(text)
    if found:
        return StreamFailed(str(found[-1]))
    if FULL in text:
        return StreamFailed(
            "A disk is full, the lake's or the one for Spark's temporary files: make room, and start the stream again."
        )
    if isinstance(landing, OSError):
        return landing
    raised = _PYTHON.findall(text) if TRACEBACK in text else []
    lines = [*raised[-1:], *(line.strip() for line in text.splitlines() if line.strip())]
    passing = landing is None or isinstance(landing, PySparkException) or type(landing).__name__ == "Py4JJavaError"
    kind = StreamStumbled if passing and not isinstance(landing or query, AnalysisException) else StreamFailed
    who = "Spark stopped the stream" if passing else "The stream stopped"
    return kind(f"{who}: {lines[0] if lines else type(landing or query).__name__}")
