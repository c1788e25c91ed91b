"""`fairway bench`: the benchmarks of a checkout. They are not part of the installed package."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path

import typer

from fairway.core.errors import FairwayError

CHECKOUT = Path(__file__).parents[3]


def load(checkout: Path = CHECKOUT) -> typer.Typer:
    """Return the benchmarks' commands; raise `FairwayError` where the package is not run from a checkout."""
    if not (checkout / "benchmarks" / "cli.py").exists():
        raise FairwayError(
            "benchmarks are not in the installed package: clone the repository, run `make setup` in it, "
            "then `.venv/bin/fairway bench`"
        )
    folder = str(checkout)
    if folder not in sys.path:
        sys.path.append(folder)
    # The benchmarks' worker processes must find the folder as well.
    inherited = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if folder not in inherited:
        os.environ["PYTHONPATH"] = os.pathsep.join([*inherited, folder])
    commands = import_module("benchmarks.cli").bench
    assert isinstance(commands, typer.Typer)
    return commands


bench = load()
