"""Much data over a bad link: every byte and every message arrives once, or the run fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.namespaces import Namespaces
from benchmarks.transport.environments import Environment, RelayEnvironment, lossy_environments
from benchmarks.transport.loads import LOADS
from benchmarks.transport.pair import Cell, run_cell
from benchmarks.transport.pattern import BLOCK_BYTES
from benchmarks.transport.peers import PEERS

LOSS_PERCENT, COPIES_PERCENT, REORDERED_PERCENT = 1.0, 1.0, 1.0


@dataclass(frozen=True, slots=True)
class Carried:
    """What was carried, how long it took, and what the relay did to it, if there was one."""

    environment: str
    peer: str
    units: int
    seconds: float
    rate: float
    faults: dict[str, dict[str, int]]


def bad_relay() -> RelayEnvironment:
    """Return a way with loss, copies and datagrams out of order."""
    return RelayEnvironment(
        "relay",
        LOSS_PERCENT,
        datagrams_only=True,
        copies_percent=COPIES_PERCENT,
        reordered_percent=REORDERED_PERCENT,
    )


def bad_wire(namespaces: Namespaces) -> Environment:
    """Return a way on which the kernel drops."""
    wire = lossy_environments([LOSS_PERCENT], namespaces)[-1]
    wire.prepare()
    return wire


def carry_bytes(size: int, environment: Environment, *, seed: int, limit_s: float) -> Carried:
    """Carries about so many bytes, in whole blocks, through rup; raises `CellFailed` unless all arrive and fit."""
    return _carry("rup", "bulk", -(-size // BLOCK_BYTES) * BLOCK_BYTES, environment, seed, limit_s)


def carry_messages(peer: str, count: int, environment: Environment, *, seed: int, limit_s: float) -> Carried:
    """Carries exactly so many messages; raises `CellFailed` unless each arrives once and is right."""
    return _carry(peer, "batches-64", count, environment, seed, limit_s)


def _carry(peer: str, load: str, units: int, environment: Environment, seed: int, limit_s: float) -> Carried:
    cell = Cell(PEERS[peer], LOADS[load], environment)
    result: dict[str, Any] = run_cell(cell, 1.0, seed, units=units, limit_s=limit_s)
    faults = environment.done[-1] if isinstance(environment, RelayEnvironment) else {}
    return Carried(environment.title, peer, result["units"], result["seconds"], result["rate"], faults)
