"""The demo tells the whole story, and would say so if a promise were broken."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from deltalake import DeltaTable

from fairway.demo.story import Step, cover, fresh_folder
from fairway.protocols import NAMES


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
    assert f"SELECT device, count(*) FROM delta_scan(&#x27;{table}&#x27;) GROUP BY ALL" in page
    rows = DeltaTable(table).to_pyarrow_table(columns=["device", "protocol"]).to_pylist()
    devices = {(f"demo-7.{protocol}-{number}", protocol): 30 for protocol in NAMES for number in (0, 1)}
    assert Counter((row["device"], row["protocol"]) for row in rows) == devices
    assert all(device in page for device, _ in devices)


def test_the_page_names_the_step_whose_promise_was_broken() -> None:
    steps = [Step(title="Carry", found="x", seconds=1, kept=True), Step(title="Land", found="y", seconds=1, kept=False)]
    text = cover(steps, [], [], {})
    assert "A promise was broken: Land." in text
    assert "Every promise was kept" not in text


def test_a_folder_that_is_taken_gets_a_number(tmp_path: Path) -> None:
    wanted = tmp_path / "demo"
    assert fresh_folder(wanted) == wanted
    wanted.mkdir()
    assert fresh_folder(wanted) == wanted
    (wanted / "something").write_text("")
    assert fresh_folder(wanted) == tmp_path / "demo-2"
