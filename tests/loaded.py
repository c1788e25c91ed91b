"""What a fresh interpreter loads: that is what a start takes its time for, and the same on every machine."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.conftest import ROOT


def loaded_by(script: str, *arguments: str) -> set[str]:
    """Return the modules that a script has loaded when it ends, beyond those of the interpreter."""
    program = f"import sys\nbefore = {{*sys.modules}}\n{script}\nprint(*sys.modules.keys() - before, file=sys.stderr)"
    command = [sys.executable, "-c", program, *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return set(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr.split())
