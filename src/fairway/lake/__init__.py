"""The Spark pipeline: captures and landed messages to tables, and sweeps of simulated runs. All of Spark is here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the sources `fairway.capture`, `fairway.landing` and `fairway.delta` known to a session."""
    from fairway.lake.captures.source import CaptureSource
    from fairway.lake.landing.source import LandingSource
    from fairway.lake.reader import DeltaSource

    for source in (CaptureSource, LandingSource, DeltaSource):
        spark.dataSource.register(source)
