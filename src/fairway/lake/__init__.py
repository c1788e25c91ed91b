"""The Spark pipeline: captures and landed messages to tables, and sweeps of simulated runs. All of Spark is here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")


def shared_out(items: Iterable[Item], size_bytes: Callable[[Item], int], group_bytes: int) -> list[list[Item]]:
    """Cut items into groups of about so many bytes, one for each task, always in the same way; small ones share one."""
    groups: list[list[Item]] = []
    held_bytes = group_bytes
    for item in items:
        more_bytes = size_bytes(item)
        if held_bytes + more_bytes > group_bytes:
            groups.append([])
            held_bytes = 0
        groups[-1].append(item)
        held_bytes += more_bytes
    return groups


def register(spark: SparkSession) -> None:
    """Make the sources `fairway.capture`, `fairway.landing` and `fairway.delta` known to a session."""
    from fairway.lake.captures.source import CaptureSource
    from fairway.lake.landing.source import LandingSource
    from fairway.lake.reader import DeltaSource

    for source in (CaptureSource, LandingSource, DeltaSource):
        spark.dataSource.register(source)
