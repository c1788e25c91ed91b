"""One run as a person asks for it: shares and milliseconds in, a configuration out."""

from __future__ import annotations

from dataclasses import dataclass, fields

from fairway.core.errors import BadOption
from fairway.core.machine import Options
from fairway.protocols import make_options, options_class
from fairway.sim.configuration import SERVER, Configuration, Crash, check_protocol
from fairway.sim.faults import Faults, per_million
from fairway.sim.load import Load

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
        for field in fields(self)[1:]:
            value, name = getattr(self, field.name), field.name.replace("_", "-")
            if value == field.default:
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
