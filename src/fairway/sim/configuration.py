"""All that a run is a function of, apart from its seed."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairway.core.errors import BadOption
from fairway.core.machine import Options
from fairway.protocols import NAMES
from fairway.sim.faults import Faults
from fairway.sim.load import Load

WITH_SESSIONS = ("udpc", "mrp")
SERVER = 0
CLIENTS_MAX = 64


def check_protocol(name: str) -> None:
    """Raises `BadOption` unless the protocol is one of the four."""
    if name not in NAMES:
        raise BadOption(f"the protocol is {name!r}; it must be one of {', '.join(NAMES)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """A node's process ends at once, and a new one begins after a while."""

    at_us: int
    node: int
    down_us: int
    with_snapshot: bool
    mid_write: bool = False
    """Wait for a transaction of the disk and crash in it: stored or not, nothing of it is acknowledged yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Nothing passes between two nodes for a while."""

    at_us: int
    between: tuple[int, int]
    for_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebind:
    """A node's address changes, as behind a NAT that forgot it."""

    at_us: int
    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseOne:
    """A client closes its conversation while sending, and opens another."""

    at_us: int
    node: int


Step = Crash | Partition | Rebind | CloseOne


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One run: node 0 is the server, the others are clients that call it."""

    protocol: str
    options: Options
    faults: Faults = field(default_factory=Faults)
    load: Load = field(default_factory=Load)
    clients: int = 1
    coalesce_us: int = 0
    """Arrivals are gathered to multiples of this and joined into super-buffers; 0 brings them one by one."""
    shared_bottleneck: bool = False
    """All clients share one pipe towards the server."""
    plan: tuple[Step, ...] = ()
    hostile_actions: int = 0
    hostile_interval_us: int = 10_000
    fault_us: int = 60_000_000
    """The first phase ends when everything has its outcome, or after this."""
    heal_us: int = 600_000_000
    """Within this time after the heal everything must have arrived or have been reported as failed."""
    tight: bool = False
    """Bounds are so low that they are reached; then memory is watched, and messages may be given up."""

    def __post_init__(self) -> None:
        if self.clients < 1 or self.clients > CLIENTS_MAX:
            raise BadOption(f"clients is {self.clients}; it must be from 1 to {CLIENTS_MAX}")
        for step in self.plan:
            if step.at_us < 0:
                raise BadOption(f"a step of the plan is at {step.at_us}; it must not be before the start")

    @property
    def steady(self) -> bool:
        """Whether no process ends, no address changes and nobody lies."""
        return not self.plan and not self.hostile_actions

    @property
    def mild(self) -> bool:
        """Whether the faults are such that no reliable message may be given up.

        One loss in ten each way fails once in five tries, and every protocol tries at least ten times.
        """
        faults, load = self.faults, self.load
        quick = faults.delay_us + faults.jitter_us <= 200_000 and load.commit_us <= 500_000 and load.disk_us <= 100_000
        clear = faults.loss + faults.corrupt <= 100_000 and not faults.burst_enter and not faults.bandwidth_bytes_per_s
        return self.steady and not self.tight and quick and clear and not load.commit_never
