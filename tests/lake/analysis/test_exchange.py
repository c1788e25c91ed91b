"""Folders in the place of others in one step, and who waits for whom."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fairway.lake.analysis import exchange
from fairway.lake.analysis.exchange import exchange_folder, fresh_staging, locked
from fairway.store.lakes import Lake, TableBusy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_who_comes_after_a_killed_writer_waits_for_its_java_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path)
    with locked(lake, "messages", "fairway analyze") as lock:
        orphans = lock.orphans
    script = (
        "import fcntl, sys, time; file = open(sys.argv[1], 'ab'); fcntl.lockf(file, fcntl.LOCK_EX); "
        "print(flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script, orphans], stdout=subprocess.PIPE) as orphan:
        assert orphan.stdout is not None
        orphan.stdout.readline()
        monkeypatch.setattr(exchange, "ORPHAN_WAIT_S", 0.1)
        with pytest.raises(TableBusy, match="killed predecessor"), locked(lake, "messages", "fairway analyze"):
            pass
        monkeypatch.setattr(exchange, "ORPHAN_WAIT_S", 30.0)
        orphan.send_signal(signal.SIGKILL)
        with locked(lake, "messages", "fairway analyze"):
            pass


def test_the_java_process_holds_the_lock_too(spark: SparkSession, tmp_path: Path) -> None:
    with locked(Lake(tmp_path), "messages", "fairway analyze") as lock:
        lock.share_with_jvm(spark)
        with open(lock.orphans, "ab") as file, pytest.raises(BlockingIOError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with open(lock.orphans, "ab") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("in_one_step", [True, False])
def test_an_exchanged_folder_has_the_new_files_and_nothing_else_remains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_one_step: bool
) -> None:
    if not in_one_step:
        monkeypatch.setattr(exchange, "_exchange", lambda one, other: False)
    lake = Lake(tmp_path)
    target = lake.table("messages") / "day=1"
    for number in range(3):
        staging = fresh_staging(lake, "messages")
        staged = staging / "day=1"
        staged.mkdir()
        (staged / f"{number}.parquet").write_text("x")
        assert exchange_folder(staged, target) is (in_one_step or number == 0)
        assert os.listdir(target) == [f"{number}.parquet"]
        assert os.listdir(staging) == []


def test_a_crash_in_the_middle_of_an_exchange_in_two_steps_is_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path)
    target = lake.table("messages") / "day=1"
    target.mkdir(parents=True)
    (target / "old.parquet").write_text("x")
    staged = fresh_staging(lake, "messages") / "day=1"
    staged.mkdir()
    (staged / "new.parquet").write_text("x")
    rename = os.rename

    def crash_at_the_second(source: Path, destination: Path) -> None:
        if destination == target:
            raise KeyboardInterrupt
        rename(source, destination)

    with monkeypatch.context() as patch:
        patch.setattr(exchange, "_exchange", lambda one, other: False)
        patch.setattr(os, "rename", crash_at_the_second)
        with pytest.raises(KeyboardInterrupt):
            exchange_folder(staged, target)
    assert not target.exists()
    assert os.listdir(fresh_staging(lake, "messages")) == []
    assert os.listdir(target) == ["new.parquet"]
