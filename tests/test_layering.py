"""The packages keep to their table, and the checker that says so catches each way of breaking it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests import layering


def test_every_module_keeps_the_rules_of_its_room() -> None:
    assert [str(breach) for breach in layering.all_breaches()] == []


def test_there_is_something_to_check_in_every_pure_room() -> None:
    packages = {layering.package_of(layering.module_name(path)) for path in layering.sources()}
    assert packages >= set(layering.PURE_PACKAGES)
    assert packages <= set(layering.MAY_USE)


@pytest.mark.parametrize(
    ("rule", "module", "source"),
    [
        ("package", "fairway.core.x", "import fairway.protocols"),
        ("package", "fairway.core.x", "from fairway import sim"),
        ("package", "fairway.core.x", "def f():\n    from fairway.capture.pcap import read_pcap"),
        ("package", "fairway.capture.x", "from fairway.sim import run"),
        ("package", "fairway.protocols.udpc.x", "from fairway.capture.pcapng import PcapngWriter"),
        ("package", "fairway.lake.x", "from fairway.net import listen"),
        ("package", "fairway.report.x", "from fairway.lake import schemas"),
        ("package", "fairway.store.x", "from fairway.lake.sink import write"),
        ("only in", "fairway.gateway.x", "from deltalake import DeltaTable"),
        ("package", "fairway.demo.x", "import fairway.cli"),
        ("outside", "fairway.demo.x", "from tests.torture import plan"),
        ("outside", "fairway.cli.x", "def f():\n    import benchmarks.cli"),
        ("relative import", "fairway.core.x", "from . import machine"),
        ("internals", "fairway.sim.x", "from fairway.core.machine import _secret"),
        ("internals", "fairway.sim.x", "from fairway.core._hidden import name"),
        ("internals", "fairway.sim.x", "from fairway.protocols.udpc.session import Session"),
        ("internals", "fairway.protocols.rup.x", "from fairway.protocols.udpc.wire import decode"),
        ("only in", "fairway.sim.x", "import pyspark.sql"),
        ("only in", "fairway.net.x", "from pyspark import sql"),
        ("only in", "fairway.gateway.x", "import socket"),
        ("only in", "fairway.cli.x", "from select import select"),
        ("only in", "fairway.net.x", "import subprocess"),
        ("only in", "fairway.lake.x", "import subprocess"),
        ("randomness", "fairway.net.x", "from random import random"),
        ("randomness", "fairway.lake.x", "from numpy import random"),
        ("randomness", "fairway.sim.x", "def f(np):\n    return np.random.default_rng()"),
        ("pure import", "fairway.core.x", "import time"),
        ("pure import", "fairway.core.x", "import os.path"),
        ("pure import", "fairway.protocols.udpc.x", "import secrets"),
        ("pure import", "fairway.sim.x", "def f():\n    from datetime import datetime"),
        ("pure import", "fairway.sim.x", "import asyncio"),
        ("pure import", "fairway.capture.x", "import io"),
        ("pure import", "fairway.protocols.udpc.x", "import importlib"),
        ("pure import", "fairway.capture.x", "import typer"),
        ("eager numpy", "fairway.core.x", "import numpy as np"),
        ("eager numpy", "fairway.cli.x", "from fairway.protocols.udpc import columns"),
        ("eager numpy", "fairway.protocols.udpc.machine", "from fairway.protocols.udpc.columns import decode_columns"),
        ("pure builtin", "fairway.core.x", "open('x')"),
        ("pure builtin", "fairway.sim.x", "def f(report=print): ..."),
        ("pure builtin", "fairway.sim.x", "key = hash('x')"),
        ("pure wait", "fairway.core.x", "async def f(): ..."),
        ("set order", "fairway.core.x", "for x in {1, 2}: ..."),
        ("set order", "fairway.core.x", "y = [x for x in set(z)]"),
        ("set order", "fairway.core.x", "y = list({x for x in z})"),
        ("set order", "fairway.core.x", "y = [*a.union(b)]"),
        ("set order", "fairway.core.x", "for x in set(a) - b: ..."),
        ("set order", "fairway.core.x", "def f(peers: set[int]):\n    for peer in peers: ..."),
        (
            "set order",
            "fairway.core.x",
            "class A:\n    def f(self):\n        self.s = set()\n        return list(self.s)",
        ),
        ("set order", "fairway.core.x", "names = {1}\nfirst = names.pop()"),
        ("set order", "fairway.core.x", "low = min(f([x for x in {1, 2}]))"),
    ],
)
def test_the_checker_catches(rule: str, module: str, source: str) -> None:
    assert rule in [breach.rule for breach in layering.breaches(module, source)]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("fairway.sim.x", "from fairway.core.machine import Machine\nfrom fairway.protocols.udpc.machine import x"),
        ("fairway.protocols.registry", "def f():\n    from fairway.protocols.udpc.machine import UdpcMachine"),
        ("fairway.protocols.udpc.columns", "import numpy as np\nfrom fairway.core.columns import Columns"),
        ("fairway.protocols.udpc.machine", "def f():\n    from fairway.protocols.udpc import columns"),
        ("fairway.core.x", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import numpy as np"),
        ("fairway.core.x", "for x in sorted({1, 2}): ...\nbig = max({1, 2})\nknown = 3 in {1, 2}"),
        ("fairway.core.x", "low = min([*{1, 2}, 3])\nall_big = all(x > 3 for x in {1, 2})"),
        ("fairway.core.x", "sizes = {1}\nsize = sizes.pop() if len(sizes) == 1 else None"),
        ("fairway.core.x", "stack = [1]\nstack.pop()"),
        ("fairway.cli.x", "import os, sys, time\nprint(1)"),
        ("fairway.demo.x", "import asyncio, select, socket, subprocess"),
        ("fairway.core.x", "from fairway import __version__"),
    ],
)
def test_the_checker_lets_pass(module: str, source: str) -> None:
    assert layering.breaches(module, source) == []


HEAVY = ("numpy", "pandas", "pyarrow", "deltalake", "pyspark", "rich")


def loaded_by(modules: list[str]) -> list[str]:
    """Return the heavy packages that a fresh interpreter has loaded after importing these modules."""
    script = "import sys\n" + "".join(f"import {module}\n" for module in modules)
    script += f"print(*(name for name in {HEAVY} if name in sys.modules))"
    environment = os.environ | {"PYTHONPATH": str(layering.SOURCE.parent)}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout.split()


def test_importing_fairway_and_its_command_line_loads_nothing_heavy() -> None:
    assert loaded_by(["fairway", "fairway.cli"]) == []


def test_only_modules_named_columns_load_numpy() -> None:
    names = [layering.module_name(path) for path in layering.sources()]
    light = [
        name
        for name in names
        if layering.package_of(name) in layering.PURE_PACKAGES and "columns" not in name.split(".")
    ]
    assert loaded_by(light) == []


def test_the_probe_for_heavy_packages_sees_numpy() -> None:
    assert loaded_by(["fairway.core.columns"]) == ["numpy"]
