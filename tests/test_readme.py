"""The README does what it says: every command and every line of Python in it runs, and every path in it is there."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.examples import blocks, commands, run_python, run_shell

PAGE = ROOT / "README.md"
README = PAGE.read_text()
MAKE = [block for block in blocks(PAGE, "sh") if commands(block)[0].startswith("make ")]
PIP = [block for block in blocks(PAGE, "sh") if commands(block)[0].startswith("pip ")]
SHELL = [block for block in blocks(PAGE, "sh") if block not in MAKE + PIP]
PYTHON = blocks(PAGE, "python")


def test_there_is_something_of_every_kind() -> None:
    assert MAKE
    assert PIP
    assert PYTHON
    assert all("fairway" in command for block in SHELL for command in commands(block))


@pytest.mark.parametrize("block", SHELL, ids=lambda block: commands(block)[0])
def test_every_fairway_command_runs(block: str, tmp_path: Path) -> None:
    run_shell(block, tmp_path)


@pytest.mark.parametrize("block", PYTHON)
def test_the_python_prints_what_it_says(block: str, tmp_path: Path) -> None:
    run_python(block, tmp_path)


@pytest.mark.parametrize(
    "verb",
    ["listen", "send", "request", "ping", "gateway", "reconcile", "analyze", "report", "sim", "lab run", "lab replay"],
)
def test_every_verb_is_shown(verb: str) -> None:
    assert any(f"fairway {verb}" in command for block in SHELL for command in commands(block))


@pytest.mark.parametrize("command", [command for block in MAKE for command in commands(block)])
def test_every_make_target_exists(command: str) -> None:
    subprocess.run([*command.split(), "--dry-run"], cwd=ROOT, capture_output=True, check=True)


def test_every_extra_to_install_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = [extra for block in PIP for found in re.findall(r"\[([a-z,]+)\]", block) for extra in found.split(",")]
    assert named
    assert set(named) <= set(extras)


@pytest.mark.parametrize(
    "page", [PAGE, *sorted((ROOT / "docs" / "protocols").glob("*.md"))], ids=lambda page: page.stem
)
def test_every_linked_file_is_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    assert links or page != PAGE
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_it_starts_with_what_fairway_is_in_three_sentences() -> None:
    title, opening = README.split("\n\n")[:2]
    assert title == "# Fairway"
    assert len(re.findall(r"\.(?:\s|$)", opening)) == 3
