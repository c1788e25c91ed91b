"""All that a run is a function of, apart from its seed; also as a person asks for it, in shares and milliseconds."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from fairway.core.errors import BadOption
from fairway.core.machine import Options
from fairway.protocols import NAMES, make_options, options_class
from fairway.sim.load import Load
from fairway.sim.pipe import Faults, per_million

WITH_SESSIONS = ("udpc", "mrp")
SERVER = 0
CLIENTS_MAX = 64


def check_protocol(name: str) -> None:
    """Raise `BadOption` unless the protocol is one of the four."""
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
    def nodes(self) -> int:
        """How many there are: stations with a higher number are hostile."""
        return self.clients + 1

    @property
    def restarts(self) -> bool:
        """Whether some node comes back with its snapshot."""
        return any(isinstance(step, Crash) and step.with_snapshot for step in self.plan)

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


CRASH_EVERY_US = 500_000
CRASH_DOWN_US = 200_000
SECONDS_MAX_US = 600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of `fairway sim`."""

    protocol: str
    loss: float = 0.0
    burst: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    delay_ms: float = 10.0
    jitter_ms: float = 0.0
    bandwidth: int = 0
    hostile: int = 0
    crashes: int = 0
    snapshot: bool = True
    messages: int = 100
    size: int = 64
    interval_ms: float = 0.0
    clients: int = 1
    two_way: bool = False
    deferred: bool = False
    window: int | None = None
    controller: str = "model"
    layout: str | None = None

    def command(self, seed: int) -> str:
        """Return the command that runs this again: only what differs from the defaults."""
        words = [f"fairway sim --protocol {self.protocol}"]
        for option in fields(self)[1:]:
            value, name = getattr(self, option.name), option.name.replace("_", "-")
            if value == option.default:
                continue
            if isinstance(value, bool):
                words.append(f"--{name}" if value else f"--no-{name}")
            else:
                words.append(f"--{name} {value:g}" if isinstance(value, float) else f"--{name} {value}")
        return f"{' '.join(words)} --seed {seed}"


def case(asked: RunOptions) -> Configuration:
    """Turn options into a configuration; raise `BadOption` for what cannot be."""
    check_protocol(asked.protocol)
    options = _options(asked)
    for name in ("messages", "size", "hostile", "crashes", "bandwidth"):
        if getattr(asked, name) < 0:
            raise BadOption(f"{name} is {getattr(asked, name)}; it must not be negative")
    return Configuration(
        protocol=asked.protocol,
        options=options,
        faults=Faults(
            loss=per_million("loss", asked.loss),
            burst_enter=per_million("burst", asked.burst),
            duplicate=per_million("duplicate", asked.duplicate),
            reorder=per_million("reorder", asked.reorder),
            corrupt=per_million("corrupt", asked.corrupt),
            delay_us=_microseconds("delay-ms", asked.delay_ms),
            jitter_us=_microseconds("jitter-ms", asked.jitter_ms),
            bandwidth_bytes_per_s=asked.bandwidth,
        ),
        load=Load(
            messages=asked.messages,
            bytes_min=asked.size,
            bytes_max=asked.size,
            interval_us=_microseconds("interval-ms", asked.interval_ms),
            batch=1 if asked.interval_ms else 64,
            two_way=asked.two_way,
            commit_us=1_000 if asked.deferred else 0,
            disk_us=2_000 if asked.deferred else 0,
        ),
        clients=asked.clients,
        plan=tuple(
            Crash(
                at_us=(number + 1) * CRASH_EVERY_US,
                node=SERVER,
                down_us=CRASH_DOWN_US,
                with_snapshot=asked.snapshot,
            )
            for number in range(asked.crashes)
        ),
        hostile_actions=asked.hostile,
        fault_us=SECONDS_MAX_US,
    )


def _microseconds(name: str, milliseconds: float) -> int:
    if not 0 <= milliseconds < 1e9:
        raise BadOption(f"{name} is {milliseconds:g}; it must not be negative")
    return round(milliseconds * 1_000)


def _options(asked: RunOptions) -> Options:
    chosen: dict[str, object] = {"deferred": asked.deferred, "controller": asked.controller}
    if asked.window is not None:
        chosen["window"] = asked.window
    if asked.layout is not None:
        if "layout" not in {field.name for field in fields(options_class(asked.protocol))}:
            raise BadOption(f"layout is {asked.layout}; only mrp has layouts")
        chosen["layout"] = asked.layout
    return make_options(asked.protocol, **chosen)
