"""Loops over bytes, compiled: for what arrays have no word for, because each step depends on the one before.

Compiled functions check no index. Callers give places inside the buffer, and a loop asks before each step it takes.
Numbers there are unsigned and of 64 bits wherever they are places: else each is asked whether it counts from the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compiles at the first call, once for an installation; where nothing can be kept, once for a process."""
    try:
        return cast(_Function, numba.njit(cache=True)(function))
    except RuntimeError:
        return cast(_Function, numba.njit(function))
