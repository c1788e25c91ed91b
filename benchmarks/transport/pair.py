"""Starts the two sides of a cell as processes, waits for the result, and ends them, whatever happens."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.frame import CellFailed
from benchmarks.transport.environments import Environment
from benchmarks.transport.loads import Load
from benchmarks.transport.peers import Peer
from fairway.demo.services import ServiceFailed, answer, process

START_S = 20.0
LIMIT_BASE_S = 40.0
LIMIT_FACTOR = 12
"""A cell that takes longer than the base and so many times its length has failed."""
STOP_S = 5.0

SENDER_CORE, RECEIVER_CORE = 0, 1


@dataclass(frozen=True, slots=True)
class Cell:
    """One peer under one load in one environment."""

    peer: Peer
    load: Load
    environment: Environment


def run_cell(
    cell: Cell, seconds: float, seed: int, units: int | None = None, limit_s: float | None = None
) -> dict[str, Any]:
    """Measure one cell for about so many seconds, or with exactly so many units; raise `CellFailed`."""
    limit_s = limit_s or LIMIT_BASE_S + LIMIT_FACTOR * seconds
    until = time.monotonic() + limit_s
    common = {
        "peer": cell.peer.name,
        "module": cell.peer.module,
        "settings": dict(cell.peer.settings),
        "load": asdict(cell.load),
        "limit_s": limit_s,
        "seconds": seconds,
        "units": units,
    }
    environment = cell.environment
    environment.prepare()
    receiver_job = {**common, "role": "receiver", "core": RECEIVER_CORE, "host": environment.receiver_host}
    sender_job = {**common, "role": "sender", "core": SENDER_CORE}
    with (
        worker(environment.receiver_prefix, receiver_job) as receiver,
        worker(environment.sender_prefix, sender_job) as sender,
    ):
        address = _answer(receiver, min(until, time.monotonic() + START_S), cell)
        with environment.between((address["host"], address["port"]), seed) as (host, port):
            _tell(sender, {"host": host, "port": port, "receiver_pid": receiver.pid})
            result = _answer_of_either(sender, receiver, until, cell)
        assert receiver.stdin is not None
        receiver.stdin.close()
        received = _answer(receiver, time.monotonic() + STOP_S, cell)
    return _joined(result, received, cell)


def _joined(result: dict[str, Any], received: dict[str, Any], cell: Cell) -> dict[str, Any]:
    """Put what both sides say together. The receiver has compared; here only the count is left."""
    exact = cell.load.kind != "bulk" and not cell.load.drive  # others are stopped in the middle
    if cell.peer.reliable and exact and received["received"] != result["total_units"]:
        raise CellFailed(f"{received['received']} messages arrived of {result['total_units']}")
    if cell.peer.reliable and received["received"] < result["total_units"]:
        raise CellFailed(f"{received['received']} bytes arrived of {result['total_units']}")
    return {
        **{name: value for name, value in result.items() if name != "peak_bytes"},
        "sender_peak_mb": result["peak_bytes"] / 1e6,
        "receiver_peak_mb": received["peak_bytes"] / 1e6,
    }


def worker(prefix: Sequence[str], job: dict[str, Any]) -> AbstractContextManager[subprocess.Popen[bytes]]:
    return process([*prefix, sys.executable, "-m", "benchmarks.transport.worker", json.dumps(job)])


def _tell(child: subprocess.Popen[bytes], words: dict[str, Any]) -> None:
    assert child.stdin is not None
    with suppress(BrokenPipeError):  # whoever is gone says why on its other streams
        child.stdin.write(json.dumps(words).encode() + b"\n")
        child.stdin.flush()


def _answer_of_either(
    sender: subprocess.Popen[bytes], receiver: subprocess.Popen[bytes], until: float, cell: Cell
) -> dict[str, Any]:
    """Wait for the sender; a receiver that speaks first has failed, and says why."""
    assert sender.stdout is not None
    assert receiver.stdout is not None
    ready, _, _ = select.select((sender.stdout, receiver.stdout), (), (), max(0.0, until - time.monotonic()))
    return _answer(receiver if receiver.stdout in ready else sender, until, cell)


def _answer(child: subprocess.Popen[bytes], until: float, cell: Cell) -> dict[str, Any]:
    try:
        found: dict[str, Any] = answer(child, until - time.monotonic())
    except ServiceFailed as reason:
        found = {"error": reason}
    if "error" in found:
        raise CellFailed(f"{cell.peer.name}, {cell.load.name}: {found['error']}")
    return found
