"""`analyze` on a real cluster of two workers, one of which is killed in the middle: the tables are the same."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

from fairway.sim.configuration import RunOptions, case
from tests.lake.analysis.lakes import all_tables
from tests.lake.analysis.worlds import simulated
from tests.lake.cluster import ON_A_CLUSTER, Daemon, cluster, environment


def _analyze(lake: Path, captures: list[Path], *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "fairway", "analyze", *map(str, captures), "--lake", str(lake), "--json", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())


def test_a_worker_killed_in_the_middle_changes_no_table(tmp_path: Path) -> None:
    captures = [tmp_path / "one.pcapng", tmp_path / "two.pcapng"]
    for number, path in enumerate(captures):
        options = RunOptions(protocol="udpc", loss=0.05, messages=20, size=100)
        path.write_bytes(simulated(number, case(options), 3).capture)
    alone = _analyze(tmp_path / "alone", captures, "--master", "local[2]")
    said, complaint = alone.communicate()
    assert alone.returncode == 0, complaint
    with cluster(tmp_path) as (url, workers):
        words = [word for conf in ON_A_CLUSTER for word in ("--conf", conf)]
        spread = _analyze(tmp_path / "spread", captures, "--master", url, *words)
        staging = tmp_path / "spread" / "tables" / "packets"
        killed = threading.Event()
        killer = threading.Thread(target=_kill_when, args=(staging, workers[0], spread, killed), daemon=True)
        killer.start()
        told, complaint = spread.communicate()
        killer.join()
        assert spread.returncode == 0, complaint
    assert killed.is_set(), "the analysis was over before the worker was killed"
    assert all_tables(tmp_path / "spread") == all_tables(tmp_path / "alone")
    assert json.loads(told)["packets"] == json.loads(said)["packets"]


def _kill_when(sign: Path, worker: Daemon, running: subprocess.Popen[str], killed: threading.Event) -> None:
    """Kill the worker as soon as the first data file is being written, behind the shuffle."""
    while not any(sign.rglob("*.parquet")) and running.poll() is None:
        time.sleep(0.1)
    if running.poll() is None:
        worker.kill()
        killed.set()
