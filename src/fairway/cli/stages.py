"""How far a piece of work on Spark is, on one line of the terminal: rows, rate and what is left."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairway.lake.session import Session as SparkSession

REFRESH_S = 0.25


class Stages:
    """Shows the step that runs, from when it is entered to when it is left; nothing where nobody watches.

    What is left is guessed from the share of the steps that is done: a step counts by its tasks.
    """

    def __init__(self, spark: SparkSession, steps: int, *, shown: bool) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._steps = steps
        self._shown = shown
        self._done = -1
        self._what = ""
        self._records = 0
        self._began_s = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def __enter__(self) -> Stages:
        if self._shown:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        if self._shown:
            self._thread.join()
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def __call__(self, what: str, records: int) -> None:
        """Takes note of the next step, and of how many records there are in all."""
        self._done += 1
        self._what, self._records = what, records

    def _show(self) -> None:
        while not self._over.wait(REFRESH_S):
            print(f"\r\x1b[K{self._line()}", end="", file=sys.stderr, flush=True)

    def _line(self) -> str:
        share = min(1.0, (max(self._done, 0) + self._share_of_step()) / self._steps)
        spent_s = time.monotonic() - self._began_s
        words = [f"{share:4.0%}", self._what]
        if self._records:
            words.append(f"{self._records:,} records ({share * self._records / spent_s:,.0f}/s)")
        if share > 0.05:
            words.append(f"{spent_s * (1 - share) / share:.0f} s left")
        return "  ".join(words)

    def _share_of_step(self) -> float:
        stages = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
        tasks = sum(stage.numTasks for stage in stages if stage is not None)
        return sum(stage.numCompletedTasks for stage in stages if stage is not None) / tasks if tasks else 0.0
