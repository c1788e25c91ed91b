"""Much data over a bad link: every byte and every message arrives once, or the run fails."""

from __future__ import annotations

from typing import Any

from benchmarks.transport.environments import Environment, RelayEnvironment
from benchmarks.transport.loads import LOADS
from benchmarks.transport.pair import Cell, run_cell
from benchmarks.transport.pattern import BLOCK_BYTES
from benchmarks.transport.peers import PEERS

PERCENT = 1.0


def bad_relay() -> RelayEnvironment:
    """Return a way with loss, duplicates and datagrams out of order."""
    return RelayEnvironment("relay", PERCENT, datagrams_only=True, also=PERCENT)


def carry(peer: str, units: int, environment: Environment, *, seed: int, limit_s: float) -> dict[str, Any]:
    """Carry so many messages, or through rup about so many bytes; raise `CellFailed` unless each arrives once."""
    load = LOADS["bulk" if peer == "rup" else "batches-64"]
    if peer == "rup":
        units = -(-units // BLOCK_BYTES) * BLOCK_BYTES
    result = run_cell(Cell(PEERS[peer], load, environment), 1.0, seed, units=units, limit_s=limit_s)
    faults = environment.done[-1] if isinstance(environment, RelayEnvironment) else {}
    carried = {name: result[name] for name in ("units", "seconds", "rate")}
    return {"environment": environment.title, "peer": peer, **carried, "faults": faults}
