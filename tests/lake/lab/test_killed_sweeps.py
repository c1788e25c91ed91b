"""A sweep that is killed or told to end, as a process, ends with the same table when it is started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fairway.lake.lab.sweep import LabFolder
from tests.lake.cluster import ON_A_CLUSTER, cluster, environment
from tests.lake.lab.folders import GRID, fresh, rows_of, run_here

READY_WITHIN_S = 400


def wait_for_a_chunk(runs: Path, running: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while not any(runs.glob("chunk-*.parquet")):
        assert running.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_driver_that_is_killed_leaves_whole_chunks_and_the_next_one_ends_with_the_same_table(tmp_path: Path) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(GRID.replace("messages = 30", "messages = 300"))
    here = fresh(tmp_path / "here", grid.read_text())
    run_here(here)
    command = [sys.executable, "-m", "fairway", "lab", "run", str(grid), "--out", str(tmp_path / "lab")]
    killed = subprocess.Popen([*command, "--master", "local[2]"], start_new_session=True)
    wait_for_a_chunk(tmp_path / "lab" / "runs", killed)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert LabFolder(tmp_path / "lab").pending()
    subprocess.run([*command, "--master", "local[2]"], check=True, capture_output=True)
    assert rows_of(LabFolder(tmp_path / "lab")) == rows_of(here)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_sweep_that_is_told_to_end_does_so_in_the_middle_of_its_job(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(GRID.replace("messages = 30", "messages = 600").replace("seeds = 12", "seeds = 500"))
    command = [sys.executable, "-m", "fairway", "lab", "run", str(grid), "--out", str(tmp_path / "lab")]
    said = tmp_path / "said"
    with (
        said.open("w") as errors,
        subprocess.Popen([*command, "--master", "local[1]"], start_new_session=True, stderr=errors) as running,
    ):
        try:
            wait_for_a_chunk(tmp_path / "lab" / "runs", running)
            os.killpg(running.pid, number)  # as terminals and service managers send it
            assert running.wait(timeout=READY_WITHIN_S) == code
        finally:
            running.kill()
    left = sum(len(chunk.cells) for chunk in LabFolder(tmp_path / "lab").pending())
    assert left
    assert said.read_text() == f"stopped; {left:,} of 2,000 cells are left for the same command\n"


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
                wait_for_a_chunk(out / "runs", running)
                workers[0].kill()
                assert LabFolder(out).pending(), "the sweep was over before the worker was killed"
                assert running.wait(timeout=READY_WITHIN_S) == 0
            finally:
                running.kill()
    assert rows_of(LabFolder(out)) == rows_of(here)
