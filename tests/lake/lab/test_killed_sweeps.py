"""A sweep that is killed or told to end, as a process, ends with the same table when it is started again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from fairway.lake.lab.sweep import LabFolder
from tests.lake.cluster import ON_A_CLUSTER, cluster, environment
from tests.lake.lab.folders import GRID, fresh, rows_of, run_here

READY_WITHIN_S = 400


def wait_for_chunks(runs: Path, count: int, running: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while len(list(runs.glob("chunk-*.parquet"))) < count:
        assert running.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_sweep_that_is_told_to_end_and_then_killed_ends_with_the_same_table(tmp_path: Path) -> None:
    grid, out, said = tmp_path / "grid.toml", tmp_path / "lab", tmp_path / "said"
    grid.write_text(GRID.replace("messages = 30", "messages = 400"))
    here = fresh(tmp_path / "here", grid.read_text())
    run_here(here)
    command = [sys.executable, "-m", "fairway", "lab", "run", str(grid), "--out", str(out), "--master", "local[1]"]
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        done = len(list((out / "runs").glob("chunk-*.parquet")))
        with (
            said.open("w") as errors,
            subprocess.Popen(command, start_new_session=True, stderr=errors) as running,
        ):
            try:
                wait_for_chunks(out / "runs", done + 1, running)
                os.killpg(running.pid, number)  # as terminals and service managers send it
                assert running.wait(timeout=READY_WITHIN_S) == code
            finally:
                running.kill()
        left = sum(len(chunk.cells) for chunk in LabFolder(out).pending())
        assert left
        if number == signal.SIGINT:
            told = re.fullmatch(r"stopped; (\d+) of 48 cells are left for the same command\n", said.read_text())
            assert told is not None
            assert int(told[1]) >= left
    subprocess.run(command, check=True, capture_output=True)
    assert rows_of(LabFolder(out)) == rows_of(here)


def test_an_executor_that_is_killed_changes_no_row(tmp_path: Path) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(GRID.replace("messages = 30", "messages = 600"))
    here = fresh(tmp_path / "here", grid.read_text())
    run_here(here)
    out = tmp_path / "lab"
    with cluster(tmp_path) as (url, workers):
        words = [word for conf in ON_A_CLUSTER for word in ("--conf", conf)]
        command = [sys.executable, "-m", "fairway", "lab", "run", str(grid), "--out", str(out), "--master", url, *words]
        with subprocess.Popen(command, env=environment()) as running:
            try:
                wait_for_chunks(out / "runs", 1, running)
                workers[0].kill()
                assert LabFolder(out).pending(), "the sweep was over before the worker was killed"
                assert running.wait(timeout=READY_WITHIN_S) == 0
            finally:
                running.kill()
    assert rows_of(LabFolder(out)) == rows_of(here)
