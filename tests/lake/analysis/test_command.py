"""`fairway analyze` as a user calls it: bad input, real endpoints, a folder that is followed."""

from __future__ import annotations

import gzip
import json
import os
import signal
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from fairway.cli import run
from fairway.demo.relay import relaying
from fairway.net import blocking
from fairway.sim.configuration import RunOptions, case
from fairway.sim.pipe import Faults
from tests.lake.analysis.lakes import table_rows
from tests.lake.analysis.worlds import simulated

Row = dict[str, Any]
MESSAGES = 60
PATIENCE_LOOKS = 1_500
LOSSY = Faults(loss=50_000, duplicate=20_000, reorder=20_000, reorder_us=5_000, delay_us=0)


pytestmark = pytest.mark.usefixtures("one_session")


def rows(lake: Path, table: str) -> list[Row]:
    return table_rows(lake, table)


def capture(protocol: str, number: int = 1) -> bytes:
    return simulated(number, case(RunOptions(protocol=protocol, loss=0.05, messages=10)), 4).capture


def test_every_bad_file_is_named_and_the_others_are_in_the_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "good.pcapng": capture("mrp"),
        "cut.pcapng.gz": gzip.compress(capture("udpc", 2))[:-400],
        "empty.pcap": b"",
        "picture.pcap": b"\x89PNG\r\n\x1a\n" + bytes(1_000),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "dangling.pcap").symlink_to(tmp_path / "nowhere")
    names = [*files, "dangling.pcap", "missing.pcap", "good.pcapng/inside.pcap"]
    lake = tmp_path / "lake"
    code = run(["analyze", *(str(tmp_path / name) for name in names), "--lake", str(lake), "--payload", "--json"])
    told = capsys.readouterr()
    said = told.err.strip().splitlines()
    assert code == 1
    assert len(said) == len(names) - 1
    for name in names[1:]:
        assert sum(name in line for line in said) == 1, name
    assert not any("Traceback" in line or "defect" in line for line in said)
    answer = json.loads(told.out)
    assert (answer["files_added"], set(answer["packets"])) == (2, {"mrp", "udpc", "unknown"})
    packets = rows(lake, "packets")
    assert {row["reason"] for row in packets if row["protocol"] == "unknown"} == {"file_ends_inside"}
    bodies = [row["body"] for row in packets if row["kind"] == "data" and row["body_bytes"]]
    assert bodies
    assert all(body is not None for body in bodies)
    assert [path.name for path in (lake / "staging").iterdir()] == []


def test_what_is_no_lake_is_refused_and_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "good.pcapng").write_bytes(capture("mrp"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    for name in ("home", "good.pcapng"):
        assert run(["analyze", str(tmp_path / "good.pcapng"), "--lake", str(tmp_path / name)]) == 1
        said = capsys.readouterr().err.strip()
        assert name in said
        assert len(said.splitlines()) == 1
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["letter.txt"]


def talk(protocol: str, folder: Path, *, lossy: bool, query: str = "") -> list[Path]:
    """Have two real endpoints exchange messages, and return the traces of both."""
    name = "-".join([protocol, "lossy" if lossy else "direct", query])
    traces = [folder / f"{name}-{end}.pcapng" for end in ("listener", "caller")]
    bodies = [b"%04d" % number * (1 + number % 50) for number in range(MESSAGES)]
    with blocking.listen(f"{protocol}://127.0.0.1:0", trace=traces[0]) as listener:
        direct = _address(listener.url)
        with (
            relaying(direct, LOSSY, seed=3) if lossy else nullcontext((direct, None)) as ((host, port), _),
            blocking.connect(f"{protocol}://{host}:{port}{query}", trace=traces[1]) as connection,
        ):
            assert connection.send_many(bodies, timeout=60) == MESSAGES
        received = [bytes(listener.receive(timeout=60).body) for _ in bodies]
    assert sorted(received) == sorted(bodies)
    return traces


def _address(url: str) -> tuple[str, int]:
    host, _, port = url.partition("://")[2].partition("?")[0].rpartition(":")
    return host, int(port)


def test_traces_of_real_endpoints_break_no_rule_at_either_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for lossy in (False, True):
        for protocol in ("udpc", "mrp", "rup", "pydevts"):
            talk(protocol, tmp_path, lossy=lossy)
        talk("mrp", tmp_path, lossy=lossy, query="?layout=piggyback")
    lake = tmp_path / "lake"
    assert run(["analyze", str(tmp_path), "--lake", str(lake), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files_added"] == 20
    assert rows(lake, "violations") == []
    sessions = rows(lake, "sessions")
    assert {row["point"] for row in sessions} == {"listener", "caller"}
    assert len(sessions) == 20
    for point in ("listener", "caller"):
        outcomes = {row["outcome"] for row in rows(lake, "transfers") if row["point"] == point and row["from_caller"]}
        assert outcomes == {"acknowledged"}, point


class CaptureTool(threading.Thread):
    """Drops captures into a folder by renaming, each when the last is in the tables, and then asks for the end."""

    def __init__(self, folder: Path, lake: Path, files: dict[str, bytes]) -> None:
        super().__init__()
        self._folder = folder
        self._lake = lake
        self._files = files
        self.failed = False

    def run(self) -> None:
        known = len(rows(self._lake, "captures"))
        for number, (name, data) in enumerate(self._files.items(), known + 1):
            (self._folder / "growing.tmp").write_bytes(data)
            (self._folder / "growing.tmp").rename(self._folder / name)
            if not self._in_tables(number):
                self.failed = True
                break
        os.kill(os.getpid(), signal.SIGTERM)

    def _in_tables(self, files: int) -> bool:
        for _ in range(PATIENCE_LOOKS):
            if len(rows(self._lake, "captures")) == files:
                return True
            time.sleep(0.2)
        return False


def followed(folder: Path, lake: Path, files: dict[str, bytes], capsys: pytest.CaptureFixture[str]) -> list[Row]:
    """Follow a folder until the files are in the tables, and return what was said of each run."""
    tool = CaptureTool(folder, lake, files)
    tool.start()
    assert run(["analyze", "--follow", str(folder), "--lake", str(lake), "--json"]) == 0
    tool.join()
    assert not tool.failed
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_followed_folder_is_read_file_by_file_each_once_also_after_a_restart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, lake = tmp_path / "captures", tmp_path / "lake"
    folder.mkdir()
    first = followed(folder, lake, {"a.pcap0": capture("mrp")}, capsys)
    assert [(said["files_added"], said["files_known"]) for said in first] == [(1, 0)]
    second = followed(folder, lake, {"b.pcap1": capture("udpc", 2)}, capsys)
    assert sum(said["files_added"] for said in second) == 1
    assert sum(said["files_known"] for said in second) == 1
    assert {row["protocol"] for row in rows(lake, "sessions")} == {"mrp", "udpc"}
