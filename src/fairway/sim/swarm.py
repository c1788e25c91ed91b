"""Swarms: configurations drawn from a seed, so that any number of them can be run and each can be run again.

Most runs have only some of the faults, at strengths from mild to absurd: a swarm in which everything is always on
would hide what happens when one thing is.
"""

from __future__ import annotations

from dataclasses import fields, replace

from fairway.core.machine import BY_PATH, WINDOW, Options
from fairway.core.random_source import Seeded
from fairway.protocols import NAMES, make_options, options_class
from fairway.sim.configuration import SERVER, WITH_SESSIONS, CloseOne, Configuration, Crash, Partition, Rebind, Step
from fairway.sim.load import Load
from fairway.sim.memory import table_bounds
from fairway.sim.pipe import Faults
from fairway.sim.result import Result
from fairway.sim.run import Trace, run

MS = 1_000
SECOND = 1_000_000
BULK = 150_000
"""How many runs of a million are about batches more than about faults."""
MODEL = 400_000
"""How many of a million run under the default controller; the others share the rest."""
MID_WRITE_FROM_US = 600_000
"""A crash in a transaction waits for one, so it is planned while the load still flows."""
TIGHT_ENTRIES = 64
"""Every table bound of a tight run is at most this."""


BYTES_PER_WINDOW_MAX = 250_000
"""A load is so small that it passes within the bound of time even at one packet per round trip."""


def run_seed(protocol: str, seed: int, *, trace: Trace | None = None) -> Result:
    return run(draw(protocol, seed), seed, trace=trace)


def replay_command(protocol: str, seed: int) -> str:
    return f"fairway sim --protocol {protocol} --swarm --seed {seed}"


def draw(protocol: str, seed: int) -> Configuration:
    random = Seeded(seed).fork(1_000 + NAMES.index(protocol))
    drawn = draw_bulk(protocol, random) if random.happens(BULK) else draw_faulty(protocol, random)
    # Drawn last: a seed that does not run under the model runs as it did before there was one.
    if not random.happens(MODEL):
        return drawn
    window = BY_PATH if drawn.options.window == WINDOW else drawn.options.window
    return replace(drawn, options=replace(drawn.options, controller="model", window=window))


def draw_bulk(protocol: str, random: Seeded) -> Configuration:
    """Draw a run in which equal messages flow fast and arrive joined, for the paths that take whole batches."""
    deferred = random.happens(500_000)
    options = make_options(
        protocol,
        deferred=deferred,
        controller=random.choose(("newreno", "eager")),
        window=random.choose((64, 256)),
        **_beginning(protocol, random),
    )
    size = random.choose((8, 64, 1_000)) if protocol != "rup" else random.choose((64, 20_000))
    return Configuration(
        protocol=protocol,
        options=options,
        faults=Faults(
            loss=random.choose((0, 1_000, 10_000)),
            duplicate=random.choose((0, 5_000)),
            reorder=random.choose((0, 5_000)),
            delay_us=random.choose((1, 20)) * MS,
            bandwidth_bytes_per_s=random.choose((0, 0, 200_000, 1_000_000)),
            queue_bytes=random.choose((4, 16)) << 10,
        ),
        load=Load(
            messages=random.choose((20, 60)) if size == 20_000 else random.choose((150, 400)),
            bytes_min=size,
            bytes_max=size,
            two_way=random.happens(300_000),
            commit_us=random.choose((0, 5 * MS)),
            split=random.choose((0, 300_000)),
            disk_us=2 * MS if deferred else 0,
        ),
        coalesce_us=random.choose((100, 1 * MS)),
        plan=_crashes(random, 1, 2 * SECOND) if random.happens(500_000) else (),
        fault_us=10 * SECOND,
    )


