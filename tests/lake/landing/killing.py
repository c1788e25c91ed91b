"""Kills a real stream again and again while a gateway seals and readers read, and says what came of it.

At every moment delta-rs, DuckDB and Polars read the table: no error, and no row twice.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from fairway.lake.landing.reconcile import reconcile
from fairway.store import crashpoints
from fairway.store.lakes import Lake
from tests.lake.landing.fake import FakeGateway
from tests.lake.landing.landing import expected
from tests.lake.landing.reading import READERS, Readers, doubles

SEAL_EVERY_S = 0.4
READ_EVERY_S = 1.5
PATIENCE_S = 600.0
"""A bound for what never takes so long unless it hangs."""

TEST_JVM = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"


@dataclass
class Figures:
    """What happened."""

    kills: int = 0
    looks: int = 0
    messages: int = 0
    reconciled: int = 0
    faults: list[str] = field(default_factory=list)


def start_stream(
    lake: Path | str, crash_at: str = "", *, own_group: bool = False, options: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """Start `fairway stream`, which may be told where to die, or be the first of a process group of its own."""
    environment = os.environ | {crashpoints.VARIABLE: crash_at, "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1"}
    command = [sys.executable, "-m", "fairway", "stream", "--lake", str(lake), *options]
    command += ["--interval", "200ms", "--keep", "1s", "--master", "local[2]", "--json"]
    command += ["--conf", TEST_JVM, "--conf", "spark.driver.memory=1g"]
    out = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=out, stderr=out, text=True, start_new_session=own_group)


class Loop(threading.Thread):
    """Does something again and again until it is stopped; remembers what went wrong."""

    def __init__(self, figures: Figures) -> None:
        super().__init__(daemon=True)
        self.figures = figures
        self.every_s = SEAL_EVERY_S
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.wait(self.every_s):
            try:
                self.step()
            except Exception as error:
                self.figures.faults.append(f"{type(self).__name__}: {error!r}")
                return

    def step(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Loop:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.join(PATIENCE_S)


class Sealing(Loop):
    """Makes segments."""

    def __init__(self, figures: Figures, gateway: FakeGateway) -> None:
        super().__init__(figures)
        self.gateway = gateway

    def step(self) -> None:
        self.gateway.seal(25)


class Reading(Loop):
    """Reads the table with both readers and counts."""

    def __init__(self, figures: Figures, lake: Lake, readers: Readers) -> None:
        super().__init__(figures)
        self.every_s = READ_EVERY_S
        self.lake = lake
        self.readers = readers

    def step(self) -> None:
        if not self.lake.delta("messages").exists():
            return
        for read in self.readers:
            twice = doubles(read(self.lake.delta("messages").location.uri))
            self.figures.looks += 1
            if twice:
                self.figures.faults.append(f"{read.__name__} saw rows twice: {twice[:3]}")
        if not all(account.balanced for account in reconcile(self.lake)):
            self.figures.faults.append(f"reconcile: {reconcile(self.lake)}")
        self.figures.reconciled += 1


def kill_once(lake: Path | str, crash_at: str, wait_s: float) -> None:
    """Run a stream until it dies: at a point of its own, or so long after its first batch."""
    with start_stream(lake, crash_at) as process:
        assert process.stdout is not None
        if crash_at:
            with suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE_S)
            process.kill()  # a point that was not passed so often counts as an instant
        elif process.stdout.readline():
            time.sleep(wait_s)  # the seeded instant; nothing waits for anything here
            process.kill()
        assert process.wait(PATIENCE_S) == -signal.SIGKILL, process.stderr.read() if process.stderr else ""


def end_politely(lake: Path | str, gateway: FakeGateway) -> int:
    """Run a stream until all is in the table, ask it to end, and return its exit code."""
    deadline_s = time.monotonic() + PATIENCE_S
    with start_stream(lake) as process:
        while any(one.on_the_way for one in reconcile(Lake(lake))) and time.monotonic() < deadline_s:
            time.sleep(0.2)
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
        process.send_signal(signal.SIGTERM)
        return process.wait(PATIENCE_S)


def torture(
    lake: Path | str, kills: list[tuple[str, float]], *, journals: Path | None = None, readers: Readers = READERS
) -> Figures:
    """Kill the stream at these points or instants, let a last one finish, and compare every row.

    `journals` is a folder for the gateway's journal where the lake is in an object store.
    """
    figures, opened = Figures(), Lake(lake)
    gateway = FakeGateway(journals or opened.path, "one", days=2, shared=True, landing=opened.landing)
    with ExitStack() as running:
        running.enter_context(Reading(figures, opened, readers))
        with Sealing(figures, gateway):
            for crash_at, wait_s in kills:
                kill_once(lake, crash_at, wait_s)
                figures.kills += 1
        code = end_politely(lake, gateway)
    if code != 0:
        figures.faults.append(f"the last stream left with {code}")
    figures.messages = gateway.next
    for read in readers:
        found, wanted = read(opened.delta("messages").location.uri), expected(gateway, days=2)
        if found != wanted:
            lost, strange = sorted(set(wanted) - set(found))[:3], sorted(set(found) - set(wanted))[:3]
            figures.faults.append(
                f"{read.__name__}: {len(found)} of {len(wanted)} rows, lost {lost}, strange {strange}"
            )
    gateway.close()
    return figures
