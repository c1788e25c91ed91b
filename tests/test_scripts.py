"""The scripts behind `make`: they find what is missing and report what fails."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from scripts import require, soak
from tests.conftest import LONG, PROCESSES, ROOT

PYTHON = """#!/bin/sh
case "$*" in
*venv*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
*dev.txt) echo noise ;;
*--editable*) echo noise; echo noise >&2; exit "$EDITABLE_EXIT" ;;
esac
"""
STEPS = ["making .venv", "installing what requirements/dev.txt names", "installing Fairway"]


def test_a_soak_prints_how_to_replay_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    good = soak.Finding(soak.Run("mrp", 5), 100, None)
    bad = soak.Finding(soak.Run("udpc", 6), 20, "nothing twice: message 3")
    assert soak.soak([good, bad, good], 3, 1_000) == 1
    out = capsys.readouterr().out
    assert "FAILED fairway sim --protocol udpc --swarm --seed 6\n    nothing twice: message 3\n" in out
    assert "3 runs (mrp 2, udpc 1), 220 datagrams, 1 failed" in out


def test_an_exception_in_a_run_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(protocol: str, seed: int) -> None:
        raise KeyError(f"{protocol} {seed}")

    monkeypatch.setattr(soak, "run_seed", broken)
    assert soak.look_at(soak.Run("rup", 3)) == soak.Finding(soak.Run("rup", 3), 0, "KeyError: 'rup 3'")


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('version "21" 2023', 21),
        ("?", 0),
    ],
)
def test_the_version_of_java_is_read(tmp_path: Path, said: str, version: int) -> None:
    java = executable(tmp_path / "java", f"#!/bin/sh\necho '{said}' >&2\n")
    assert require.java_version(str(java)) == version


def test_what_is_missing_is_named_with_its_remedy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = require.Program("a program", lambda: None, "its-package")
    monkeypatch.setattr(require, "PROGRAMS", {"tool": program})
    monkeypatch.setattr(require, "install", lambda package: False)
    assert require.main(["tool"]) == 1
    said = "Fairway needs a program: install it (Debian: apt-get install its-package), then try again.\n"
    assert capsys.readouterr().err == said


def executable(path: Path, script: str) -> Path:
    path.write_text(script)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(("code", "logs"), [(0, 0), (1, 1)])
def test_set_up_prints_a_line_per_step_and_where_the_log_is_if_one_fails(tmp_path: Path, code: int, logs: int) -> None:
    python = executable(tmp_path / "python", PYTHON)
    for name in ("requirements/dev.txt", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    command = ["make", "-f", str(ROOT / "Makefile"), "setup", f"PYTHON={python}"]
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    environment = outside | {"EDITABLE_EXIT": str(code)}
    made = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (made.returncode == 0) == (code == 0)
    assert made.stdout.splitlines() == STEPS
    log = tmp_path / "build" / "setup.log"
    assert made.stderr.count(f"failed: {log} says why\n") == logs
    assert log.read_text() == 3 * "noise\n"


def test_every_test_that_is_called_long_or_late_exists() -> None:
    for path in (*LONG, *PROCESSES):
        file, _, name = path.partition("::")
        assert (ROOT / file).exists()
        assert not name or f"def {name}" in (ROOT / file).read_text()
