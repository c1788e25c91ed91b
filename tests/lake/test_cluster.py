"""`analyze` on a real cluster of two workers, one of which is killed in the middle: the tables are the same."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow.dataset as ds
import pytest

from fairway.core.tables import CAPTURE_TABLES
from fairway.sim.cases import Wishes, case
from tests.lake.analysis.worlds import simulated

READY_WITHIN_S = 120.0
pytestmark = pytest.mark.xdist_group("spark")


def _environment() -> dict[str, str]:
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
        launcher = Path(_environment()["SPARK_HOME"]) / "bin" / "spark-class"
        self._file: IO[bytes] = self.log.open("wb")
        # A session of its own: a worker's executors are its children and must go with it.
        self.process = subprocess.Popen(
            [str(launcher), *words],
            stdout=self._file,
            stderr=subprocess.STDOUT,
            env=_environment(),
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
    """Gives the address of a master and its two workers, ready for work."""
    port = _free_port()
    url = f"spark://127.0.0.1:{port}"
    place = "org.apache.spark.deploy"
    daemons = [
        Daemon(
            folder, "master", f"{place}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"
        )
    ]
    try:
        daemons[0].wait_for("elected leader")
        for number in (1, 2):
            work = ("--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(folder / f"work{number}"))
            daemons.append(
                Daemon(folder, f"worker{number}", f"{place}.worker.Worker", "--host", "127.0.0.1", *work, url)
            )
        daemons[0].wait_for("Registering worker", times=2)
        yield url, daemons[1:]
    finally:
        for daemon in reversed(daemons):
            daemon.kill()


def _analyze(lake: Path, captures: list[Path], *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "fairway", "analyze", *map(str, captures), "--lake", str(lake), "--json", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_environment())


def _rows(lake: Path) -> dict[str, list[Any]]:
    tables = {table.name: lake / "tables" / table.name for table in CAPTURE_TABLES}
    read = {name: ds.dataset(folder, format="parquet", partitioning="hive") for name, folder in tables.items()}
    return {name: sorted(rows.to_table().to_pylist(), key=str) for name, rows in read.items()}


def test_a_worker_killed_in_the_middle_changes_no_table(tmp_path: Path) -> None:
    captures = [tmp_path / "one.pcapng", tmp_path / "two.pcapng"]
    for number, (path, protocol) in enumerate(zip(captures, ("udpc", "rup"), strict=True)):
        wishes = Wishes(protocol=protocol, loss=0.05, messages=30, size=100)
        path.write_bytes(simulated(number, case(wishes), 3).capture)
    alone = _analyze(tmp_path / "alone", captures, "--master", "local[2]")
    said, complaint = alone.communicate()
    assert alone.returncode == 0, complaint
    with cluster(tmp_path) as (url, workers):
        confs = ("spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1", "spark.executor.memory=512m")
        words = [word for conf in (*confs, "spark.executor.cores=1") for word in ("--conf", conf)]
        spread = _analyze(tmp_path / "spread", captures, "--master", url, *words)
        staging = tmp_path / "spread" / "staging" / "analysis" / "written" / "packets"
        killed = threading.Event()
        killer = threading.Thread(target=_kill_when, args=(staging, workers[0], spread, killed), daemon=True)
        killer.start()
        told, complaint = spread.communicate()
        killer.join()
        assert spread.returncode == 0, complaint
    assert killed.is_set(), "the analysis was over before the worker was killed"
    assert _rows(tmp_path / "spread") == _rows(tmp_path / "alone")
    assert json.loads(told)["packets"] == json.loads(said)["packets"]


def _kill_when(sign: Path, worker: Daemon, running: subprocess.Popen[str], killed: threading.Event) -> None:
    """Kills the worker as soon as the first table is being written."""
    while not sign.exists() and running.poll() is None:
        time.sleep(0.02)
    if running.poll() is None:
        worker.kill()
        killed.set()
