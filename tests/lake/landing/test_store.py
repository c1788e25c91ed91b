"""The lake's folder: who may write, and how anything gets under `tables/`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fairway.core import layout
from fairway.core.errors import BadOption
from fairway.lake import store
from fairway.lake.store import Lake, NotALake, TableBusy, exchange_folder, publish_file


def test_an_empty_folder_becomes_a_lake_and_opens_again(tmp_path: Path) -> None:
    Lake(tmp_path / "lake")
    assert Lake(tmp_path / "lake", create=False).table("messages") == tmp_path / "lake" / "tables" / "messages"


def test_a_folder_with_other_things_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"x")
    with pytest.raises(NotALake, match=r"holds other things \(holiday.jpg\)"):
        Lake(tmp_path)
    assert os.listdir(tmp_path) == ["holiday.jpg"]


def test_folders_of_a_gateway_that_came_first_make_a_lake(tmp_path: Path) -> None:
    (tmp_path / layout.LANDING / "one").mkdir(parents=True)
    assert Lake(tmp_path).landing == tmp_path / "landing"


def test_an_empty_folder_is_no_lake_for_who_only_reads(tmp_path: Path) -> None:
    with pytest.raises(NotALake, match="is no lake"):
        Lake(tmp_path, create=False)
    assert os.listdir(tmp_path) == []


def test_an_address_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="is an address of s3"):
        Lake("s3://bucket/lake")


def test_a_lake_of_a_newer_layout_is_refused(tmp_path: Path) -> None:
    Lake(tmp_path)
    (tmp_path / layout.MARKER).write_text("2\n")
    with pytest.raises(NotALake, match="layout '2'"):
        Lake(tmp_path)


def test_a_second_writer_is_told_who_the_first_is(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with lake.lock("messages", "fairway stream"):
        with (
            pytest.raises(TableBusy, match=rf"fairway stream \(process {os.getpid()}\) writes to the table messages"),
            lake.lock("messages", "fairway compact"),
        ):
            pass
        with lake.lock("packets", "fairway analyze"):
            pass
    with lake.lock("messages", "fairway compact"):
        pass


def test_who_comes_after_a_killed_writer_waits_for_its_java_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path)
    with lake.lock("messages", "fairway stream") as lock:
        orphans = lock.orphans
    script = (
        "import fcntl, sys, time; file = open(sys.argv[1], 'ab'); fcntl.lockf(file, fcntl.LOCK_EX); "
        "print(flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script, orphans], stdout=subprocess.PIPE) as orphan:
        assert orphan.stdout is not None
        orphan.stdout.readline()
        monkeypatch.setattr(store, "ORPHAN_WAIT_S", 0.1)
        with pytest.raises(TableBusy, match="killed predecessor"), lake.lock("messages", "fairway stream"):
            pass
        monkeypatch.setattr(store, "ORPHAN_WAIT_S", 30.0)
        orphan.send_signal(signal.SIGKILL)
        with lake.lock("messages", "fairway stream"):
            pass


def test_a_published_file_replaces_the_one_of_its_name(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    target = lake.table("messages") / "day=2026-11-15" / "a.parquet"
    for content in ("one", "two"):
        staged = lake.fresh_staging("messages") / "x"
        staged.write_text(content)
        publish_file(staged, target)
    assert target.read_text() == "two"
    assert [path.name for path in target.parent.iterdir()] == ["a.parquet"]


@pytest.mark.parametrize("in_one_step", [True, False])
def test_an_exchanged_folder_has_the_new_files_and_nothing_else_remains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_one_step: bool
) -> None:
    if not in_one_step:
        monkeypatch.setattr(store, "_exchange", lambda one, other: False)
    lake = Lake(tmp_path)
    target = lake.table("messages") / "day=1"
    for number in range(3):
        staging = lake.fresh_staging("messages")
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
    staged = lake.fresh_staging("messages") / "day=1"
    staged.mkdir()
    (staged / "new.parquet").write_text("x")
    rename = os.rename

    def crash_at_the_second(source: Path, destination: Path) -> None:
        if destination == target:
            raise KeyboardInterrupt
        rename(source, destination)

    with monkeypatch.context() as patch:
        patch.setattr(store, "_exchange", lambda one, other: False)
        patch.setattr(os, "rename", crash_at_the_second)
        with pytest.raises(KeyboardInterrupt):
            exchange_folder(staged, target)
    assert not target.exists()
    assert os.listdir(lake.fresh_staging("messages")) == []
    assert os.listdir(target) == ["new.parquet"]
