"""The session that every verb gets."""

from __future__ import annotations

import signal

from pyspark.sql import SparkSession

from fairway.lake import session
from fairway.lake.session import CODE_ROOM, COMPILE_ALL


def test_java_compiles_long_methods_has_room_for_them_and_keeps_the_options_of_the_user(spark: SparkSession) -> None:
    assert spark._jvm is not None
    given = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    assert {COMPILE_ALL, CODE_ROOM, "-XX:TieredStopAtLevel=1"} <= set(given)


def test_a_signal_while_the_jvm_starts_comes_when_it_has_started() -> None:
    """A JVM to which nobody has spoken yet stayed behind when Ctrl-C came in between."""
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        with session._signals_later():
            signal.raise_signal(signal.SIGINT)
            came_within = list(came)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (came_within, came) == ([], [signal.SIGINT])
