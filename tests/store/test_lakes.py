"""The lake's folder: what becomes one, what is refused, and who may write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fairway.core import layout
from fairway.core.errors import BadOption
from fairway.store.files import make_folder, write_file
from fairway.store.lakes import Lake, NotALake, TableBusy


def test_folders_of_a_gateway_that_came_first_make_a_lake(tmp_path: Path) -> None:
    (tmp_path / layout.LANDING / "one").mkdir(parents=True)
    assert Lake(tmp_path).landing.folder == tmp_path / "landing"


@pytest.mark.parametrize("name", ["feature%2Fx", "back\\slash"])
def test_a_path_that_the_library_reads_as_another_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadOption, match="which delta-rs takes for something else: name another"):
        Lake(tmp_path / name / "lake")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("version", "complaint"), [("1", "was made by an earlier Fairway"), ("3", "layout '3'")])
def test_a_lake_of_another_layout_is_refused_in_a_sentence(tmp_path: Path, version: str, complaint: str) -> None:
    Lake(tmp_path)
    (tmp_path / layout.MARKER).write_text(f"{version}\n")
    for create in (True, False):
        with pytest.raises(NotALake, match=complaint):
            Lake(tmp_path, create=create)


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


def test_a_small_file_replaces_the_one_of_its_name_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b")
    for content in ("one", b"two"):
        write_file(tmp_path / "a" / "b" / "note", content)
    assert (tmp_path / "a" / "b" / "note").read_text() == "two"
    assert os.listdir(tmp_path / "a" / "b") == ["note"]
