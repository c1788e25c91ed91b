"""Which form of the machines runs: compiled where the package was built so, or interpreted.

FAIRWAY_PURE=1 has the same files interpreted: to debug, to profile, or to see that a difference is not the compiler's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType

COMPILED = ("fairway.core", "fairway.protocols")
"""Packages whose modules are compiled."""
INTERPRETED = ("__init__.py", "columns.py", "tables.py", "layout.py", "errors.py")
"""Files of them that stay as they are: descriptions, what numpy does, and errors, because a compiled class cannot be
combined with another error of Python's own, as outcomes are."""


class Sources:
    """Finds the source of a module beside which a compiled one lies."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the module's source; `None` for what is never compiled."""
        if not name.startswith(COMPILED):
            return None
        for folder in path or ():
            found = FileFinder(folder, (SourceFileLoader, [".py"])).find_spec(name)
            if found is not None and found.loader is not None:
                return found
        return None


def prefer_sources() -> None:
    """Import sources instead of compiled modules from now on, if FAIRWAY_PURE asks for it."""
    if os.environ.get("FAIRWAY_PURE") == "1":
        sys.meta_path.insert(0, Sources)


def form() -> str:
    """Return "compiled" or "interpreted"."""
    from fairway.core.recovery import recovery

    return "interpreted" if str(recovery.__file__).endswith(".py") else "compiled"
