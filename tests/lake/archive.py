"""Writes an archive of the Java classes that Spark loads, with which a process of Spark starts in half the time.

    python -m tests.lake.archive build/spark.jsa

`tests/conftest.py` has every Java process use it where it is there; Java ignores one that does not fit its libraries.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark import SparkContext

from fairway.lake.session import start
from tests.conftest import QUICK_JAVA
from tests.lake.landing.fake import FakeGateway
from tests.lake.landing.landing import land


def main(archive: Path, lake: Path) -> None:
    """Do what loads most classes, a pass of the stream."""
    options = f"{QUICK_JAVA} -XX:ArchiveClassesAtExit={archive}"
    settings = {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": options}
    spark = start("archive", master="local[2]", settings=settings)
    gateway = FakeGateway(lake, "one")
    gateway.seal(10)
    gateway.close()
    land(spark, lake)
    java = SparkContext._gateway.proc  # type: ignore[union-attr]
    spark.stop()
    java.stdin.close()
    java.wait()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(sys.argv[1]).absolute(), Path(folder))
