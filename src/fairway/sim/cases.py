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
class Wishes:
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


def case(wishes: Wishes) -> Configuration:
    """Turns wishes into a configuration; raises `BadOption` for what cannot be."""
    check_protocol(wishes.protocol)
    options = _options(wishes)
    for name in ("messages", "size", "hostile", "crashes", "bandwidth"):
        if getattr(wishes, name) < 0:
            raise BadOption(f"{name} is {getattr(wishes, name)}; it must not be negative")
    return Configuration(
        protocol=wishes.protocol,
        options=options,
        faults=Faults(
            loss=per_million("loss", wishes.loss),
            burst_enter=per_million("burst", wishes.burst),
            duplicate=per_million("duplicate", wishes.duplicate),
            reorder=per_million("reorder", wishes.reorder),
            corrupt=per_million("corrupt", wishes.corrupt),
            delay_us=_microseconds("delay-ms", wishes.delay_ms),
            jitter_us=_microseconds("jitter-ms", wishes.jitter_ms),
            bandwidth_bytes_per_s=wishes.bandwidth,
        ),
        load=Load(
            messages=wishes.messages,
            bytes_min=wishes.size,
            bytes_max=wishes.size,
            interval_us=_microseconds("interval-ms", wishes.interval_ms),
            batch=1 if wishes.interval_ms else 64,
            two_way=wishes.two_way,
            commit_us=1_000 if wishes.deferred else 0,
            disk_us=2_000 if wishes.deferred else 0,
        ),
        clients=wishes.clients,
        plan=tuple(
            Crash(
                at_us=(number + 1) * CRASH_EVERY_US,
                node=SERVER,
                down_us=CRASH_DOWN_US,
                with_snapshot=wishes.snapshot,
            )
            for number in range(wishes.crashes)
        ),
        hostile_actions=wishes.hostile,
        fault_us=SECONDS_MAX_US,
    )


def _microseconds(name: str, milliseconds: float) -> int:
    if not 0 <= milliseconds < 1e9:
        raise BadOption(f"{name} is {milliseconds:g}; it must not be negative")
    return round(milliseconds * 1_000)


def _options(wishes: Wishes) -> Options:
    chosen: dict[str, object] = {"deferred": wishes.deferred, "controller": wishes.controller}
    if wishes.window is not None:
        chosen["window"] = wishes.window
    if wishes.layout is not None:
        if "layout" not in {field.name for field in fields(options_class(wishes.protocol))}:
            raise BadOption(f"layout is {wishes.layout}; only mrp has layouts")
        chosen["layout"] = wishes.layout
    return make_options(wishes.protocol, **chosen)
