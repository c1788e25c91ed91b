"""A real standalone cluster on loopback, from the PySpark that is installed: one master, two workers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

READY_WITHIN_S = 600.0

ON_A_CLUSTER = (
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.executor.memory=512m",
    "spark.executor.cores=1",
)
"""What a driver needs to be told to work with it."""


def environment() -> dict[str, str]:
    import pyspark

    return os.environ | {
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Daemon:
    """A process of the cluster, and what it has said."""

    def __init__(self, folder: Path, name: str, *words: str) -> None:
        self.log = folder / f"{name}.log"
        launcher = Path(environment()["SPARK_HOME"]) / "bin" / "spark-class"
        self._file: IO[bytes] = self.log.open("wb")
        # A session of its own: a worker's executors are its children and must go with it.
        self.process = subprocess.Popen(
            [str(launcher), *words],
            stdout=self._file,
            stderr=subprocess.STDOUT,
            env=environment(),
            start_new_session=True,
        )

    def wait_for(self, text: str, times: int = 1) -> None:
        patience_ends_s = time.monotonic() + READY_WITHIN_S
        while self.log.read_text(errors="replace").count(text) < times:
            ready = self.process.poll() is None and time.monotonic() < patience_ends_s
            assert ready, self.log.read_text()
            time.sleep(0.1)

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._file.close()


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, list[Daemon]]]:
    """Return the address of a master and its two workers, ready for work."""
    port = _free_port()
    url = f"spark://127.0.0.1:{port}"
    package = "org.apache.spark.deploy"
    daemons = [
        Daemon(
            folder,
            "master",
            f"{package}.master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--webui-port",
            "0",
        )
    ]
    try:
        daemons[0].wait_for("elected leader")
        for number in (1, 2):
            work = ("--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(folder / f"work{number}"))
            daemons.append(
                Daemon(folder, f"worker{number}", f"{package}.worker.Worker", "--host", "127.0.0.1", *work, url)
            )
        daemons[0].wait_for("Registering worker", times=2)
        yield url, daemons[1:]
    finally:
        for daemon in reversed(daemons):
            daemon.kill()
