"""What tests of several packages share."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler.loadscope import LoadScopeScheduling

ROOT = Path(__file__).parent.parent

Tshark = Callable[[Path, Sequence[str]], list[dict[str, str]]]
"""Gives the asked fields of every frame of a capture, as text."""

# A machine that is busy with something else is no reason to fail; what is tested here is not speed.
settings.register_profile("fairway", deadline=None, print_blob=True)
settings.load_profile("fairway")


QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Most Java processes of the tests end before thorough compilation would pay."""
ARCHIVE = ROOT / "build" / "spark.jsa"
"""Classes of Spark as they are once loaded: with them its processes start in half the time (`tests.lake.archive`)."""

CAPTURES = ("tests/lake/analysis/", "tests/lake/captures/", "tests/lake/violations/")
SPARK = "tests/lake/"
"""Where tests share a Spark session: one for captures and one for the rest, first. More would only fight for the cores;
with one alone half of two cores was idle."""

PROCESSES = (
    "tests/s3/",
    "tests/lake/test_cluster.py",
    "tests/lake/landing/test_killing.py",
    "tests/cli/test_demo.py",
    "tests/lake/lab/test_killed_sweeps.py",
    "tests/torture/test_judgement.py::test_every_reader",
    "tests/torture/test_torture.py::test_whatever_is_killed",
)
"""What starts Spark in processes of its own, and long: late, the longest first, each of these on one worker, when
nobody is left whose timers they could starve."""
FILLERS = "tests/core/"
"""Short tests without timers, last of all: a worker begins a test only when it has the next one."""


LONG = (
    "tests/benchmarks/",
    "tests/fuzz/test_fuzz.py::test_a_flawed_machine",
    "tests/torture/test_judgement.py::test_every_reader",
    "tests/torture/test_powercut.py::test_a_gateway_that_did_not_sync",
    "tests/torture/test_powercut.py::test_a_stream_that_did_not_sync",
    "tests/lake/captures/test_benchmark.py",
    "tests/lake/lab/test_killed_sweeps.py::test_an_executor",
    "tests/torture/test_torture.py::test_whatever_is_killed",
)
"""Tests of what measures or looks for faults, and kill runs whose promise shorter ones guard: not in `make test`."""


def rank(nodeid: str) -> int:
    """Return where in the order a test stands: shared sessions first, processes of Spark last but for the fillers."""
    for number, path in enumerate(PROCESSES):
        if nodeid.startswith(path):
            return 2 + number
    if nodeid.startswith(FILLERS):
        return 2 + len(PROCESSES)
    return 0 if nodeid.startswith(SPARK) else 1


def scope(nodeid: str) -> str:
    """Name what runs on one worker: most tests by themselves."""
    for path in PROCESSES:
        if nodeid.startswith(path):
            return path
    if nodeid.startswith(CAPTURES):
        return "captures"
    return "spark" if nodeid.startswith(SPARK) else nodeid


class OneSession(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Keeps what shares a scope on one worker, and gives all other tests one by one to whoever is free: many of them
    wait for real timers, so that two workers for them keep one core busy."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)

    def _assign_work_unit(self, node: object) -> None:
        """Put no long test behind another one while there are fillers: the next free worker begins it sooner."""
        units = self.assigned_work.get(node, {}).items()
        if any(path.startswith(PROCESSES) and not all(tests.values()) for path, tests in units):
            short = next((path for path in self.workqueue if not path.startswith(PROCESSES)), None)
            if short is not None:
                self.workqueue.move_to_end(short, last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneSession:
    """Spread the tests; xdist's own groups do nothing under pytest 9."""
    return OneSession(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=1, help="decides the order of the tests and what hypothesis draws")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Pass the seed to hypothesis, before its plugin looks; with a seed it draws the same each time."""
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = config.option.seed
    gc.set_threshold(100_000, 50, 50)  # simulated runs make little that refers to itself
    # Logging is off because the shell that starts Spark reads what Java writes. A missing archive is ignored.
    os.environ.setdefault("JAVA_TOOL_OPTIONS", f"{QUICK_JAVA} -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable")


def pytest_report_header(config: pytest.Config) -> str:
    """Say how to draw the same again; the seed of hashes comes from the environment, before there is an option."""
    seed, hashes = config.option.seed, os.environ.get("PYTHONHASHSEED", "random")
    return f"seed {seed}, hashes {hashes}: make test SEED={seed} or PYTHONHASHSEED={hashes} pytest --seed {seed}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the long tests, then shuffle the modules and the tests in each: so each module prepares what it needs once.

    `--no-loadscope-reorder` keeps this order, and every worker finds the same one.
    """
    for item in items:
        if item.nodeid.startswith(LONG):
            item.add_marker("long")
    random = Random(config.option.seed)
    modules = list(dict.fromkeys(item.path for item in items))
    random.shuffle(modules)
    order = {module: index for index, module in enumerate(modules)}
    random.shuffle(items)
    items.sort(key=lambda item: (rank(item.nodeid), order[item.path]))


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what was imported: each test of `net` has it scan everything."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine on a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True


@pytest.fixture(scope="session")
def tshark() -> Tshark:
    """Return a reader of captures that is not ours, installed if it is missing; never skipped."""
    subprocess.run([sys.executable, ROOT / "scripts" / "require.py", "tshark"], check=True)
    return read_with_tshark


def read_with_tshark(path: Path, fields: Sequence[str]) -> list[dict[str, str]]:
    """Let tshark judge every checksum and print fields."""
    command = ["tshark", "-n", "-r", str(path), "-T", "fields", "-E", "separator=/t"]
    command += ["-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]
    for field in fields:
        command += ["-e", field]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [dict(zip(fields, line.split("\t"), strict=True)) for line in printed.splitlines()]
