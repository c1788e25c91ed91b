"""One row per second of a session: the table `timeline`. Empty seconds have none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairway.core.tables import TIMELINE
from fairway.lake.analysis.exchanges import OWNER
from fairway.lake.analysis.sums import added_up

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fairway.lake.analysis.sums import Facts


def timeline(facts: Facts) -> DataFrame:
    """Gives the table `timeline`, and `bucket` behind its columns."""
    return added_up(facts, (*OWNER, "second")).select(*TIMELINE.names, "bucket")
