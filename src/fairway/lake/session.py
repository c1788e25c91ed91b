"""One builder of Spark sessions, so that every verb gets the same settings and keeps Spark's noise off the terminal."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fairway.core.errors import FairwayError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Session = SparkSession
    """For those outside this package who only name the type."""

LOCAL = "local[*]"
COMPILE_ALL = "-XX:-DontCompileHugeMethods"
CODE_ROOM = "-XX:ReservedCodeCacheSize=480m"

SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    # The default, INT96, has no minima and maxima in Parquet's footers: readers could skip nothing.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Where bodies are kept a batch of 10,000 rows may be large; a task holds several for a while.
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
    # Deriving filters from nested conditions takes exponential time and memory on our expressions, and saves nothing.
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.execution.pyspark.udf.hideTraceback.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    # Code that Spark generates for our wide rows has methods of more than 8,000 bytes, which Java would only interpret.
    # The default options go before the extra ones, which are left to the user.
    # Where only the quick compiler is asked for, Java keeps 48 MB for compiled code. One analysis fills them, and from
    # then on all is interpreted, at a third of the speed.
    "spark.driver.defaultJavaOptions": f"{COMPILE_ALL} {CODE_ROOM}",
    "spark.executor.defaultJavaOptions": f"{COMPILE_ALL} {CODE_ROOM}",
    # One run generates more classes than the 100 that Spark remembers: the next would compile all of them again.
    "spark.sql.codegen.cache.maxEntries": "1000",
    # Packets lie by flow; what joins them by the flow and more need not move them again.
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    # Beyond 128 groups Spark would sort all rows before it makes quantiles of them.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "65536",
    # Where in Python a column was made: eleven calls of the JVM for one alias.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Without the pages nobody reads what Spark keeps of the last 1,000 queries, and the plans of an analysis are large.
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


class SparkUnavailable(FairwayError):
    """Spark cannot be started here; the message says what is missing."""


class StartStopped(FairwayError):
    """The end was asked for while Spark started."""


def start(
    app: str, *, master: str = LOCAL, settings: Mapping[str, str] | None = None, stop: threading.Event | None = None
) -> SparkSession:
    """Return a running session. What `settings` names goes before our own.

    Where the caller's handlers of signals set `stop` and raise nothing, the start ends with `StartStopped` as soon as
    it can; signals are held back otherwise.
    """
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
    chosen = {**SETTINGS, **(settings or {})}
    for name, value in chosen.items():
        builder = builder.config(name, value)
    with tempfile.NamedTemporaryFile(prefix="fairway-spark-", suffix=".log") as log:
        try:
            with nullcontext() if stop is not None else _signals_later():
                _start_jvm({"spark.app.name": app, "spark.master": master, **chosen}, log.fileno())
            if stop is not None and stop.is_set():
                raise StartStopped("Spark was not started to the end.")
            spark = builder.getOrCreate()
        except StartStopped:
            raise
        except Exception as error:
            raise SparkUnavailable(f"Spark did not start ({_last_line(Path(log.name)) or error}).") from error
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@contextmanager
def started(app: str, *, master: str = LOCAL, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Return a session that ends with the block, also when that is left by Ctrl-C."""
    spark = start(app, master=master, settings=settings)
    try:
        yield spark
    finally:
        end(spark)


def end(spark: SparkSession) -> None:
    """End a session, also one whose JVM is gone: service managers may end all processes of a service at once."""
    with warnings.catch_warnings(), suppress(Exception):
        warnings.simplefilter("ignore")
        spark.stop()


def is_jvm_gone(within_s: float) -> bool:
    """Return whether the JVM that this process has started is gone, or goes within that time."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return False
    patience_ends_s = time.monotonic() + within_s
    while process.poll() is None and time.monotonic() < patience_ends_s:
        time.sleep(0.05)
    return process.poll() is not None


def _start_jvm(settings: Mapping[str, str], output: int) -> None:
    """Start the JVM, unless it runs, in a session of its own, where signals to our process group do not reach it.

    What it is doing could not be finished otherwise. It ends when its standard input does, which is with this process,
    however that ends. What it says goes to a file: no setting silences its first lines.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.accumulators import AccumulatorTCPServer
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    # Whoever misses a JVM that is gone says so, in a sentence; these two would print tracebacks.
    AccumulatorTCPServer.handle_error = _ignore  # type: ignore[method-assign, assignment]
    logging.getLogger().addFilter(lambda record: "py4j" not in Path(record.pathname).parts)
    conf = SparkConf().setAll(list(settings.items()))
    options = {"start_new_session": True, "stdout": output, "stderr": output}
    gateway = launch_gateway(conf, options)  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)


@contextmanager
def _signals_later() -> Iterator[None]:
    """Hold signals back until the block is over: a JVM that nobody has connected to does not see us end, and stays."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    earlier = {number: signal.signal(number, lambda came_now, frame: came.append(came_now)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


def _ignore(*_: object) -> None:
    pass


def cancel_jobs() -> None:
    """End all jobs of the running session, if there is one; may be called from any thread."""
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


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    lines = [line for line in lines if line and not line.startswith("at ")]
    return lines[-1] if lines else ""
