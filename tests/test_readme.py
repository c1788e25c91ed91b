"""The README does what it says: every command in a shell block of it runs, and every path in it is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)
COMMANDS = [line.partition("#")[0].strip() for block in BLOCKS for line in block.splitlines() if line.strip()]
FAIRWAY = [command for command in COMMANDS if command.startswith("fairway ")]
MAKE = [command for command in COMMANDS if command.startswith("make ")]


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command as a reader would, in an empty folder, with the interpreter of these tests."""
    words = [sys.executable, "-m", *command.split()]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, check=False)


def test_every_command_is_of_a_kind_that_is_checked() -> None:
    assert FAIRWAY
    assert MAKE
    assert sorted(COMMANDS) == sorted(FAIRWAY + MAKE)


@pytest.mark.parametrize("command", FAIRWAY)
def test_every_fairway_command_runs(command: str, tmp_path: Path) -> None:
    process = run(command, tmp_path)
    assert process.returncode == 0, process.stderr
    assert process.stdout
    assert process.stderr == ""


@pytest.mark.parametrize("command", MAKE)
def test_every_make_target_exists(command: str) -> None:
    subprocess.run([*command.split(), "--dry-run"], cwd=ROOT, capture_output=True, check=True)


def test_every_linked_file_is_there() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_it_starts_with_what_fairway_is_in_three_sentences() -> None:
    title, opening = README.split("\n\n")[:2]
    assert title == "# Fairway"
    assert len(re.findall(r"\.(?:\s|$)", opening)) == 3
