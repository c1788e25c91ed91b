"""One builder of Spark sessions, so that every verb gets the same settings and keeps Spark's noise off the terminal."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fairway.core.errors import FairwayError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Session = SparkSession
    """For those outside this room who only name the type."""

LOCAL = "local[*]"

SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    # The default, INT96, has no minima and maxima in Parquet's footers: readers could skip nothing.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Deriving filters from nested conditions takes exponential time and memory on our expressions, and saves nothing.
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.execution.pyspark.udf.hideTraceback.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


class SparkUnavailable(FairwayError):
    """Spark cannot be started here; the message says what is missing."""


def start(app: str, *, master: str = LOCAL, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Gives a running session. What `settings` names goes before our own."""
    if master.startswith("sc://"):
        raise SparkUnavailable(
            f"{master} is Spark Connect, with which Fairway does not work (docs/lake.md says why): "
            "name the cluster itself, such as spark://host:7077, yarn or k8s://host."
        )
    _need_java()
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkUnavailable("PySpark is not installed: pip install 'fairway[spark]'.") from error
    # Workers take `python3` from PATH otherwise, which is not the one that has Fairway.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(app).master(master)
    for name, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(name, value)
    with _noise_aside() as log:
        try:
            spark = builder.getOrCreate()
        except Exception as error:
            raise SparkUnavailable(f"Spark did not start ({_last_line(log) or error}).") from error
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@contextmanager
def started(app: str, *, master: str = LOCAL, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Gives a session that ends with the block, also when that is left by Ctrl-C."""
    spark = start(app, master=master, settings=settings)
    try:
        yield spark
    finally:
        with _noise_aside():
            spark.stop()


def cancel_jobs() -> None:
    """Ends all jobs of the running session, if there is one; may be called from any thread."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is not None:
        context.cancelAllJobs()


def _need_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home and Path(home, "bin", "java").exists():
        return
    if shutil.which("java") is None:
        raise SparkUnavailable(
            "Spark needs Java 17 or newer: install a JRE (Debian: openjdk-17-jre-headless) or set JAVA_HOME."
        )


@contextmanager
def _noise_aside() -> Iterator[Path]:
    """Sends what the JVM says while it starts to a file: no setting silences its first lines."""
    with tempfile.NamedTemporaryFile(prefix="fairway-spark-", suffix=".log") as log:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            yield Path(log.name)
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else ""
