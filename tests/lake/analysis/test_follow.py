"""A folder of rotated captures: which files are offered, and when."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairway.lake.analysis.follow import Follower


def test_a_file_is_offered_once_when_it_has_been_quiet(tmp_path: Path) -> None:
    follower = Follower(tmp_path, quiet_s=5)
    file = tmp_path / "one.pcap"
    file.write_bytes(b"some")
    assert follower.complete(0) == []
    assert follower.complete(4) == []
    assert follower.complete(5) == [str(file)]
    assert follower.complete(60) == []


def test_a_file_that_grows_starts_its_quiet_time_again(tmp_path: Path) -> None:
    follower = Follower(tmp_path, quiet_s=5)
    file = tmp_path / "one.pcap"
    file.write_bytes(b"some")
    follower.complete(0)
    file.write_bytes(b"some more")
    assert follower.complete(5) == []
    assert follower.complete(10) == [str(file)]


def test_what_is_no_capture_or_empty_is_not_offered(tmp_path: Path) -> None:
    follower = Follower(tmp_path, quiet_s=0)
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "empty.pcap").touch()
    (tmp_path / "rotated.pcap12").write_bytes(b"x")
    assert follower.complete(1) == [str(tmp_path / "rotated.pcap12")]


def test_a_restart_offers_everything_again_because_the_lake_remembers(tmp_path: Path) -> None:
    (tmp_path / "one.pcap").write_bytes(b"some")
    for _ in range(2):
        assert len(Follower(tmp_path, quiet_s=0).complete(1)) == 1


def test_a_folder_that_is_none_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match="missing"):
        Follower(tmp_path / "missing")