def draw_faulty(protocol: str, random: Seeded) -> Configuration:
    """Draw a run with some faults out of all there are."""
    clients = random.choose((1, 1, 1, 2, 3))
    hostile = random.happens(300_000)
    tight = random.happens(500_000 if hostile else 150_000)
    options = draw_options(protocol, random, tight, hostile)
    load = draw_load(protocol, options, random, tight)
    fault_us = random.choose((2, 4, 8, 8, 15, 60)) * SECOND
    return Configuration(
        protocol=protocol,
        options=options,
        faults=draw_faults(random),
        load=load,
        clients=clients,
        coalesce_us=random.choose((0, 0, 100, 1 * MS, 5 * MS)),
        shared_bottleneck=random.happens(200_000),
        plan=draw_plan(protocol, random, clients, load, fault_us),
        hostile_actions=random.between(20, 200) if hostile else 0,
        hostile_interval_us=random.choose((1, 10, 40)) * MS,
        fault_us=fault_us,
        tight=tight,
    )


def draw_faults(random: Seeded) -> Faults:
    loss = random.choose((0, 0, 10_000, 50_000, 100_000, 300_000, 500_000))
    bursts = random.happens(200_000)
    limited = random.happens(200_000)
    return Faults(
        loss=loss,
        burst_enter=random.between(5_000, 50_000) if bursts else 0,
        burst_leave=random.between(100_000, 400_000),
        burst_loss=random.between(600_000, 1_000_000),
        duplicate=random.choose((0, 0, 10_000, 100_000, 300_000)),
        reorder=random.choose((0, 0, 50_000, 200_000, 500_000)),
        reorder_us=random.choose((5, 30, 200, 1_000)) * MS,
        corrupt=random.choose((0, 0, 0, 10_000, 100_000)),
        delay_us=random.choose((0, 1, 10, 50, 200)) * MS,
        jitter_us=random.choose((0, 0, 5, 50)) * MS,
        bandwidth_bytes_per_s=random.choose((20_000, 100_000, 1_000_000)) if limited else 0,
        queue_bytes=random.choose((1, 4, 16, 64)) << 10,
    )


def draw_options(protocol: str, random: Seeded, tight: bool, hostile: bool) -> Options:
    """Draw the options of all machines of a run.

    With udpc's migration a session follows whoever knows its number, and the hostile peer reads it off the wire: the
    two are not drawn together.
    """
    kind = options_class(protocol)
    names = {field.name for field in fields(kind)}
    chosen: dict[str, object] = {
        "deferred": random.happens(500_000),
        "controller": random.choose(("newreno", "eager")),
        "window": random.choose((1, 4, 32, 256)),
    }
    if tight:
        chosen |= _tight_bounds(kind, random)
    for flag in ("sequenced", "migration"):
        if flag in names and random.happens(250_000):
            chosen[flag] = flag != "migration" or not hostile
    if "index_run_max" in names and random.happens(150_000):
        chosen["index_run_max"] = random.choose((512, 4_096))
    return make_options(protocol, **chosen, **_beginning(protocol, random))


def _beginning(protocol: str, random: Seeded) -> dict[str, object]:
    """Draw mrp's layout, and where counters start: often just before they wrap."""
    names = {field.name for field in fields(options_class(protocol))}
    chosen: dict[str, object] = {}
    if "layout" in names:
        chosen["layout"] = random.choose(("stamped", "piggyback"))
    for start, end in (("first_index", 1 << 32), ("first_id", 1 << 16), ("first_sequence", 1 << 16)):
        if start in names and random.happens(300_000):
            chosen[start] = end - random.between(1, 40)
    return chosen


def _tight_bounds(kind: type[Options], random: Seeded) -> dict[str, object]:
    """Lower every bound on a number of entries, so that tables fill up.

    Those that remember what has arrived for a minute also bound the rate, and stay large enough for the whole load.
    """
    bounds: dict[str, object] = {"window": random.choose((4, 32, 32))}
    for name in table_bounds(kind):
        memory = "remembered" in name or "completed" in name
        bounds[name] = TIGHT_ENTRIES if memory else random.choose((8, 16, TIGHT_ENTRIES))
    bounds["open_receipts_max"] = random.choose((4, 8, 16))
    return bounds


