"""Loops over bytes, compiled: for what arrays have no word for, because each step depends on the one before.

Compiled functions check no index. Callers pass offsets inside the buffer, and a loop checks before each step.
`compiled` is for what Python calls; what only compiled functions of the same module call is `inner`: a change of either
is a change of the file, and what was compiled of it before is not used again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar, cast

import numba

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_Function = TypeVar("_Function", bound=Callable[..., Any])


def inner(function: _Function) -> _Function:
    """Mark a function that becomes a part of those that call it."""
    return cast(_Function, numba.njit(function))


class compiled(Generic[_Parameters, _Result]):  # noqa: N801 - a decorator
    """Compiles at the first call, and keeps the result for the next process where that is possible."""

    def __init__(self, function: Callable[_Parameters, _Result]) -> None:
        self._unkept = cast(Callable[_Parameters, _Result], numba.njit(function))
        try:
            self._best = cast(Callable[_Parameters, _Result], numba.njit(cache=True)(function))
        except RuntimeError:  # there is no folder to keep it in
            self._best = self._unkept

    def __call__(self, *arguments: _Parameters.args, **more: _Parameters.kwargs) -> _Result:
        """Call the function. Loops raise nothing: what is raised is about what was kept, damaged or on a full disk."""
        try:
            return self._best(*arguments, **more)
        except Exception:
            self._best = self._unkept
            return self._unkept(*arguments, **more)
