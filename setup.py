"""Compiles the machines where FAIRWAY_NATIVE=1 asks for it and a compiler is there; all else stands in pyproject.toml.

The same files run interpreted otherwise, and with FAIRWAY_PURE=1. `make native` compiles a checkout in place.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).parent / "src" / "fairway"))
import pure  # not through the package, which is not installed yet

SOURCES = Path("src")
COMPILERS = ("cc", "gcc", "clang")


def modules() -> list[str]:
    """Return the files that are compiled: the plain typed ones, without what numpy or Arrow does."""
    return [
        str(path)
        for package in pure.COMPILED
        for path in sorted((SOURCES / package.replace(".", "/")).rglob("*.py"))
        if path.name not in pure.INTERPRETED
    ]


def wanted() -> bool:
    """Return whether this build compiles: one that was asked to, where a compiler is."""
    asked = os.environ.get("FAIRWAY_NATIVE") == "1" or "build_ext" in sys.argv
    return asked and os.environ.get("FAIRWAY_PURE") != "1" and any(map(shutil.which, COMPILERS))


if wanted():
    from mypyc.build import mypycify

    os.environ["MYPYPATH"] = str(SOURCES)
    compiled = mypycify(["--strict", *modules()], opt_level="2", debug_level="0", multi_file=True)
else:
    compiled = []

setup(ext_modules=compiled)
