"""The same files, compiled or interpreted: what decides, and what says which."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from fairway.pure import Sources

SHOW = "import fairway.core.machine as machine; print(machine.__file__)"


def shown(**environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SHOW], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_fairway_pure_runs_the_sources_whatever_is_compiled() -> None:
    assert shown(FAIRWAY_PURE="1").endswith("machine.py")


def test_the_source_of_a_module_is_found_beside_a_compiled_one(tmp_path: Path) -> None:
    (tmp_path / "machine.py").write_text("")
    (tmp_path / "machine.cpython-311-x86_64-linux-gnu.so").write_bytes(b"")
    found = Sources.find_spec("fairway.core.machine", [str(tmp_path)])
    assert found is not None
    assert found.origin == str(tmp_path / "machine.py")
    assert Sources.find_spec("fairway.net.driver", [str(tmp_path)]) is None


def test_the_version_says_which_form_runs() -> None:
    command = [sys.executable, "-m", "fairway", "--version"]
    done = subprocess.run(command, env=os.environ | {"FAIRWAY_PURE": "1"}, capture_output=True, text=True, check=True)
    assert done.stdout.endswith(" (interpreted)\n")