def draw_load(protocol: str, options: Options, random: Seeded, tight: bool) -> Load:
    """Draw what the applications do; in a tight run they are slow to commit, so that receivers are full."""
    sizes = {
        "rup": ((8, 64), (1, 3_000), (1_000, 60_000), (100_000, 300_000)),
        "pydevts": ((8, 64), (8, 1_100), (1, 4_000)),
    }.get(protocol, ((8, 64), (64, 64), (8, 1_100)))
    bytes_min, bytes_max = random.choose(sizes)
    calls = protocol == "udpc" and random.happens(500_000)
    lazy = random.happens(100_000)
    empty = not (protocol == "mrp" and getattr(options, "layout", "") == "piggyback")
    messages = random.between(5, 40 if tight else 120)
    return Load(
        messages=max(1, min(messages, min(options.window, 16) * BYTES_PER_WINDOW_MAX // bytes_max)),
        bytes_min=bytes_min,
        bytes_max=bytes_max,
        tiny=random.choose((0, 0, 0, 200_000)),
        tiny_bytes_min=0 if empty else 1,
        interval_us=random.choose((0, 0, 5, 50) if tight else (0, 0, 5, 50, 300)) * MS,
        batch=random.choose((1, 4, 64)),
        two_way=random.happens(300_000),
        plain=random.choose((0, 200_000)) if calls else 0,
        request=300_000 if calls else 0,
        asynchronous=300_000,
        chain=200_000,
        ping=random.choose((0, 0, 0, 100_000)),
        commit_us=random.choose((0, 100, 1_000, 1_000) if tight else (0, 0, 5, 100, 1_000)) * MS,
        commit_never=50_000 if lazy else 0,
        answer_never=50_000 if lazy else 0,
        split=random.choose((0, 300_000)),
        disk_us=random.choose((0, 2, 20, 20)) * MS,
    )


def _when_us(random: Seeded, fault_us: int) -> int:
    """Draw a time within the first phase, early more often than late: most loads are over soon."""
    return random.below(min(fault_us, random.choose((100, 500, 2_000, 60_000)) * MS))


def draw_plan(protocol: str, random: Seeded, clients: int, load: Load, fault_us: int) -> tuple[Step, ...]:
    """Draw crashes, partitions, address changes and closings."""
    steps: list[Step] = []
    if random.happens(450_000):
        steps.extend(_crashes(random, clients, fault_us))
    if random.happens(250_000):
        steps.extend(_partition(random, clients, fault_us) for _ in range(random.between(1, 2)))
    if random.happens(150_000) and not (load.two_way and protocol not in WITH_SESSIONS):
        steps.append(Rebind(at_us=_when_us(random, fault_us), node=random.between(1, clients)))
    if random.happens(150_000) and protocol in WITH_SESSIONS:
        steps.append(CloseOne(at_us=_when_us(random, fault_us), node=random.between(1, clients)))
    return tuple(steps)


def _crashes(random: Seeded, clients: int, fault_us: int) -> tuple[Crash, ...]:
    return tuple(_crash(random, clients, fault_us) for _ in range(random.between(1, 3)))


def _crash(random: Seeded, clients: int, fault_us: int) -> Crash:
    mid_write = random.happens(700_000)
    return Crash(
        at_us=random.below(MID_WRITE_FROM_US) if mid_write else _when_us(random, fault_us),
        node=SERVER if random.happens(700_000) else random.between(1, clients),
        down_us=random.choose((10, 200, 3_000, 15_000)) * MS,
        with_snapshot=random.happens(700_000),
        mid_write=mid_write,
    )


def _partition(random: Seeded, clients: int, fault_us: int) -> Partition:
    return Partition(
        at_us=_when_us(random, fault_us),
        between=(SERVER, random.between(1, clients)),
        for_us=random.choose((500, 3_000, 15_000, 40_000)) * MS,
    )
