"""The demo tells the whole story, and would say so if a promise were broken."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from fairway.demo.cover import Step, cover
from fairway.demo.fleet import ACKNOWLEDGED, UNKNOWN, Ledger, key_of
from fairway.demo.judgement import judge
from fairway.demo.story import fresh_folder


def test_the_whole_story_is_told_and_every_promise_kept(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fairway", "demo", "--out", str(tmp_path / "demo"), "--messages", "30"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert [line.split(".")[0] for line in lines if re.match(r"\d\. ", line)] == ["1", "2", "3", "4"]
    assert "240 sent, 240 acknowledged, 240 in the table; 0 missing, 0 double, 0 foreign" in done.stdout
    assert lines[-1] == f"Open {tmp_path / 'demo' / 'index.html'}"
    for page in ("index.html", "captures.html", "lab.html"):
        assert (tmp_path / "demo" / page).stat().st_size > 10_000
    page = (tmp_path / "demo" / "index.html").read_text()
    assert "Every promise was kept" in page
    table = tmp_path / "demo" / "lake" / "tables" / "messages"
    assert f"SELECT protocol, count(*) FROM delta_scan(&#x27;{table}&#x27;) GROUP BY ALL" in page


def table_of(folder: Path, bodies: list[bytes]) -> Path:
    write_deltalake(folder, pa.table({"body": pa.array(bodies, pa.binary())}))
    return folder


@pytest.mark.parametrize(
    ("bodies", "wrong"),
    [
        ([b"a", b"b"], (0, 0, 0)),
        ([b"a", b"b", b"maybe"], (0, 0, 0)),
        ([b"a"], (1, 0, 0)),
        ([b"a", b"b", b"b"], (0, 1, 0)),
        ([b"a", b"b", b"B"], (0, 0, 1)),
        ([b"a", b"b", b"maybe", b"maybe"], (0, 1, 0)),
    ],
)
def test_the_judge_sees_what_is_missing_double_or_foreign(
    bodies: list[bytes], wrong: tuple[int, int, int], tmp_path: Path
) -> None:
    outcomes = {key_of(b"a"): ACKNOWLEDGED, key_of(b"b"): ACKNOWLEDGED, key_of(b"maybe"): UNKNOWN}
    found = judge(Ledger(outcomes=outcomes), table_of(tmp_path / "messages", bodies))
    assert (found.missing, found.double, found.foreign) == wrong
    assert found.kept == (wrong == (0, 0, 0))


def test_the_page_names_the_step_whose_promise_was_broken() -> None:
    steps = [Step(title="Carry", found="x", seconds=1, kept=True), Step(title="Land", found="y", seconds=1, kept=False)]
    text = cover(steps, [], [])
    assert "A promise was broken: Land." in text
    assert "Every promise was kept" not in text


def test_a_folder_that_is_taken_gets_a_number(tmp_path: Path) -> None:
    wanted = tmp_path / "demo"
    assert fresh_folder(wanted) == wanted
    wanted.mkdir()
    assert fresh_folder(wanted) == wanted
    (wanted / "something").write_text("")
    assert fresh_folder(wanted) == tmp_path / "demo-2"
