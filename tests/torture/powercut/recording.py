"""A gateway under strace, with senders: killed in the middle, started again, and stopped at the end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from fairway.core import layout
from fairway.core.errors import FairwayError
from fairway.demo.fleet import Fleet, Ledger, Orders
from fairway.demo.services import GatewayService, ServiceFailed
from fairway.gateway.home import LOCK
from fairway.protocols import NAMES
from tests.torture.powercut.trace import CALLS, TEXT_BYTES_MAX, Event, read
from tests.torture.senders import BULKY_BYTES, PATIENT

NAME = "gateway"
OPTIONS = ("--seal-after", "150ms", "--drain", "60s")
OUTCOMES_WITHIN_S = 180.0
BEFORE_KILL = 0.4
"""The part of the messages whose outcomes are waited for before the kill."""


class CannotRecord(FairwayError):
    """strace is missing or not permitted here; the message says which."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What happened to a lake, and what its senders know."""

    lake: Path
    """As it was at the end."""
    urls: tuple[str, ...]
    events: list[Event]
    ledger: Ledger


def check_strace() -> None:
    """Raise `CannotRecord` unless a program can be followed here."""
    if shutil.which("strace") is None:
        raise CannotRecord("strace is not installed: install it (Debian: apt-get install strace), then try again")
    tried = subprocess.run(["strace", "-f", "-o", os.devnull, "true"], capture_output=True, check=False)
    if tried.returncode:
        raise CannotRecord(f"strace may not follow programs here: {tried.stderr.decode().strip()}")


def record(folder: Path, messages: int) -> Recording:
    """Record so many messages of each device."""
    check_strace()
    lake = folder / "lake"
    gateway = GatewayService(lake, NAMES, OPTIONS, NAME)
    fleet_urls: dict[str, str] = {}
    with gateway:
        gateway.program = under_strace(folder / "trace-0")
        gateway.serve()
        fleet_urls = {protocol: f"{url}?{PATIENT[protocol]}" for protocol, url in gateway.urls.items()}
        fleets = _fleets(fleet_urls, messages)
        sending = [Thread(target=fleet.run, daemon=True) for fleet in fleets]
        for thread in sending:
            thread.start()
        _wait_for(fleets, round(BEFORE_KILL * messages * len(NAMES)), sending)
        _signal(gateway, lake, signal.SIGKILL)
        gateway.program = under_strace(folder / "trace-1")
        gateway.serve()
        for thread in sending:
            thread.join(OUTCOMES_WITHIN_S)
        _signal(gateway, lake, signal.SIGTERM)
    ledger = Ledger()
    for fleet in fleets:
        ledger.add(fleet.ledger)
    events = [event for number in (0, 1) for event in read(folder / f"trace-{number}", lake)]
    return Recording(lake, tuple(gateway.urls.values()), events, ledger)


def under_strace(trace: Path, module: str = "tests.torture.powercut.recorded") -> list[str]:
    """Return the command that runs a module and records what it does to files."""
    calls = ",".join(CALLS)
    strace = ["strace", "-f", "--seccomp-bpf", "-ttt", "-T", "-xx", "-y", "-s", str(TEXT_BYTES_MAX), "-o", str(trace)]
    return [*strace, "-e", f"trace={calls}", sys.executable, "-m", module]


def _fleets(urls: dict[str, str], messages: int) -> list[Fleet]:
    many = Orders(urls=urls, devices=1, messages=messages, interval_s=0.01, in_flight=8, name="cut", request_every=5)
    bulky = Orders(
        urls={"rup": urls["rup"]}, devices=1, messages=2, interval_s=0.5, sizes={"rup": BULKY_BYTES}, name="cut-bulky"
    )
    return [Fleet(many), Fleet(bulky)]


def _wait_for(fleets: list[Fleet], acknowledged: int, sending: list[Thread]) -> None:
    while sum(len(fleet.ledger.acknowledged_s) for fleet in fleets) < acknowledged:
        sending[0].join(0.02)
        if not sending[0].is_alive():
            return


def _signal(gateway: GatewayService, lake: Path, number: signal.Signals) -> None:
    """Signal the gateway itself, not strace, which then writes everything and ends too."""
    pid = int((lake / layout.GATEWAYS / NAME / LOCK).read_text())
    with suppress(ProcessLookupError):
        os.kill(pid, number)
    code = gateway.ended(OUTCOMES_WITHIN_S)
    if code not in (0, -number):
        raise ServiceFailed(f"the recorded gateway left with {code}: {gateway.lines[-3:]}")
