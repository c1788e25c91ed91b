"""Tests that are coroutines run in a loop that complains of everything."""

from __future__ import annotations

import inspect

import pytest

from tests.net.worlds import run


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    run(lambda: pyfuncitem.obj(**arguments), path=str(arguments.get("path", "auto")))
    return True
