"""How far a piece of work on Spark is, on one line of the terminal: rows, rate and what is left."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from fairway.cli.status import Status

if TYPE_CHECKING:
    from fairway.lake.session import Session as SparkSession


class Stages(Status):
    """Shows the step that runs.

    What is left is guessed from the share of the steps that is done: a step counts by its tasks.
    """

    def __init__(self, spark: SparkSession, steps: int) -> None:
        super().__init__(self._text)
        self._tracker = spark.sparkContext.statusTracker()
        self._steps = steps
        self._done = -1
        self._what = ""
        self._records = 0
        self._began_s = time.monotonic()

    def __call__(self, what: str, records: int) -> None:
        """Begin the next step; `records` is how many there are in all."""
        self._done += 1
        self._what, self._records = what, records

    def _text(self) -> str:
        share = min(1.0, (max(self._done, 0) + self._share_of_step()) / self._steps)
        spent_s = time.monotonic() - self._began_s
        words = [f"{share:4.0%}", self._what]
        if self._records and spent_s:
            words.append(f"{self._records:,} records ({share * self._records / spent_s:,.0f}/s)")
        if share > 0.05:
            words.append(f"{spent_s * (1 - share) / share:.0f} s left")
        return "  ".join(words)

    def _share_of_step(self) -> float:
        stages = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
        tasks = sum(stage.numTasks for stage in stages if stage is not None)
        return sum(stage.numCompletedTasks for stage in stages if stage is not None) / tasks if tasks else 0.0
