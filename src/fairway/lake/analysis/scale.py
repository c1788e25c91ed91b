"""How a run is laid out for its size: few records are computed here and judged in one partition, many are spread.

What few records cost is not their computation but the number of tasks, stages and broadcasts, and compiling code that
then runs once. All rows in one partition need no shuffle, for whatever they are grouped by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FEW_RECORDS = 50_000
TASK_RECORDS = 200_000
"""Fewer records than this are not worth a task of their own."""

_FEW_SETTINGS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    # A broadcast is a job of its own; two sorted halves of one partition join without any.
    "spark.sql.optimizer.disableHints": "true",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}


@dataclass(frozen=True, slots=True)
class Scale:
    """The size of a run, and what follows from it."""

    records: int
    buckets: int
    local: bool
    """Whether all work is done in this process: what another holds in memory may be lost with it."""

    @property
    def few(self) -> bool:
        """Tells whether one task is enough."""
        return self.local and self.records <= FEW_RECORDS

    @property
    def tasks(self) -> int:
        """Gives how many tasks share the work."""
        return max(1, min(self.buckets, 1 + self.records // TASK_RECORDS))

    @property
    def settings(self) -> dict[str, str]:
        """Gives Spark's settings for this many records."""
        return {"spark.sql.shuffle.partitions": str(self.tasks)} | (_FEW_SETTINGS if self.few else {})

    def together(self, rows: DataFrame) -> DataFrame:
        """Gives the rows in one partition and in memory, if they are few: each check reads them again."""
        return rows.coalesce(1).localCheckpoint() if self.few else rows

    def spread(self, rows: DataFrame) -> DataFrame:
        """Gives the rows of each bucket in one task, so that it becomes one file."""
        task = F.pmod("bucket", F.lit(self.tasks)).cast("int")
        return rows.coalesce(1) if self.few else rows.repartitionById(self.tasks, task)
