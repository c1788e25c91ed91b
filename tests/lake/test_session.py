"""The session that every verb gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairway.lake.session import COMPILE_ALL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_java_compiles_long_methods_and_keeps_the_options_of_the_user(spark: SparkSession) -> None:
    assert spark._jvm is not None
    given = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    assert {COMPILE_ALL, "-XX:TieredStopAtLevel=1"} <= set(given)
